//! The replay engine: the only loop that walks events.
//!
//! It knows requests and slots, and no metric: what a run measures is folded up by [`Observer`]s.

mod frees;
mod run;
mod slots;
mod step;

pub use step::{Heap, Observer, Outcome, Step};

use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{
    Batch, BlockId, DeviceError, EventSource, HeapImage, Nanos, Policy, PoolFlags, PoolId, PoolOp,
    PoolStats, ReplayTarget, Slot, TraceError,
};
use run::{At, Run};

/// When to stop, and what to start from.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayOptions<'a> {
    /// Stop after the event of this index.
    pub stop_after_event: Option<u64>,
    /// Stop after the first request that the recorded run was granted and this run is refused.
    pub stop_at_oom: bool,
    /// The heap before the first event, for policies that can take it over.
    pub restore: Option<&'a HeapImage>,
}

/// Why a run ended before its trace did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// [`ReplayOptions::stop_after_event`].
    AfterEvent,
    /// [`ReplayOptions::stop_at_oom`].
    OutOfMemory,
}

/// What a run was, when it is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunEnd {
    /// Events that were replayed.
    pub events: u64,
    /// Requests that reached the policy.
    pub allocs: u64,
    /// Requests that were refused, those that the recorded run was refused too included.
    pub ooms: u64,
    /// Of these, requests that the recorded run was granted.
    pub new_ooms: u64,
    /// Requests that the recorded run was refused and this run granted.
    pub rescued: u64,
    /// Frees and uses that were left out because their request was refused or had no bytes.
    pub skipped: u64,
    /// Time of the first and the last event.
    pub span: Option<(Nanos, Nanos)>,
    /// Why it stopped early, if it did.
    pub stop: Option<Stop>,
    /// Whether the policy took the initial heap over.
    pub restored: bool,
    /// What is still held, by slot.
    pub live: Vec<(Slot, BlockId)>,
    /// The policy's numbers after the last event.
    pub stats: PoolStats,
}

/// Sends a trace to a policy on a device, and every step to an observer.
///
/// # Errors
/// A trace whose events contradict each other (a slot used while live, freed twice, never made; time running
/// backwards), with the event's index; errors of the source; a device that failed in another way than by being full.
///
/// # Panics
/// If the policy breaks the device's rules.
pub fn replay<P, T, O>(
    source: &mut dyn EventSource,
    policy: &mut P,
    target: &mut T,
    observer: &mut O,
    options: &ReplayOptions<'_>,
) -> Result<RunEnd, TraceError>
where
    P: Policy + ?Sized,
    T: ReplayTarget,
    O: Observer + ?Sized,
{
    let pools: Vec<PoolFlags> = source.header().pools.iter().map(|p| p.flags).collect();
    for (i, flags) in pools.into_iter().enumerate().skip(1) {
        let pool = u16::try_from(i).map_err(|_| {
            illegal(0, "the header declares more than 65535 pools; drop those without events")
        })?;
        policy.pool(target, PoolId(pool), PoolOp::Declare(flags));
    }
    let mut run = Run::new(policy, target, observer);
    run.restore(options.restore);
    let last = options.stop_after_event.unwrap_or(u64::MAX);
    let (mut batch, mut index, mut first) = (Batch::default(), 0, 0);
    'events: while source.fill(&mut batch)? {
        if index == 0 {
            first = batch.events.first().map_or(0, |e| e.at);
        }
        for (i, event) in batch.events.iter().enumerate() {
            let stack = batch.stacks.get(i).copied().unwrap_or_default();
            let refused = run.step(At { index, event, stack })?;
            index += 1;
            if refused && options.stop_at_oom {
                run.end.stop = Some(Stop::OutOfMemory);
                break 'events;
            }
            if index > last {
                run.end.stop = Some(Stop::AfterEvent);
                break 'events;
            }
        }
    }
    Ok(run.finish(index, first))
}

fn illegal(event: u64, what: impl Into<String>) -> TraceError {
    TraceError::new(TraceErrorKind::Illegal, Place::Event(event), what)
}

/// A device error that is no lack of memory: the run cannot go on.
///
/// # Panics
/// If the policy broke the device's rules: that is a bug in the policy.
fn device_failed(event: u64, error: &DeviceError) -> TraceError {
    if let DeviceError::Illegal(what) = error {
        panic!("at event {event} the policy broke the device's rules: {what}");
    }
    let what = format!("the device failed: {error}; the run cannot go on on this device");
    TraceError::new(TraceErrorKind::Refused, Place::Event(event), what)
}
