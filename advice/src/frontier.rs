//! The smallest capacity on which a job lives under a policy.
//!
//! Found by bisection, which trusts that what lives on some memory lives on more. Not every policy keeps that (another
//! capacity makes it release and place otherwise), so the capacities around the found one are tried too.

use poolsim_core::record::OomRecord;
use poolsim_core::{Bytes, TraceError};
use std::collections::BTreeMap;

/// Every capacity that was tried, and whether the job lived.
pub type Tried = BTreeMap<Bytes, bool>;

/// The smallest capacity from which on every capacity that was tried suffices.
pub fn safe(tried: &Tried) -> Option<Bytes> {
    let last = tried.iter().rev().find(|(_, lives)| !**lives).map_or(0, |(&c, _)| c);
    tried.range(last + 1..).next().map(|(&c, _)| c)
}

/// Tries capacities of one policy.
pub struct Prober<F> {
    /// The first request that a run on so many bytes is refused; `None` if the job lives.
    pub refusal: F,
    /// All memory that there is.
    pub whole: Bytes,
    /// Capacities are multiples of this.
    pub granule: Bytes,
    /// How many capacities to try on each side of the one that bisection finds.
    pub probes: u64,
}

impl<F: Fn(Bytes) -> Result<Option<OomRecord>, TraceError>> Prober<F> {
    /// Looks between `low`, on which nothing can live, and `high`, the peak reservation of an unbounded run. Returns also the
    /// first request that is refused one granule below the smallest sufficient capacity (or with all memory, if the job does
    /// not live).
    ///
    /// # Errors
    /// Those of the trace.
    pub fn find(&self, low: Bytes, high: Bytes) -> Result<(Tried, Option<OomRecord>), TraceError> {
        let mut tried = BTreeMap::new();
        let whole = self.whole;
        if let Some(fails) = (self.refusal)(whole)? {
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
            Some(below) => (self.refusal)(below)?,
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
        let lives = (self.refusal)(capacity)?.is_none();
        tried.insert(capacity, lives);
        Ok(lives)
    }
}
