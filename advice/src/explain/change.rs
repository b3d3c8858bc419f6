//! Traces with something otherwise: what a counterfactual replay is run on.

use poolsim_core::event::PoolInfo;
use poolsim_core::stack::StackId;
use poolsim_core::{Bytes, Event, EventKind, Nanos, PoolId, Slot, StreamId, Trace};
use std::collections::BTreeMap;

/// What is otherwise. Allocations are named by the events that ask for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The cache is emptied before each of these events.
    EmptyCache(Vec<u64>),
    /// These allocations come first.
    Earlier(Vec<u64>),
    /// These allocations come right after this event.
    Later(Vec<u64>, u64),
    /// These allocations are made in a pool of their own.
    Elsewhere(Vec<u64>),
    /// Before everything else, these sizes are asked for, held together, and freed.
    WarmUp(Vec<(Bytes, StreamId)>),
    /// Frees that wait for other streams are complete at once.
    CompleteFrees,
}

/// A trace with an edit, and where an event of the original went.
pub struct Edited {
    /// The trace.
    pub trace: Trace,
    /// The new index of the event that was followed.
    pub event: u64,
}

/// Makes the edit and follows one event. `None` where it cannot be made (the pools are used up).
pub fn edit(trace: &Trace, edit: &Edit, followed: u64) -> Option<Edited> {
    let mut writer = Writer::new(trace, followed);
    match edit {
        Edit::EmptyCache(before) => {
            writer.each(|writer, i, event| {
                if before.contains(&i) {
                    writer.push(bare(EventKind::EmptyCache, event.at), StackId::NONE);
                }
                writer.keep(i, event);
            });
        }
        Edit::CompleteFrees => writer.each(|writer, i, event| match event.kind() {
            EventKind::FreeDone => {}
            EventKind::FreeLater => writer.keep(i, with_kind(&event, EventKind::Free)),
            _ => writer.keep(i, event),
        }),
        Edit::WarmUp(sizes) => {
            writer.warm_up(sizes);
            writer.each(Writer::keep);
        }
        Edit::Earlier(births) => writer.moved(births, None, None),
        Edit::Later(births, after) => writer.moved(births, Some(*after), None),
        Edit::Elsewhere(births) => {
            let pool = u16::try_from(writer.out.header.pools.len().max(1)).ok()?;
            if pool > Event::MAX_POOL {
                return None;
            }
            writer.declare(pool);
            writer.moved(births, None, Some(PoolId(pool)));
        }
    }
    let event = writer.followed_at?;
    // The recorded heap fits as long as every slot is what it was.
    if matches!(edit, Edit::EmptyCache(_) | Edit::CompleteFrees) {
        writer.out.initial_heap.clone_from(&trace.initial_heap);
    }
    Some(Edited { trace: writer.out, event })
}

fn bare(kind: EventKind, at: Nanos) -> Event {
    Event::new(kind, at, Slot(0), 0, StreamId(0), PoolId::DEFAULT)
}

fn with_kind(event: &Event, kind: EventKind) -> Event {
    Event::new(kind, event.at, event.slot, event.size, event.stream, event.pool())
}

/// A trace under way.
struct Writer<'a> {
    from: &'a Trace,
    out: Trace,
    followed: u64,
    followed_at: Option<u64>,
    fresh: u32,
}

impl<'a> Writer<'a> {
    fn new(from: &'a Trace, followed: u64) -> Self {
        let out = Trace {
            header: from.header.clone(),
            stacks: from.stacks.clone(),
            annotations: from.annotations.clone(),
            events: Vec::with_capacity(from.events.len() + 64),
            ..Trace::default()
        };
        Writer { from, out, followed, followed_at: None, fresh: from.slot_count() }
    }

    fn each(&mut self, mut f: impl FnMut(&mut Self, u64, Event)) {
        for (i, event) in self.from.events.iter().enumerate() {
            f(self, i as u64, *event);
        }
    }

    fn push(&mut self, event: Event, stack: StackId) {
        self.out.events.push(event);
        if !self.from.event_stacks.is_empty() {
            self.out.event_stacks.push(stack);
        }
    }

    fn keep(&mut self, i: u64, event: Event) {
        if i == self.followed {
            self.followed_at = Some(self.out.events.len() as u64);
        }
        let stack = self.from.event_stacks.get(i as usize).copied().unwrap_or_default();
        self.push(event, stack);
    }

    fn declare(&mut self, pool: u16) {
        let pools = &mut self.out.header.pools;
        pools.resize_with(usize::from(pool), PoolInfo::default);
        let number = pools.iter().map(|p| p.id.1).max().unwrap_or(0) + 1;
        pools.push(PoolInfo { id: (0, number), ..PoolInfo::default() });
    }

    fn warm_up(&mut self, sizes: &[(Bytes, StreamId)]) {
        let at = self.from.events.first().map_or(0, |event| event.at);
        let first = self.fresh;
        for kind in [EventKind::Alloc, EventKind::Free] {
            for (slot, &(size, stream)) in (first..).zip(sizes) {
                self.push(
                    Event::new(kind, at, Slot(slot), size, stream, PoolId::DEFAULT),
                    StackId::NONE,
                );
            }
        }
    }

