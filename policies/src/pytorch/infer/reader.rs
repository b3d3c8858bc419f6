//! Reads all entries once, for the facts.

use super::super::config::Config;
use super::super::size::{SMALL_MAX, SMALL_SEGMENT, round_size};
use super::device;
use super::facts::{Broken, Facts, NO_SLOT, Region};
use super::lots::{Lots, NO_LOT, OUTSIDE};
use super::rewind::Start;
use super::shape::{Shape, group_at};
use poolsim_core::recording::{Action, Entry, Recording};
use poolsim_core::units::{Bytes, DevAddr, StreamId};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

#[derive(Clone, Copy)]
struct Live {
    slot: u32,
    lot: u32,
    size: Bytes,
    stream: StreamId,
    pending: bool,
}

struct Reader<'a> {
    facts: Facts<'a>,
    lots: Lots,
    live: FxHashMap<DevAddr, Live>,
    /// Live and pending blocks by lot.
    counts: Vec<u32>,
    idle: BTreeSet<u32>,
    unused: Vec<u32>,
    /// Slots freed by the present group and by the one before.
    freed: Vec<u32>,
    freed_before: Vec<u32>,
    reserved: Bytes,
}

impl<'a> Facts<'a> {
    /// Reads all entries once.
    pub fn of(rec: &'a Recording, config: &'a Config) -> Facts<'a> {
        let start = Start::of(rec, config);
        let device_total = device::total(rec, config);
        let lots = Lots::at_start(&start.ranges, device_total);
        let n = rec.entries.len();
        let facts = Facts {
            rec,
            config,
            start,
            lots: Vec::new(),
            slot: vec![NO_SLOT; n],
            lot: vec![NO_LOT; n],
            start_slots: Vec::new(),
            slot_count: 0,
            regions: Vec::new(),
            device_total,
            fraction: rec.header.memory_fraction,
            peak_reserved: 0,
            refuses: false,
            defers: false,
            broken: None,
        };
        let reserved = facts.start.ranges.iter().map(|r| r.size).sum();
        let mut reader = Reader {
            facts,
            lots,
            live: FxHashMap::default(),
            counts: Vec::new(),
            idle: BTreeSet::new(),
            unused: Vec::new(),
            freed: Vec::new(),
            freed_before: Vec::new(),
            reserved,
        };
        reader.seed();
        let mut at = 0;
        while at < n {
            at = reader.group(at);
        }
        reader.finish()
    }
}

impl<'a> Reader<'a> {
    fn seed(&mut self) {
        self.counts.resize(self.lots.list.len(), 0);
        for i in 0..self.facts.start.blocks.len() {
            let b = self.facts.start.blocks[i];
            let lot = self.lots.at(b.addr).unwrap_or(NO_LOT);
            if lot == NO_LOT {
                self.broken(0, format!("a block at {:#x} lies in no segment", b.addr));
            } else {
                self.counts[lot as usize] += 1;
                self.learn_class(lot, b.requested);
                self.place(lot, b.addr);
            }
            let slot = self.new_slot();
            self.facts.start_slots.push((slot, lot));
            let (size, stream, pending) = (b.requested, b.stream, b.pending);
            self.live.insert(b.addr, Live { slot, lot, size, stream, pending });
        }
        for (id, lot) in self.lots.list.iter().enumerate() {
            if !lot.expandable && self.counts[id] == 0 {
                self.idle.insert(id as u32);
            }
        }
    }

    fn new_slot(&mut self) -> u32 {
        self.unused.pop().unwrap_or_else(|| {
            self.facts.slot_count += 1;
            self.facts.slot_count - 1
        })
    }

    fn broken(&mut self, entry: usize, what: String) {
        if self.facts.broken.is_none() {
            self.facts.broken = Some(Broken { entry: entry as u32, what });
        }
    }

