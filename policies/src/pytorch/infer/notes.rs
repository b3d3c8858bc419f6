//! What people should know of how a trace came about.

use super::facts::Facts;
use super::groups::Conflict;
use super::search::Search;
use super::{UNKNOWN_DEVICE_TOTAL, Unexplained, limit};
use poolsim_core::event::EventKind;
use poolsim_core::recording::DriverAnswer;
use poolsim_core::units::{PoolId, ShowBytes};
use std::collections::BTreeSet;

/// What was inferred along the way.
pub(super) fn on_search(search: &Search) -> Vec<String> {
    let count = |kind| search.run.events.iter().filter(|e| e.kind() == kind).count();
    let mut notes = Vec::new();
    let empty = count(EventKind::EmptyCache);
    if empty > 0 {
        notes.push(format!("{empty} calls of empty_cache were inferred from what was given back"));
    }
    let known = &search.run.labels.known_as;
    let inferred = |p: &PoolId| p.is_private() && known.get(p.index()).is_none_or(Option::is_none);
    let private: BTreeSet<PoolId> =
        search.run.events.iter().map(|e| e.pool()).filter(inferred).collect();
    if !private.is_empty() {
        notes.push(format!(
            "{} private pools that the final heap does not name were inferred",
            private.len()
        ));
    }
    notes.extend(limit_note(search.facts));
    let lent: Vec<_> = search.run.choices.lent.iter().collect();
    if !lent.is_empty() {
        notes.push(format!(
            "{} requests to the default pool were served from a pool that lends its blocks on OOM (use_on_oom)",
            lent.len()
        ));
    }
    let failed =
        search.run.answers.iter().filter(|a| matches!(a, DriverAnswer::OutOfMemory)).count();
    if failed > 0 {
        notes.push(format!("the driver refused {failed} calls for memory"));
    }
    notes
}

/// A limit that was inferred, or that would explain refusals that the driver is blamed for.
fn limit_note(facts: &Facts) -> Option<String> {
    if facts.rec.header.memory_fraction.is_some() {
        return None;
    }
    let bracket = limit::bracket(facts)?;
    let total = facts.device_total.unwrap_or(UNKNOWN_DEVICE_TOTAL);
    let (low, high) = (ShowBytes(bracket.at_least), ShowBytes(bracket.below));
    Some(match facts.fraction {
        Some(f) => format!(
            "a memory limit of {} was inferred from what was refused although the device had room (between {low} and {high}): --memory-fraction {f}",
            ShowBytes((f * total as f64) as u64)
        ),
        None => {
            let f = limit::fractions(bracket, total).first().copied()?;
            format!(
                "requests were refused although the device had room: a memory limit between {low} and {high} was in force, for example --memory-fraction {f} of {}",
                ShowBytes(total)
            )
        }
    })
}

/// What was rebuilt of the heap before the first entry.
pub(super) fn on_start(facts: &Facts) -> Vec<String> {
    let start = &facts.start;
    let mut notes = Vec::new();
    if let Some(total) = facts.device_total.filter(|_| facts.rec.header.device_memory.is_none()) {
        notes.push(format!(
            "the device's memory is not recorded; {total} bytes were inferred from the distance of expandable reservations"
        ));
    }
    if start.contradictions > 0 {
        notes.push(format!("{} entries or blocks do not fit the final heap: it was not written at the end of the history", start.contradictions));
    }
    if start.is_empty() {
        return notes;
    }
    let segments = start.ranges.len();
    notes.push(format!(
        "the history starts late: {segments} segments or mapped stretches and {} blocks in use were rebuilt from the final heap",
        start.blocks.len()
    ));
    if start.freed_unseen > 0 {
        notes.push(format!(
            "{} blocks are freed whose allocation is not recorded",
            start.freed_unseen
        ));
    }
    if start.never_mentioned > 0 {
        notes.push(format!(
            "{} blocks of the final heap are mentioned by no entry",
            start.never_mentioned
        ));
    }
    let unsure = start.blocks.iter().filter(|b| b.slack > 0).count();
    if unsure > 0 {
        notes.push(format!("the true length of {unsure} blocks at the start is not to be seen (each may be up to 1 MiB longer)"));
    }
    if facts.config.gc_threshold > 0.0 && facts.rec.header.memory_fraction.is_some_and(|f| f < 1.0)
    {
        notes.push("ages of cached blocks at the start are not recorded, so the first garbage collections may differ".into());
    }
    notes
}

/// A conflict in words.
pub(super) fn conflict(facts: &Facts, c: &Conflict) -> Unexplained {
    let entry = c.mismatch.entry as usize;
    let recorded = match facts.rec.entries.get(entry) {
        Some(e) => format!("recorded is {} at {:#x} of {} bytes", e.action.name(), e.addr, e.size),
        None => "the recording ends there".into(),
    };
    let done = match c.mismatch.got {
        Some(g) => format!(
            "the allocator would do {} at {:#x} of {} bytes",
            g.action.name(),
            g.addr,
            g.size
        ),
        None => "the allocator would do nothing more".into(),
    };
    let mut what = format!("{recorded}; {done}");
    if facts.fraction.is_none() {
        what.push_str("; a memory limit may have been in force that the recording does not name (--memory-fraction)");
    }
    Unexplained { entry: entry as u64, what, altered: false }
}
