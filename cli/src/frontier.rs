//! The smallest capacity on which a job lives under a policy.
//!
//! Found by bisection, which trusts that what lives on some memory lives on more. Not every policy keeps that (another
//! capacity makes it release and place otherwise), so the capacities around the found one are tried too.

use crate::choice::Choice;
use crate::runner::Setting;
use poolsim_core::record::OomRecord;
use poolsim_core::{Bytes, TraceError};
use poolsim_sim::{Observer, Placement, ReplayOptions, Step, replay};
use std::collections::BTreeMap;

/// What was found out of one policy.
pub struct Frontier {
    /// The smallest capacity, of those that were tried, on which the job lives; `None` if it does not live at all.
    pub smallest: Option<Bytes>,
    /// The smallest capacity from which on every capacity that was tried suffices.
    pub safe: Option<Bytes>,
    /// The first request that is refused one granule below `smallest` (or with all memory, if the job does not live).
    pub fails: Option<OomRecord>,
    /// Every capacity that was tried, and whether the job lived.
    pub tried: BTreeMap<Bytes, bool>,
}

impl Frontier {
    /// Whether every capacity that was tried above a sufficient one suffices too.
    pub fn is_monotone(&self) -> bool {
        self.smallest == self.safe
    }
}

/// Tries capacities of one policy.
pub struct Prober<'a> {
    /// Trace and machine; its capacity is not used.
    pub setting: &'a Setting<'a>,
    /// The policy.
    pub choice: &'a Choice,
    /// Capacities are multiples of this.
    pub granule: Bytes,
    /// How many capacities to try on each side of the one that bisection finds.
    pub probes: u64,
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
    pub fn find(&self, low: Bytes, high: Bytes) -> Result<Frontier, TraceError> {
        let mut tried = BTreeMap::new();
        let whole = self.setting.loaded.machine.caps.total;
        if let Some(fails) = self.refusal(whole)? {
            tried.insert(whole, false);
            return Ok(Frontier { smallest: None, safe: None, fails: Some(fails), tried });
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
        let last = tried.iter().rev().find(|(_, lives)| !**lives).map_or(0, |(&c, _)| c);
        let safe = tried.range(last + 1..).next().map(|(&c, _)| c);
        Ok(Frontier { smallest: Some(found), safe, fails, tried })
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