    /// Reads one group; returns where the next one starts.
    fn group(&mut self, at: usize) -> usize {
        let entries = &self.facts.rec.entries;
        let (shape, end) = group_at(entries, at);
        let releases = |e: &Entry| matches!(e.action, Action::SegmentFree | Action::SegmentUnmap);
        self.facts.defers |= shape == Shape::FreeLater;
        let mut region = None;
        for i in at..end {
            let e = self.facts.rec.entries[i];
            let made = matches!(
                e.action,
                Action::SegmentAlloc | Action::SegmentMap | Action::Alloc | Action::Oom
            );
            if made && region.is_some() {
                self.close_region(region.take(), i, true);
            }
            if region.is_none() && releases(&e) {
                // The completions before the first release are part of the region.
                region = Some((at, Vec::new()));
            }
            let lot = self.entry(i, &e, shape);
            if releases(&e)
                && let Some((_, released)) = &mut region
            {
                released.push(lot);
            }
        }
        let last = end - 1;
        let lot = self.facts.lot[last] as usize;
        let half = at == 0 && end > 1 && self.facts.rec.entries[1].action != Action::FreeCompleted;
        if region.is_none()
            && !half
            && self.facts.rec.entries[at].action == Action::FreeCompleted
            && self.facts.rec.entries[last].action == Action::Alloc
            && self.first_region_in(at).is_none()
            && let Some(lot) = self.lots.list.get_mut(lot)
        {
            lot.completes = true;
        }
        self.close_region(region, end, false);
        // A request's own wait may complete frees that stand before its other entries, even one that seems to be
        // complete at once; so slots are in use until the group after is over.
        self.unused.append(&mut self.freed_before);
        std::mem::swap(&mut self.freed, &mut self.freed_before);
        end
    }

    /// The region that was closed last, if it lies in the group from `at` on.
    fn first_region_in(&self, at: usize) -> Option<&Region> {
        self.facts.regions.last().filter(|r| r.begin as usize >= at)
    }

    fn close_region(&mut self, region: Option<(usize, Vec<u32>)>, end: usize, request: bool) {
        let Some((begin, released)) = region else { return };
        let idle = self.idle.iter().copied().collect();
        let (begin, end) = (begin as u32, end as u32);
        let index = self.facts.regions.len() as u32;
        self.facts.regions.push(Region { index, begin, end, request, released, idle });
    }

