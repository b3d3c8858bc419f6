//! The search for a witness.
//!
//! It starts from the reading in which a free undoes, of the live requests of its size, the one whose memory is used again
//! soonest. At the first request that then gets another answer than the logged one, the frees that have to do with it are
//! given other meanings, the most promising first, until the rules follow the log further; and so on to its end.

use super::witness::{NONE, State, Witness, Wrong};
use super::{Call, Log, naive::rounded};
use poolsim_core::{Bytes, DevAddr};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Other meanings of frees: the free, the request that it undoes, whether it is late.
type Change = Vec<(usize, usize, bool)>;

/// How many readings are tried to get past one request.
const TRIES: usize = 20_000;

/// What a change more costs in the search, in calls that the log is followed further.
const PER_CHANGE: i64 = 100;

/// What a change costs that leaves the wrong request as wrong as it was.
const WITHOUT_EFFECT: i64 = 200;

/// States are kept every so many calls.
const EVERY: usize = 64;

pub struct Search<'a> {
    log: &'a Log,
    /// For each request, the next one whose memory overlaps.
    reuse: Vec<usize>,
    /// Requests and frees by size.
    requests: BTreeMap<Bytes, Vec<usize>>,
    frees: BTreeMap<Bytes, Vec<usize>>,
    best: Witness,
    states: Vec<State>,
}

/// A witness under which the rules give every answer of the log, or the first request at which none was found.
pub fn search(log: &Log, limit: Bytes) -> Result<Witness, usize> {
    let (mut requests, mut frees) = (BTreeMap::new(), BTreeMap::new());
    for (i, call) in log.calls.iter().enumerate() {
        match *call {
            Call::Alloc { pointer: None, .. } => {}
            Call::Alloc { bytes, .. } => requests.entry(bytes).or_insert_with(Vec::new).push(i),
            Call::Free { bytes } => frees.entry(bytes).or_insert_with(Vec::new).push(i),
        }
    }
    let reuse = first_reuse(&log.calls);
    let best =
        Witness { undoes: soonest_reused(&log.calls, &reuse), late: vec![false; log.calls.len()] };
    let states = vec![State::new(limit)];
    let mut search = Search { log, reuse, requests, frees, best, states };
    let mut wrong = search.settle(0);
    while let Some(now) = wrong {
        let change = search.mend(&now).ok_or(now.call)?;
        let from = change.iter().map(|c| c.0).min().expect("a change");
        apply(&change, &mut search.best);
        wrong = search.settle(from);
    }
    Ok(search.best)
}

fn apply(change: &Change, w: &mut Witness) {
    for &(free, request, late) in change {
        (w.undoes[free], w.late[free]) = (request, late);
    }
}

