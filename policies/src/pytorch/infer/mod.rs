//! From a recording to the requests behind it: the hidden inputs of PyTorch's allocator.
//!
//! A snapshot's history shows what the allocator did, not all that it was asked. Missing are calls of `empty_cache`,
//! the pool that a request asks, when a deferred free was noticed, what the driver refused, and, where the
//! history starts late, the heap at its start. This module finds inputs under which the exact allocator makes
//! every recorded entry:
//!
//! ```text
//! rewind    the heap before the first entry, from the heap after the last one
//! facts     slots, lots (segments and reservations with their lives), regions in which memory is given back
//! labels    the pool of each lot, from what the final heap says and what releases took or left
//! run       the allocator itself along the entries, on a device that answers as the recorded one did (oracle);
//!           where a release has several possible causes, each is tried on a copy (groups)
//! search    a group that no cause explains teaches something about labels; back to a checkpoint, and on
//! emit      a trace of requests, and the driver's answers
//! ```
//!
//! The state of the heap never depends on labels (addresses are recorded), so a wrong label is found where it
//! first matters, and correcting it never spoils what was explained before it, only what follows.

mod causes;
mod device;
mod emit;
mod facts;
mod fallback;
mod groups;
mod labels;
mod lending;
mod limit;
mod lots;
mod notes;
mod oracle;
mod plausible;
mod reader;
mod regions;
mod rewind;
mod run;
mod search;
mod shape;
mod start;

use super::Config;
use facts::{Broken, Facts};
use poolsim_core::recording::{DriverAnswer, Recording};
use poolsim_core::trace::Trace;
use search::Search;

pub use device::UNKNOWN_DEVICE_TOTAL;

/// Where and why a recording could not be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexplained {
    /// The entry that the allocator, under every hypothesis, would not have made.
    pub entry: u64,
    /// What it would have done instead, and what may be missing.
    pub what: String,
    /// No PyTorch allocator makes such an entry, whatever came before: the file was changed after it was recorded.
    pub altered: bool,
}

impl From<Broken> for Unexplained {
    fn from(b: Broken) -> Self {
        Unexplained { entry: u64::from(b.entry), what: b.what, altered: false }
    }
}

/// The requests behind a recording.
#[derive(Clone, Debug)]
pub struct Inferred {
    /// The requests, with pools and the heap at the start.
    pub trace: Trace,
    /// What the driver answered, in call order. With these and the trace alone the allocator makes every entry, unless
    /// `unexplained` says otherwise.
    pub answers: Vec<DriverAnswer>,
    /// What people should know of how the trace came about.
    pub notes: Vec<String>,
    /// The first entry that nothing explains. The trace is then the best that can be told without simulating.
    pub unexplained: Option<Unexplained>,
}

/// Finds the requests behind a recording that was made under the settings `config` and the memory fraction in the
/// recording's header. If it names none and nothing else explains the recording, limits that its refusals hint at
/// are tried; the trace's header then names the one that does, and the device's memory if it was inferred. Replays must use
/// the trace's header.
pub fn infer(rec: &Recording, config: &Config) -> Inferred {
    if let Some((cleaned, broken)) = plausible::cleaned(rec) {
        let facts = Facts::of(&cleaned, config);
        let altered = Unexplained { altered: true, ..broken.into() };
        return fallback::infer(&facts, Vec::new(), altered);
    }
    let mut facts = Facts::of(rec, config);
    let notes = notes::on_start(&facts);
    if let Some(broken) = &facts.broken {
        let unexplained = Unexplained::from(broken.clone());
        return fallback::infer(&facts, notes, unexplained);
    }
    let first = match explain(&facts, &notes) {
        Ok(inferred) => return inferred,
        Err(unexplained) => unexplained,
    };
    // A wrong limit may be made up for by private pools that were not there, so the fewest pools win.
    let mut best: Option<Inferred> = None;
    for fraction in limits_to_try(&facts) {
        facts.fraction = Some(fraction);
        let pools = |i: &Inferred| i.trace.header.pools.len();
        if let Ok(inferred) = explain(&facts, &notes)
            && best.as_ref().is_none_or(|b| pools(&inferred) < pools(b))
        {
            best = Some(inferred);
        }
    }
    facts.fraction = rec.header.memory_fraction;
    best.unwrap_or_else(|| fallback::infer(&facts, notes, first))
}

/// Memory fractions that may have been in force without the recording saying so.
fn limits_to_try(facts: &Facts) -> Vec<f64> {
    if facts.fraction.is_some() {
        return Vec::new();
    }
    let total = facts.device_total.unwrap_or(UNKNOWN_DEVICE_TOTAL);
    limit::bracket(facts).map_or(Vec::new(), |b| limit::fractions(b, total))
}

/// Explains a recording under the limit in `facts`.
fn explain(facts: &Facts, notes: &[String]) -> Result<Inferred, Unexplained> {
    let caps = device::caps(facts.rec, facts.device_total);
    let Some(mut search) = Search::new(facts, &caps) else {
        let what = "the pools of the final heap contradict each other".into();
        return Err(Unexplained { entry: 0, what, altered: false });
    };
    search.go().map_err(|conflict| notes::conflict(facts, &conflict))?;
    lending::find(&mut search);
    let mut notes = notes.to_vec();
    notes.extend(notes::on_search(&search));
    let (trace, answers) = emit::trace(search.run, &notes);
    Ok(Inferred { trace, answers, notes, unexplained: None })
}
