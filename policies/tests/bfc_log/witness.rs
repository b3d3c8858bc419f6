//! What the log does not say, and how far the rules follow the log under it.

use super::naive::{Chunk, Naive, rounded};
use super::{Call, Log, written};
use poolsim_core::units::MIB;
use poolsim_core::{Bytes, DevAddr};
use std::collections::{BTreeMap, BTreeSet};

/// No request.
pub const NONE: usize = usize::MAX;

/// The log names a free by the size that was asked for, and it does so before it takes the lock, so that another thread's
/// request may come first. A witness says of each free which request it undoes, and whether it took effect one request
/// late.
#[derive(Clone, Debug, PartialEq)]
pub struct Witness {
    /// By call; [`NONE`] for requests.
    pub undoes: Vec<usize>,
    /// By call.
    pub late: Vec<bool>,
}

/// The first request that gets another answer than the logged one.
#[derive(Clone, Debug)]
pub struct Wrong {
    pub call: usize,
    /// How far the heap is from giving the logged answer: chunks that would be preferred, and whether the logged one is a
    /// free chunk at all.
    pub distance: usize,
    /// Frees whose memory has to do with it.
    pub freed: Vec<usize>,
    /// Requests whose memory touches it.
    pub beside: Vec<usize>,
}

/// The distance where the logged answer is not free.
const FAR: usize = 1 << 20;

/// A heap that follows a log.
#[derive(Clone, Debug)]
pub struct State {
    heap: Naive,
    live: BTreeMap<usize, Chunk>,
    by_addr: BTreeMap<DevAddr, usize>,
    /// Memory that is free, by address: its end, and the free that made it so.
    freed: BTreeMap<DevAddr, (DevAddr, usize)>,
    /// For requests that got more than they asked for: the frees that the surplus came from, and the request after it.
    surplus: BTreeMap<usize, (Vec<usize>, Option<usize>)>,
    late: Option<usize>,
    refused: usize,
    regions: usize,
    next: Bytes,
    limit: Bytes,
}

impl State {
    pub fn new(limit: Bytes) -> State {
        State {
            heap: Naive::default(),
            live: BTreeMap::new(),
            by_addr: BTreeMap::new(),
            freed: BTreeMap::new(),
            surplus: BTreeMap::new(),
            late: None,
            refused: 0,
            regions: 0,
            next: limit.min(2 << 20),
            limit,
        }
    }

    /// One call; an error says what is wrong with it.
    pub fn step(&mut self, log: &Log, w: &Witness, call: usize) -> Result<(), Wrong> {
        let (bytes, pointer) = match log.calls[call] {
            Call::Free { .. } if w.late[call] => {
                // Two at once would be two threads that were overtaken.
                let before = self.late.replace(call);
                before.into_iter().for_each(|free| self.free(free, w));
                return Ok(());
            }
            Call::Free { .. } => {
                self.free(call, w);
                return Ok(());
            }
            Call::Alloc { bytes, pointer } => (bytes, pointer),
        };
        self.grow(log, bytes);
        let choice = self.heap.choices(bytes).next();
        if choice.map(|chunk| chunk.addr) != pointer {
            return Err(self.explain(w, call, bytes, pointer));
        }
        if let Some(chunk) = choice {
            let chunk = self.heap.take(chunk, bytes);
            self.occupy(call, chunk, bytes);
        } else {
            let stated = &log.refusals[self.refused][0];
            let free = self.heap.free_bytes();
            if *stated != written(free) {
                let stated: f64 = stated.trim_end_matches("MiB").parse().expect("MiB");
                let off = (free as f64 / MIB as f64 - stated).abs();
                return Err(self.explain_surplus(w, call, 1 + (off * 16.0) as usize));
            }
            self.refused += 1;
        }
        let late = self.late.take();
        late.into_iter().for_each(|free| self.free(free, w));
        Ok(())
    }

    fn free(&mut self, free: usize, w: &Witness) {
        let chunk = self.live.remove(&w.undoes[free]).expect("a live request");
        self.by_addr.remove(&chunk.addr);
        self.freed.insert(chunk.addr, (chunk.end(), free));
        self.heap.free(chunk);
    }