    /// Moves allocations to the start, or behind an event, or into a pool; all that happens to them goes with them. They get
    /// slots of their own, as theirs may be taken where they go.
    fn moved(&mut self, births: &[u64], after: Option<u64>, pool: Option<PoolId>) {
        let from = self.from;
        let mut moved: Vec<u64> = births.to_vec();
        moved.sort_unstable();
        moved.dedup();
        moved.retain(|&b| from.events.get(b as usize).is_some_and(|e| e.kind().makes_live()));
        let slots: BTreeMap<u64, Slot> =
            moved.iter().zip(self.fresh..).map(|(&birth, slot)| (birth, Slot(slot))).collect();
        let renamed = |event: &Event, slot: Slot, at: Nanos| {
            let pool = pool.unwrap_or(event.pool());
            Event::new(event.kind(), at, slot, event.size, event.stream, pool)
        };
        let emit = |writer: &mut Self, at: Nanos| {
            for (&birth, &slot) in &slots {
                writer.keep(birth, renamed(&from.events[birth as usize], slot, at));
            }
        };
        if after.is_none() && pool.is_none() {
            emit(self, from.events.first().map_or(0, |event| event.at));
        }
        // The new slot of what an old slot holds at present, if that was moved.
        let mut now: BTreeMap<Slot, Slot> = BTreeMap::new();
        for (i, event) in from.events.iter().enumerate() {
            let i = i as u64;
            if let Some(&slot) = slots.get(&i) {
                now.insert(event.slot, slot);
                if pool.is_some() {
                    self.keep(i, renamed(event, slot, event.at));
                }
            } else if event.kind().makes_live() || !is_about_a_slot(event.kind()) {
                self.keep(i, *event);
            } else {
                let slot = now.get(&event.slot).copied();
                let waits = after.is_some_and(|after| slot.is_some() && i <= after);
                if !waits {
                    self.keep(i, slot.map_or(*event, |slot| renamed(event, slot, event.at)));
                }
                if matches!(event.kind(), EventKind::Free | EventKind::FreeDone) {
                    now.remove(&event.slot);
                }
            }
            if after == Some(i) {
                emit(self, event.at);
            }
        }
    }
}

fn is_about_a_slot(kind: EventKind) -> bool {
    matches!(kind, EventKind::Free | EventKind::FreeLater | EventKind::FreeDone | EventKind::Use)
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolsim_core::TraceReader;
    use poolsim_sim::bound::Lifetimes;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn trace(choices: &[(u8, u16)]) -> Trace {
        let mut trace = Trace::default();
        let mut live: Vec<(Slot, u64)> = Vec::new();
        let mut free: Vec<u32> = (0..64).rev().collect();
        for (at, &(choice, size)) in (0u64..).zip(choices) {
            if choice % 2 == 0 && !free.is_empty() {
                let slot = Slot(free.pop().unwrap());
                let size = u64::from(size) + 1;
                let event =
                    Event::new(EventKind::Alloc, at, slot, size, StreamId(0), PoolId::DEFAULT);
                trace.events.push(event);
                live.push((slot, size));
            } else if !live.is_empty() {
                let (slot, size) = live.remove(usize::from(choice) % live.len());
                let event =
                    Event::new(EventKind::Free, at, slot, size, StreamId(0), PoolId::DEFAULT);
                trace.events.push(event);
                free.push(slot.0);
            }
        }
        trace
    }

    fn sizes(trace: Trace) -> Vec<u64> {
        let lifetimes = Lifetimes::read(&mut TraceReader::new(Arc::new(trace))).expect("legal");
        let mut sizes: Vec<u64> = lifetimes.items.iter().map(|item| item.size).collect();
        sizes.sort_unstable();
        sizes
    }

    proptest! {
        /// Whatever is moved, the trace stays legal, asks for the same sizes, and the followed event is found again.
        #[test]
        fn edits_keep_a_trace_legal(
            choices in prop::collection::vec((any::<u8>(), any::<u16>()), 1..80),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
            target in any::<prop::sample::Index>(),
        ) {
            let trace = trace(&choices);
            prop_assume!(!trace.events.is_empty());
            let n = trace.events.len();
            let births: Vec<u64> = picks.iter().map(|pick| pick.index(n) as u64).collect();
            let target = target.index(n) as u64;
            let held: Vec<u64> = births.iter().copied().filter(|&b| {
                let event = &trace.events[b as usize];
                let freed = trace.events[b as usize + 1..].iter().position(|e| e.slot == event.slot);
                b < target && freed.is_none_or(|f| b + 1 + f as u64 > target)
            }).collect();
            let edits = [
                Edit::EmptyCache(births.clone()), Edit::Earlier(births.clone()), Edit::Elsewhere(births),
                Edit::Later(held, target), Edit::CompleteFrees,
            ];
            for change in edits {
                let edited = edit(&trace, &change, target).expect("it can be made");
                let (now, then) = (edited.trace.events[edited.event as usize], trace.events[target as usize]);
                prop_assert_eq!((now.kind(), now.size), (then.kind(), then.size), "{:?}", change);
                prop_assert_eq!(sizes(edited.trace), sizes(trace.clone()), "{:?}", change);
            }
        }
    }
}
