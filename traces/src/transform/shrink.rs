//! The smallest trace that still shows something, by delta debugging.

use super::flow::{Renamer, derived, with_slot};
use poolsim_core::stack::{StackId, StackTable};
use poolsim_core::{Event, EventKind, PoolId, Slot, Trace};
use rustc_hash::FxHashMap;

/// What [`shrink`] found.
#[derive(Debug)]
pub struct Shrunk {
    /// The trace, which has the property.
    pub trace: Trace,
    /// How often the property was asked for.
    pub tests: u64,
    /// Whether nothing more can be left out; false if `most_tests` ran out first.
    pub minimal: bool,
}

/// Finds a small trace with a property that `trace` has: first the shortest beginning, then without every allocation (with
/// its uses and frees) and every other event that the property can do without, larger groups before smaller ones,
/// then single ones until none can go; last without times, if they do not matter.
///
/// `holds` must give the same answer for the same trace; then the result is always the same. `Ok(None)` if `trace` does
/// not have the property to begin with.
///
/// # Errors
/// Those of `holds`.
pub fn shrink<E>(
    trace: &Trace,
    most_tests: u64,
    holds: &mut dyn FnMut(&Trace) -> Result<bool, E>,
) -> Result<Option<Shrunk>, E> {
    let mut search = Search { trace, most_tests, tests: 0, holds, units: Vec::new() };
    search.units = units(&trace.events);
    let all: Vec<u32> = (0..search.units.len() as u32).collect();
    if !search.test(&all, trace.events.len())? {
        return Ok(None);
    }
    let end = search.shortest_beginning(&all)?;
    let kept = all.into_iter().filter(|&u| (search.units[u as usize][0] as usize) < end).collect();
    let (kept, minimal) = search.without_units(kept, end)?;
    let mut small = search.build(&kept, end);
    let mut timeless = small.clone();
    timeless.events.iter_mut().for_each(|event| event.at = 0);
    timeless.header.knows.times = false;
    if small.header.knows.times && search.ask(&timeless)? {
        small = timeless;
    }
    Ok(Some(Shrunk { trace: small, tests: search.tests, minimal }))
}

struct Search<'a, E> {
    trace: &'a Trace,
    most_tests: u64,
    tests: u64,
    holds: &'a mut dyn FnMut(&Trace) -> Result<bool, E>,
    /// Events that only make sense together, by their places, in order of their first.
    units: Vec<Vec<u32>>,
}

impl<E> Search<'_, E> {
    fn ask(&mut self, trace: &Trace) -> Result<bool, E> {
        self.tests += 1;
        (self.holds)(trace)
    }

    fn test(&mut self, units: &[u32], end: usize) -> Result<bool, E> {
        let trace = self.build(units, end);
        self.ask(&trace)
    }

    fn spent(&self) -> bool {
        self.tests >= self.most_tests
    }

    /// The number of events after which the property holds for the first time, if it then goes on to hold; found by
    /// halving, so of several such places one.
    fn shortest_beginning(&mut self, units: &[u32]) -> Result<usize, E> {
        let (mut low, mut high) = (0, self.trace.events.len());
        while low + 1 < high && !self.spent() {
            let middle = low + (high - low) / 2;
            match self.test(units, middle)? {
                true => high = middle,
                false => low = middle,
            }
        }
        Ok(high)
    }

    /// Leaves out groups of units, halving their size; the last round, of single ones, is repeated until none goes.
    fn without_units(&mut self, mut kept: Vec<u32>, end: usize) -> Result<(Vec<u32>, bool), E> {
        let mut group = kept.len().div_ceil(2).max(1);
        loop {
            let before = kept.len();
            let mut at = 0;
            while at < kept.len() {
                if self.spent() {
                    return Ok((kept, false));
                }
                let until = (at + group).min(kept.len());
                let fewer: Vec<u32> = [&kept[..at], &kept[until..]].concat();
                match self.test(&fewer, end)? {
                    true => kept = fewer,
                    false => at = until,
                }
            }
            match group {
                1 if kept.len() == before => return Ok((kept, true)),
                1 => {}
                _ => group = group.div_ceil(2),
            }
        }
    }

    /// The trace of these units up to an event. Only what the events need goes along.
    fn build(&self, units: &[u32], end: usize) -> Trace {
        let mut places: Vec<u32> =
            units.iter().flat_map(|&u| &self.units[u as usize]).copied().collect();
        places.retain(|&place| (place as usize) < end);
        places.sort_unstable();
        let mut header = derived(&self.trace.header);
        header.knows.from_start = true;
        let mut small = Trace { header, ..Trace::default() };
        let mut renamer = Renamer::default();
        let mut stacks = Stacks { from: &self.trace.stacks, frames: FxHashMap::default() };
        for place in places {
            let place = place as usize;
            let event = self.trace.events[place];
            let Some(slot) = renamer.slot(0, &event) else { continue };
            small.header.knows.from_start &= event.kind() != EventKind::Preexisting;
            small.events.push(with_slot(event, slot));
            if let Some(&stack) = self.trace.event_stacks.get(place) {
                small.event_stacks.push(stacks.copy(stack, &mut small.stacks));
            }
        }
        small
    }
}

/// Copies stacks into another table.
struct Stacks<'a> {
    from: &'a StackTable,
    frames: FxHashMap<u32, u32>,
}

impl Stacks<'_> {
    fn copy(&mut self, stack: StackId, into: &mut StackTable) -> StackId {
        let numbers: Vec<u32> = self
            .from
            .frame_numbers(stack)
            .iter()
            .map(|&n| {
                let frame = || into.intern_frame(self.from.frames()[n as usize].clone());
                *self.frames.entry(n).or_insert_with(frame)
            })
            .collect();
        into.intern_stack(&numbers)
    }
}

/// An allocation with its uses and frees; the opening and the closing of a pool; any other event alone.
fn units(events: &[Event]) -> Vec<Vec<u32>> {
    use EventKind::*;
    let mut units: Vec<Vec<u32>> = Vec::new();
    let mut live: FxHashMap<Slot, usize> = FxHashMap::default();
    let mut open: Vec<(PoolId, usize)> = Vec::new();
    for (place, event) in events.iter().enumerate() {
        let own = match event.kind() {
            Alloc | Preexisting => {
                live.insert(event.slot, units.len());
                None
            }
            Use | FreeLater => live.get(&event.slot).copied(),
            Free | FreeDone => live.remove(&event.slot),
            PoolOpen => {
                open.push((event.pool(), units.len()));
                None
            }
            PoolClose => {
                let last = open.iter().rposition(|(pool, _)| *pool == event.pool());
                last.map(|n| open.remove(n).1)
            }
            _ => None,
        };
        match own {
            Some(unit) => units[unit].push(place as u32),
            None => units.push(vec![place as u32]),
        }
    }
    units
}