impl Search<'_> {
    /// Keeps the states that the best witness leads to; it has changed from a call on.
    fn settle(&mut self, from: usize) -> Option<Wrong> {
        self.states.truncate(from / EVERY + 1);
        let start = (self.states.len() - 1) * EVERY;
        let mut state = self.states.last().expect("the first state").clone();
        for call in start..self.log.calls.len() {
            if call.is_multiple_of(EVERY) && call > start {
                self.states.push(state.clone());
            }
            if let Err(wrong) = state.step(self.log, &self.best, call) {
                return Some(wrong);
            }
        }
        None
    }

    /// The first thing wrong with a witness that equals the best one before `from`.
    fn reach(&self, w: &Witness, from: usize) -> Option<Wrong> {
        let kept = (from / EVERY).min(self.states.len() - 1);
        let mut state = self.states[kept].clone();
        (kept * EVERY..self.log.calls.len()).find_map(|call| state.step(self.log, w, call).err())
    }

    /// A change of the best witness that leads further than `wrong`.
    fn mend(&self, wrong: &Wrong) -> Option<Change> {
        let promise = |w: &Wrong, changes: i64| {
            w.call as i64 - PER_CHANGE * changes - w.distance.min(50) as i64
        };
        let (mut open, mut seen) = (BinaryHeap::new(), BTreeSet::new());
        let mut nodes: Vec<(Change, Wrong, i64)> = vec![(Change::new(), wrong.clone(), 0)];
        open.push((promise(wrong, 0), Reverse(0)));
        let mut tried = 0;
        while let Some((_, Reverse(node))) = open.pop() {
            let (base, at, depth) = nodes[node].clone();
            let mut w = self.best.clone();
            apply(&base, &mut w);
            let mut further: Option<(usize, Change)> = None;
            for change in self.changes(&w, &at, wrong.call).into_iter().rev() {
                let all = joined(&base, &change);
                let early = all.iter().copied().filter(|c| c.0 < wrong.call).collect::<Change>();
                if !seen.insert(early) {
                    continue;
                }
                tried += 1;
                let mut changed = w.clone();
                apply(&change, &mut changed);
                let from = all.iter().map(|c| c.0).min().expect("a change");
                match self.reach(&changed, from) {
                    None => return Some(all),
                    Some(at) if at.call > wrong.call => {
                        if further.as_ref().is_none_or(|f| at.call > f.0) {
                            further = Some((at.call, all));
                        }
                    }
                    Some(next) => {
                        let idle = next.call == at.call && next.distance >= at.distance;
                        let promise = promise(&next, depth + 1) - WITHOUT_EFFECT * i64::from(idle);
                        open.push((promise, Reverse(nodes.len())));
                        nodes.push((all, next, depth + 1));
                    }
                }
            }
            if let Some((_, change)) = further {
                return Some(change);
            }
            if tried > TRIES {
                return None;
            }
        }
        None
    }

    /// Changes that could mend a request: frees that mean another request, or come later.
    fn changes(&self, w: &Witness, wrong: &Wrong, target: usize) -> Vec<Change> {
        let mut undone = vec![NONE; w.undoes.len()];
        for (free, &request) in w.undoes.iter().enumerate().filter(|(_, r)| **r != NONE) {
            undone[request] = free;
        }
        let until = target.max(wrong.call);
        let mut all = Vec::new();
        for &free in &wrong.freed {
            let Call::Free { bytes } = self.log.calls[free] else { continue };
            for &other in &self.requests[&bytes] {
                if other < free && undone[other] > free {
                    all.extend(self.pin(w, free, other, until));
                }
            }
            let between = &self.log.calls[free..=wrong.call];
            let requests = between.iter().filter(|c| matches!(c, Call::Alloc { .. })).count();
            if w.late[free] || requests == 1 {
                all.push(vec![(free, w.undoes[free], !w.late[free])]);
            }
        }
        for &request in &wrong.beside {
            let (Call::Alloc { bytes, .. }, now) = (self.log.calls[request], undone[request])
            else {
                continue;
            };
            for &free in self.frees.get(&bytes).into_iter().flatten() {
                if free > request && free < wrong.call && free < now {
                    all.extend(self.pin(w, free, request, until));
                }
            }
            if now != NONE && w.late[now] {
                all.push(vec![(now, request, false)]);
            }
        }
        all
    }

    /// `free` means `request`; other frees of the size stay as they are up to `until` where they can, and later ones mean
    /// what is used again soonest. `None` if something would be used again before it is freed.
    fn pin(&self, w: &Witness, free: usize, request: usize, until: usize) -> Option<Change> {
        let Call::Free { bytes } = self.log.calls[free] else { return None };
        let mut live: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut next = self.requests[&bytes].iter().copied().peekable();
        let mut change = Change::new();
        for &f in &self.frees[&bytes] {
            while let Some(r) = next.next_if(|&r| r < f) {
                live.insert((self.reuse[r], r));
            }
            let old = w.undoes[f];
            let means = match f.cmp(&free) {
                std::cmp::Ordering::Less => old,
                std::cmp::Ordering::Equal => request,
                std::cmp::Ordering::Greater
                    if f <= until && live.contains(&(self.reuse[old], old)) =>
                {
                    old
                }
                _ => live.first()?.1,
            };
            if !live.remove(&(self.reuse[means], means)) {
                return None;
            }
            let overdue = live.first().is_some_and(|&(reuse, _)| reuse < f);
            if f > free && (self.reuse[means] < f || overdue) {
                return None;
            }
            if means != old {
                change.push((f, means, false));
            }
        }
        (!change.is_empty()).then_some(change)
    }
}

/// A change and a later one as one, in order.
fn joined(first: &Change, then: &Change) -> Change {
    let mut all: BTreeMap<usize, (usize, bool)> = BTreeMap::new();
    for &(free, request, late) in first.iter().chain(then) {
        all.insert(free, (request, late));
    }
    all.into_iter().map(|(free, (request, late))| (free, request, late)).collect()
}

/// For each free, of the live requests of its size the one whose memory is used again first.
fn soonest_reused(calls: &[Call], reuse: &[usize]) -> Vec<usize> {
    let mut live: BTreeMap<Bytes, BTreeSet<(usize, usize)>> = BTreeMap::new();
    let mut undoes = vec![NONE; calls.len()];
    for (i, call) in calls.iter().enumerate() {
        match *call {
            Call::Alloc { pointer: None, .. } => {}
            Call::Alloc { bytes, .. } => {
                live.entry(bytes).or_default().insert((reuse[i], i));
            }
            Call::Free { bytes } => {
                let first = live.get_mut(&bytes).and_then(BTreeSet::pop_first);
                undoes[i] = first.unwrap_or_else(|| panic!("call {i} frees nothing live")).1;
            }
        }
    }
    undoes
}

/// For each request, the next one whose memory overlaps; `usize::MAX` if none does.
fn first_reuse(calls: &[Call]) -> Vec<usize> {
    let mut reuse = vec![usize::MAX; calls.len()];
    // Requests whose memory was not used again yet, by address: they do not overlap.
    let mut open: BTreeMap<DevAddr, (DevAddr, usize)> = BTreeMap::new();
    for (i, call) in calls.iter().enumerate() {
        let Call::Alloc { bytes, pointer: Some(at) } = *call else { continue };
        let end = at + rounded(bytes);
        let overlaps = open.range(..end).rev().take_while(|(_, before)| before.0 > at);
        for start in overlaps.map(|(&start, _)| start).collect::<Vec<_>>() {
            let (_, before) = open.remove(&start).expect("just seen");
            reuse[before] = i;
        }
        open.insert(at, (end, i));
    }
    reuse
}