    /// Takes the next region of the log, if nothing serves a request and the rules ask for a region of that size.
    fn grow(&mut self, log: &Log, bytes: Bytes) {
        let (need, left) = (rounded(bytes), self.limit - self.heap.held());
        if self.heap.choices(bytes).next().is_some() || need > left {
            return;
        }
        let doubled = need > self.next;
        while need > self.next {
            self.next *= 2;
        }
        let size = self.next.min(left);
        if !doubled {
            self.next *= 2;
        }
        if let Some(&(addr, _)) = log.regions.get(self.regions).filter(|r| r.1 == size) {
            self.regions += 1;
            self.heap.add_region(addr, size);
        }
    }

    fn occupy(&mut self, request: usize, chunk: Chunk, bytes: Bytes) {
        let (asked, end) = (chunk.addr + rounded(bytes), chunk.end());
        let mut surplus = Vec::new();
        let before_end = self.freed.range(..end).rev();
        let parts = before_end.take_while(|(_, part)| part.0 > chunk.addr).map(|(&at, _)| at);
        for at in parts.collect::<Vec<_>>() {
            let (to, free) = self.freed.remove(&at).expect("just seen");
            if to > asked {
                surplus.push(free);
            }
            if at < chunk.addr {
                self.freed.insert(at, (chunk.addr, free));
            }
            if to > end {
                self.freed.insert(end, (to, free));
            }
        }
        if end > asked {
            self.surplus.insert(request, (surplus, self.by_addr.get(&end).copied()));
        }
        self.live.insert(request, chunk);
        self.by_addr.insert(chunk.addr, request);
    }

    fn explain(&self, w: &Witness, call: usize, bytes: Bytes, pointer: Option<DevAddr>) -> Wrong {
        let logged = pointer.and_then(|p| self.heap.free_at(p));
        let choice = self.heap.choices(bytes).next();
        let (mut freed, mut beside) = (BTreeSet::new(), BTreeSet::new());
        for chunk in [choice, logged].into_iter().flatten() {
            let parts = self.freed.range(..chunk.end()).rev();
            freed.extend(parts.take_while(|(_, part)| part.0 > chunk.addr).map(|(_, part)| part.1));
            beside.extend(self.by_addr.get(&chunk.end()));
            let before = self.by_addr.range(..chunk.addr).next_back();
            beside.extend(before.filter(|(_, r)| self.live[*r].end() == chunk.addr).map(|x| x.1));
        }
        let holder = pointer.and_then(|p| self.by_addr.range(..=p).next_back());
        beside.extend(holder.map(|(_, &request)| request));
        let grew = freed.iter().map(|&free| w.undoes[free]).chain(holder.map(|(_, &r)| r));
        for (frees, after) in grew.filter_map(|r| self.surplus.get(&r)).collect::<Vec<_>>() {
            freed.extend(frees);
            beside.extend(after);
        }
        let distance = match logged {
            None => FAR,
            Some(chunk) => {
                let sooner = |c: &Chunk| (c.size, c.addr) < (chunk.size, chunk.addr);
                let preferred = self.heap.choices(bytes).take_while(sooner).count();
                preferred + usize::from(Some(chunk.addr) != pointer)
            }
        };
        let list = |set: BTreeSet<usize>| set.into_iter().collect();
        Wrong { call, distance, freed: list(freed), beside: list(beside) }
    }

    /// Some live request got more or less beyond its size than the log's refusal says: frees and requests in what
    /// requests got too much, and in the free memory after requests.
    fn explain_surplus(&self, w: &Witness, call: usize, distance: usize) -> Wrong {
        let (mut freed, mut beside) = (BTreeSet::new(), BTreeSet::new());
        for (request, chunk) in &self.live {
            if let Some((frees, after)) = self.surplus.get(request) {
                beside.insert(*request);
                freed.extend(frees);
                beside.extend(after);
            }
            let after = self.freed.get(&chunk.end()).map(|part| part.1);
            beside.extend(after.map(|free| w.undoes[free]));
        }
        let dead = |free: &usize| {
            let request = w.undoes[*free];
            self.surplus.contains_key(&request) && !self.live.contains_key(&request)
        };
        freed.extend((0..call).filter(|&free| w.undoes[free] != NONE).filter(dead));
        let list = |set: BTreeSet<usize>| set.into_iter().collect();
        Wrong { call, distance, freed: list(freed), beside: list(beside) }
    }
}
