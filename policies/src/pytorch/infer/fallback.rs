//! The best trace that can be told without simulating, for recordings that the allocator's rules do not explain.
//!
//! Requests and frees in their order, releases of memory as `empty_cache` where no request follows or no limit is known.

use super::facts::{Facts, NO_SLOT};
use super::shape::{Shape, group_at};
use super::{Inferred, Unexplained, emit};
use poolsim_core::event::{Event, EventKind, PoolInfo};
use poolsim_core::recording::Action;
use poolsim_core::stack::StackId;
use poolsim_core::trace::Trace;
use poolsim_core::units::{PoolId, Slot, StreamId};

struct Writer<'a, 'b> {
    facts: &'b Facts<'a>,
    events: Vec<Event>,
    stacks: Vec<StackId>,
    /// Whether a slot holds a block, and whether that was freed already.
    live: Vec<Option<bool>>,
}

/// Tells the requests of a recording that could not be explained.
pub(super) fn infer(facts: &Facts, notes: Vec<String>, unexplained: Unexplained) -> Inferred {
    let slots = facts.slot_count as usize + 1;
    let mut w = Writer { facts, events: Vec::new(), stacks: Vec::new(), live: vec![None; slots] };
    w.start();
    let entries = &facts.rec.entries;
    let mut at = 0;
    while at < entries.len() {
        let (shape, end) = group_at(entries, at);
        w.group(at, end, shape);
        at = end;
    }
    let pools = match facts.rec.header.pools.as_slice() {
        [] => vec![PoolInfo::default()],
        pools => pools.to_vec(),
    };
    let mut notes = notes;
    notes.push(format!(
        "the recording could not be explained from entry {} on ({}); requests are replayed in order, and hidden inputs are left out",
        unexplained.entry, unexplained.what
    ));
    let mut header = emit::header(facts, &w.events, pools, &notes);
    header.knows.pools = false;
    let stacked = entries.iter().any(|e| e.stack != StackId::NONE);
    let trace = Trace {
        header,
        events: w.events,
        event_stacks: if stacked { w.stacks } else { Vec::new() },
        stacks: facts.rec.stacks.clone(),
        annotations: facts.rec.annotations.clone(),
        initial_heap: None,
    };
    Inferred { trace, answers: Vec::new(), notes, unexplained: Some(unexplained) }
}

impl Writer<'_, '_> {
    fn start(&mut self) {
        let at = self.facts.rec.entries.first().map_or(0, |e| e.at);
        for (b, &(slot, lot)) in self.facts.start.blocks.iter().zip(&self.facts.start_slots) {
            if b.requested == 0 {
                continue;
            }
            let pool = self.pool(lot);
            let kind = EventKind::Preexisting;
            self.events.push(Event::new(kind, at, Slot(slot), b.requested, b.stream, pool));
            self.live[slot as usize] = Some(false);
            if b.pending {
                let kind = EventKind::FreeLater;
                self.events.push(Event::new(kind, at, Slot(slot), b.requested, b.stream, pool));
                self.live[slot as usize] = Some(true);
            }
        }
        self.stacks = vec![StackId::NONE; self.events.len()];
    }

    fn pool(&self, lot: u32) -> PoolId {
        self.facts.lots.get(lot as usize).and_then(|l| l.known).unwrap_or_default()
    }

    fn emit(&mut self, kind: EventKind, entry: usize, slot: u32) {
        let e = &self.facts.rec.entries[entry];
        let pool = self.pool(self.facts.lot[entry]);
        let (size, stream) = match kind {
            EventKind::EmptyCache => (0, StreamId::default()),
            _ => (e.size, e.stream),
        };
        let at = self.events.last().map_or(e.at, |last| last.at.max(e.at));
        self.events.push(Event::new(kind, at, Slot(slot), size, stream, pool));
        self.stacks.push(e.stack);
    }

    fn group(&mut self, at: usize, end: usize, shape: Shape) {
        let entries = &self.facts.rec.entries;
        match shape {
            Shape::Free => return self.free(at, EventKind::Free),
            Shape::FreeLater => return self.free(at, EventKind::FreeLater),
            Shape::Request | Shape::Loose | Shape::Nothing => {}
        }
        let free = |i: &usize| entries[*i].action == Action::SegmentFree;
        let releases = (at..end).find(|i| free(i) || entries[*i].action == Action::SegmentUnmap);
        for i in (at..end).filter(|&i| entries[i].action == Action::FreeCompleted) {
            self.complete(i);
        }
        let unlimited = self.facts.fraction.is_none_or(|f| f >= 1.0);
        if let Some(i) = releases.filter(|_| shape == Shape::Loose || unlimited) {
            self.emit(EventKind::EmptyCache, i, 0);
        }
        if shape == Shape::Request && entries[end - 1].size > 0 {
            self.request(end - 1);
        }
    }

    fn request(&mut self, i: usize) {
        if self.facts.rec.entries[i].action == Action::Oom {
            return self.emit(EventKind::AllocRefused, i, self.facts.slot_count);
        }
        let slot = self.facts.slot[i];
        // In a recording that contradicts itself the slot's last block may not have been freed.
        match self.live[slot as usize].replace(false) {
            Some(false) => self.emit(EventKind::Free, i, slot),
            Some(true) => self.emit(EventKind::FreeDone, i, slot),
            None => {}
        }
        self.emit(EventKind::Alloc, i, slot);
    }

    fn free(&mut self, i: usize, kind: EventKind) {
        let slot = self.facts.slot[i];
        if slot != NO_SLOT && self.live[slot as usize] == Some(false) {
            self.live[slot as usize] = (kind == EventKind::FreeLater).then_some(true);
            self.emit(kind, i, slot);
        }
    }

    fn complete(&mut self, i: usize) {
        let slot = self.facts.slot[i];
        let Some(pending) = self.live.get(slot as usize).copied().flatten() else { return };
        // A completion without its request, as post-processed files have them, is the whole free.
        let kind = if pending { EventKind::FreeDone } else { EventKind::Free };
        self.live[slot as usize] = None;
        self.emit(kind, i, slot);
    }
}
