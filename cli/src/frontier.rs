//! The smallest capacity on which a job lives under a policy, and what it costs to run there.

use crate::choice::Choice;
use crate::load::Loaded;
use crate::runner::{Setting, Verdict};
use poolsim_advice::Prober;
use poolsim_core::metric::name;
use poolsim_core::record::OomRecord;
use poolsim_core::{Bytes, RunRecord, TraceError};
use poolsim_reports::data::{Frontier, Tight};
use poolsim_sim::bound::Bounds;
use poolsim_sim::{DeviceProfile, Observer, Placement, ReplayOptions, Step, replay};

/// What was found out of one policy.
pub struct Found {
    /// Every capacity that was tried, and what it costs to run on the smallest sufficient one.
    pub frontier: Frontier,
    /// The first request that is refused one granule below the smallest sufficient capacity (or with all memory, if the job
    /// does not live).
    pub fails: Option<OomRecord>,
    /// The run with all of the device's memory.
    pub free: RunRecord,
    /// The run on the smallest sufficient capacity.
    pub tight: Option<RunRecord>,
}

/// Looks for the frontier of a policy, with `probes` capacities tried on each side of the one that bisection finds.
///
/// # Errors
/// Those of the trace.
pub fn frontier(
    loaded: &Loaded,
    profile: &DeviceProfile,
    choice: &Choice,
    bounds: &Bounds,
    probes: u64,
) -> anyhow::Result<Found> {
    let setting = Setting::new(loaded, profile, None)?;
    let free = setting.run(choice, &mut (), false)?.record;
    let granule = loaded.machine.caps.granule;
    let refusal = |capacity| refusal(&setting, choice, capacity);
    let prober = Prober { refusal, whole: loaded.machine.caps.total, granule, probes };
    let bound = bounds.live_without_waiting;
    let (tried, fails) = prober.find(bound, number(&free, name::peak_reserved_bytes))?;
    let mut frontier = Frontier { bound, tried, ..Frontier::default() };
    let tight = match frontier.smallest() {
        Some(capacity) => {
            let run = Setting::new(loaded, profile, Some(capacity))?;
            let run = run.run(choice, &mut (), false)?;
            frontier.uncertain = run.verdict == Verdict::Uncertain;
            frontier.tight = Some(Tight {
                retries: number(&run.record, name::retries),
                device_time_ns: number(&run.record, name::device_time_ns),
            });
            Some(run.record)
        }
        None => None,
    };
    Ok(Found { frontier, fails, free, tight })
}

/// A metric of a run that has it.
pub fn number(record: &RunRecord, name: &str) -> u64 {
    record.metric(name).map_or(0, |value| value.as_f64() as u64)
}

#[derive(Default)]
struct FirstRefusal(Option<OomRecord>);

impl Observer for FirstRefusal {
    fn on_step(&mut self, step: &Step<'_>) {
        if self.0.is_none() {
            self.0 = step.oom.filter(|oom| !oom.recorded).cloned();
        }
    }
}

/// The first request that is refused on so many bytes and was granted when it was recorded.
fn refusal(
    setting: &Setting<'_>,
    choice: &Choice,
    capacity: Bytes,
) -> Result<Option<OomRecord>, TraceError> {
    let mut device = setting.device_with(Placement::Driver, Some(capacity), false);
    let mut policy = setting.policy(choice);
    let mut first = FirstRefusal::default();
    let restore = setting.restore(choice);
    let options = ReplayOptions { restore, stop_at_oom: true, ..ReplayOptions::default() };
    let mut source = setting.loaded.events.source();
    replay(&mut *source, &mut policy, &mut device, &mut first, &options)
        .map_err(|e| e.in_file(&setting.loaded.path))?;
    Ok(first.0)
}
