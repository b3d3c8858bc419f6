//! From a finished run to a trace that any policy can replay.

use super::UNKNOWN_DEVICE_TOTAL;
use super::facts::Facts;
use super::run::Run;
use super::start;
use poolsim_core::event::{Event, PoolFlags, PoolInfo, TraceHeader};
use poolsim_core::recording::DriverAnswer;
use poolsim_core::trace::Trace;
use poolsim_core::units::PoolId;
use std::collections::BTreeSet;

/// Moves a run's events into a trace, with pools numbered densely.
pub(super) fn trace(run: Run, notes: &[String]) -> (Trace, Vec<DriverAnswer>) {
    let facts = run.facts;
    let mut image = start::image(facts, &run.labels, &run.choices);
    let mut used: BTreeSet<PoolId> = run.events.iter().map(Event::pool).collect();
    used.extend(&run.labels.pool);
    used.insert(PoolId::DEFAULT);
    let number = |p: PoolId| PoolId(used.range(..p).count() as u16);
    let numbers: Vec<PoolId> =
        (0..=used.last().map_or(0, |p| p.0)).map(|p| number(PoolId(p))).collect();
    let mut events = run.events;
    for e in &mut events {
        if e.pool().is_private() {
            let pool = numbers[e.pool().index()];
            *e = Event::new(e.kind(), e.at, e.slot, e.size, e.stream, pool);
        }
    }
    for (r, _) in image.iter_mut().flat_map(|i| &mut i.ranges) {
        r.pool = numbers[r.pool.index()];
    }
    let pools = infos(facts, &used, |p| {
        let flags = run.labels.flags.get(p.index()).copied().unwrap_or_default();
        (flags, run.labels.known_as.get(p.index()).copied().flatten())
    });
    let header = header(facts, &events, pools, notes);
    let stacked = facts.rec.entries.iter().any(|e| e.stack != Default::default());
    let trace = Trace {
        header,
        events,
        event_stacks: if stacked { run.stacks } else { Vec::new() },
        stacks: facts.rec.stacks.clone(),
        annotations: facts.rec.annotations.clone(),
        initial_heap: image,
    };
    (trace, run.answers)
}

/// The pools of the header: those of the final heap by their own ids, inferred ones by ids that are not taken.
fn infos(
    facts: &Facts,
    used: &BTreeSet<PoolId>,
    about: impl Fn(PoolId) -> (PoolFlags, Option<PoolId>),
) -> Vec<PoolInfo> {
    let known = &facts.rec.header.pools;
    let mut fresh = known.iter().map(|p| p.id.1).max().unwrap_or(0);
    used.iter()
        .map(|&p| {
            let (flags, origin) = about(p);
            let told = origin.and_then(|o| known.get(o.index()));
            let id = match told {
                Some(info) => info.id,
                None if p == PoolId::DEFAULT => (0, 0),
                None => {
                    fresh += 1;
                    (0, fresh)
                }
            };
            let flags = if p.is_private() { flags } else { PoolFlags::default() };
            PoolInfo { id, flags }
        })
        .collect()
}

/// The recording's header, with what the events add.
pub(super) fn header(
    facts: &Facts,
    events: &[Event],
    pools: Vec<PoolInfo>,
    notes: &[String],
) -> TraceHeader {
    let mut header = facts.rec.header.clone();
    header.pools = pools;
    // An inferred fraction is one of the memory that was assumed.
    let assumed = facts.fraction != facts.rec.header.memory_fraction;
    header.device_memory = facts.device_total.or(assumed.then_some(UNKNOWN_DEVICE_TOTAL));
    header.memory_fraction = facts.fraction;
    header.knows.from_start &= facts.start.is_empty();
    header.knows.pools = true;
    header.events = Some(events.len() as u64);
    header.slots = Some(events.iter().map(|e| e.slot.0 + 1).max().unwrap_or(0));
    header.notes.extend(notes.iter().cloned());
    header
}