    fn entry(&mut self, i: usize, e: &Entry, shape: Shape) -> u32 {
        let lot = match e.action {
            Action::Alloc => self.alloc(i, e),
            Action::FreeRequested => self.free_requested(i, e),
            Action::FreeCompleted => self.free_completed(i, e, shape),
            Action::SegmentAlloc => match self.lots.alloc(e.addr, e.size, e.stream, i as u32) {
                Some(lot) => self.made(lot, true),
                None => self.no_lot(i, e, "something lies there already"),
            },
            Action::SegmentFree => match self.lots.free(e.addr, e.size, i as u32) {
                Some(lot) => self.gone(i, e, lot),
                None => self.no_lot(i, e, "no such segment is held"),
            },
            Action::SegmentMap => {
                let lot = self.lots.map(e.addr, e.size, e.stream, i as u32);
                self.made(lot, false)
            }
            Action::SegmentUnmap => match self.lots.unmap(e.addr, e.size, i as u32) {
                Some(lot) => lot,
                None => self.no_lot(i, e, "the range is not mapped"),
            },
            Action::Oom | Action::Snapshot => NO_LOT,
        };
        match e.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                self.reserved = self.reserved.saturating_add(e.size)
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                self.reserved = self.reserved.saturating_sub(e.size);
            }
            Action::Oom => self.facts.refuses = true,
            _ => {}
        }
        self.facts.peak_reserved = self.facts.peak_reserved.max(self.reserved);
        self.facts.lot[i] = lot;
        lot
    }

    fn no_lot(&mut self, i: usize, e: &Entry, why: &str) -> u32 {
        self.broken(i, format!("{} at {:#x}: {why}", e.action.name(), e.addr));
        NO_LOT
    }

    fn made(&mut self, lot: u32, whole: bool) -> u32 {
        if lot as usize == self.counts.len() {
            self.counts.push(0);
            if whole {
                self.idle.insert(lot);
            }
        }
        lot
    }

    fn gone(&mut self, i: usize, e: &Entry, lot: u32) -> u32 {
        if !self.idle.remove(&lot) {
            self.broken(i, format!("segment_free at {:#x}: blocks in it are in use", e.addr));
        }
        lot
    }

    fn count(&mut self, lot: u32, up: bool) {
        let Some(count) = self.counts.get_mut(lot as usize) else { return };
        *count = if up { *count + 1 } else { count.saturating_sub(1) };
        if self.lots.list[lot as usize].expandable {
            return;
        }
        match (up, *count) {
            (true, 1) => drop(self.idle.remove(&lot)),
            (false, 0) => drop(self.idle.insert(lot)),
            _ => {}
        }
    }

    /// Notes where in its lot a block lies.
    fn place(&mut self, lot: u32, addr: DevAddr) {
        let alone = self.counts[lot as usize] == 1;
        let lot = &mut self.lots.list[lot as usize];
        let page = match lot.small {
            Some(true) => SMALL_SEGMENT,
            _ => self.facts.config.large_segment_size,
        };
        lot.whole &= match lot.expandable {
            true => (addr - lot.base).is_multiple_of(page),
            false => alone && addr == lot.base,
        };
    }

    fn learn_class(&mut self, lot: u32, requested: Bytes) {
        let small = round_size(self.facts.config, requested) <= SMALL_MAX;
        self.lots.list[lot as usize].small.get_or_insert(small);
    }

    fn alloc(&mut self, i: usize, e: &Entry) -> u32 {
        let slot = self.new_slot();
        self.facts.slot[i] = slot;
        let lot = self.lots.at(e.addr).unwrap_or(NO_LOT);
        if lot == NO_LOT {
            self.no_lot(i, e, "the address lies in no segment");
        } else {
            let l = &mut self.lots.list[lot as usize];
            l.first_alloc = l.first_alloc.min(i as u32);
            l.last_alloc = i as u32;
            if let Some(&pool) = self.facts.rec.entry_pools.get(i) {
                l.known = Some(pool);
            }
            if l.small.is_none() {
                self.learn_class(lot, e.size);
            }
            self.count(lot, true);
            self.place(lot, e.addr);
        }
        let live = Live { slot, lot, size: e.size, stream: e.stream, pending: false };
        if let Some(old) = self.live.insert(e.addr, live) {
            self.broken(i, format!("alloc at {:#x}: the block there is in use", e.addr));
            self.unused.push(old.slot);
            self.count(old.lot, false);
        }
        lot
    }

    fn free_requested(&mut self, i: usize, e: &Entry) -> u32 {
        let Some(live) = self.live.get_mut(&e.addr) else {
            return self.no_lot(i, e, "no block is in use there");
        };
        if live.pending {
            return self.no_lot(i, e, "the block was freed before");
        }
        live.pending = true;
        self.facts.slot[i] = live.slot;
        let live = *live;
        self.check_block(i, e, &live);
        live.lot
    }

    fn check_block(&mut self, i: usize, e: &Entry, live: &Live) {
        if (e.size, e.stream) != (live.size, live.stream) {
            let what = "its size or stream is not that of the block";
            self.broken(i, format!("{} at {:#x}: {what}", e.action.name(), e.addr));
        }
    }

    fn free_completed(&mut self, i: usize, e: &Entry, shape: Shape) -> u32 {
        let Some(live) = self.live.remove(&e.addr) else {
            return self.no_lot(i, e, "no block is in use there");
        };
        if !live.pending && shape != Shape::Free {
            let what = "the recording lacks the free_requested before it";
            self.broken(i, format!("free_completed at {:#x}: {what}", e.addr));
        }
        self.check_block(i, e, &live);
        self.facts.slot[i] = live.slot;
        self.freed.push(live.slot);
        self.count(live.lot, false);
        live.lot
    }

    /// Takes over what the final heap knows of the lots that it still holds.
    fn finish(mut self) -> Facts<'a> {
        for (range, _) in &self.facts.rec.heap.ranges {
            if let Some(id) = self.lots.at(range.addr) {
                let lot = &mut self.lots.list[id as usize];
                lot.known = Some(range.pool);
                lot.small = Some(range.small);
            }
        }
        for lot in &mut self.lots.list {
            // Pages that nobody ever asked for: large pages come in larger pieces.
            lot.small
                .get_or_insert((lot.end - lot.base) % self.facts.config.large_segment_size != 0);
            debug_assert!(lot.died == OUTSIDE || lot.at_start() || lot.died >= lot.born);
        }
        self.facts.lots = self.lots.list;
        self.facts
    }
}
