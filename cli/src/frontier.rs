//! The smallest capacity on which a job lives under a policy.
//!
//! Found by bisection, which trusts that what lives on some memory lives on more. Not every policy keeps that (another
//! capacity makes it release and place otherwise), so the capacities around the found one are tried too.

use crate::choice::Choice;
use crate::load::Loaded;
use crate::runner::{Setting, Verdict};
use poolsim_core::metric::name;
use poolsim_core::record::OomRecord;
use poolsim_core::{Bytes, RunRecord, TraceError};
use poolsim_reports::data::{Frontier, Tight};
use poolsim_sim::bound::Bounds;
use poolsim_sim::{DeviceProfile, Observer, Placement, ReplayOptions, Step, replay};
use std::collections::BTreeMap;

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
    let prober = Prober { setting: &setting, choice, granule, probes };
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

/// Tries capacities of one policy.
struct Prober<'a> {
    /// Trace and machine; its capacity is not used.
    setting: &'a Setting<'a>,
    /// The policy.
    choice: &'a Choice,
    /// Capacities are multiples of this.
    granule: Bytes,
    /// How many capacities to try on each side of the one that bisection finds.
    probes: u64,
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

impl Prober<'_> {
    /// Looks between `low`, on which nothing can live, and `high`, the peak reservation of an unbounded run.
    ///
    /// # Errors
    /// Those of the trace.
    fn find(
        &self,
        low: Bytes,
        high: Bytes,
    ) -> Result<(BTreeMap<Bytes, bool>, Option<OomRecord>), TraceError> {
        let mut tried = BTreeMap::new();
        let whole = self.setting.loaded.machine.caps.total;
        if let Some(fails) = self.refusal(whole)? {
            tried.insert(whole, false);
            return Ok((tried, Some(fails)));
        }
        tried.insert(whole, true);
        let mut lives = high.next_multiple_of(self.granule).min(whole);
        if !self.lives(lives, &mut tried)? {
            lives = whole;
        }
        let fails = low.saturating_sub(1) / self.granule * self.granule;
        let mut found = self.bisect(fails, lives, &mut tried)?;
        self.look_around(fails, found, lives, &mut tried)?;
        // A capacity below that suffices: go on from there.
        while let Some((&below, _)) = tried.range(..found).find(|(_, lives)| **lives) {
            let bottom = tried.range(..below).next_back().map_or(fails, |(&c, _)| c.max(fails));
            found = self.bisect(bottom, below, &mut tried)?;
        }
        let fails = match found.checked_sub(self.granule).filter(|&c| c > 0) {
            Some(below) => self.refusal(below)?,
            None => None,
        };
        Ok((tried, fails))
    }

    fn bisect(
        &self,
        mut fails: Bytes,
        mut lives: Bytes,
        tried: &mut BTreeMap<Bytes, bool>,
    ) -> Result<Bytes, TraceError> {
        while lives - fails > self.granule {
            let middle = (fails + (lives - fails) / 2).next_multiple_of(self.granule);
            let middle = if middle >= lives { lives - self.granule } else { middle };
            if middle <= fails {
                break;
            }
            if self.lives(middle, tried)? {
                lives = middle;
            } else {
                fails = middle;
            }
        }
        Ok(lives)
    }

    /// Evenly spread over what lies below and above, and the direct neighbours.
    fn look_around(
        &self,
        bottom: Bytes,
        found: Bytes,
        top: Bytes,
        tried: &mut BTreeMap<Bytes, bool>,
    ) -> Result<(), TraceError> {
        for n in 1..=self.probes {
            let spread = |from: Bytes, to: Bytes| {
                let part = u128::from(to - from) * u128::from(n) / u128::from(self.probes + 1);
                (from + part as Bytes) / self.granule * self.granule
            };
            let near = n.min(4) * self.granule;
            let around = [spread(bottom, found), spread(found, top), found + near];
            for capacity in around.into_iter().chain(found.checked_sub(near)) {
                if capacity > bottom && capacity <= top {
                    self.lives(capacity, tried)?;
                }
            }
        }
        Ok(())
    }

    fn lives(
        &self,
        capacity: Bytes,
        tried: &mut BTreeMap<Bytes, bool>,
    ) -> Result<bool, TraceError> {
        if let Some(&lives) = tried.get(&capacity) {
            return Ok(lives);
        }
        let lives = self.refusal(capacity)?.is_none();
        tried.insert(capacity, lives);
        Ok(lives)
    }

    /// The first request that is refused here and was granted when it was recorded.
    fn refusal(&self, capacity: Bytes) -> Result<Option<OomRecord>, TraceError> {
        let setting = self.setting;
        let mut device = setting.device_with(Placement::Driver, Some(capacity), false);
        let mut policy = setting.policy(self.choice);
        let mut first = FirstRefusal::default();
        let restore = setting.restore(self.choice);
        let options = ReplayOptions { restore, stop_at_oom: true, ..ReplayOptions::default() };
        let mut source = setting.loaded.events.source();
        replay(&mut *source, &mut policy, &mut device, &mut first, &options)
            .map_err(|e| e.in_file(&setting.loaded.path))?;
        Ok(first.0)
    }
}
