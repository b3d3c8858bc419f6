//! Peaks and time-weighted means.

use super::series::Levels;
use crate::engine::{Observer, Step};
use poolsim_core::{Bytes, Nanos};

/// Time-weighted means over the trace's time, and the moment of the peak reservation. Peaks themselves are the
/// policy's, which notes them at every single increase.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    first_at: Nanos,
    last_at: Nanos,
    /// What has held since `last_at`.
    levels: Levels,
    /// Bytes times nanoseconds: requested, allocated, active, reserved.
    sums: [u128; 4],
    peak_reserved: Bytes,
    peak_event: Option<u64>,
}

impl Totals {
    /// Index of the event at which reserved bytes first reached their peak; `None` if nothing was reserved.
    pub fn peak_event(&self) -> Option<u64> {
        self.peak_event
    }

    /// Time-weighted means of requested, allocated, active and reserved bytes; `None` for a trace that takes no time.
    pub fn means(&self) -> Option<[f64; 4]> {
        let span = self.last_at - self.first_at;
        (span > 0).then(|| self.sums.map(|sum| sum as f64 / span as f64))
    }
}

impl Observer for Totals {
    #[inline]
    fn on_step(&mut self, step: &Step<'_>) {
        let at = step.event.at;
        if step.index == 0 {
            self.first_at = at;
            self.last_at = at;
        }
        if at != self.last_at {
            let passed = u128::from(at - self.last_at);
            let held = [
                self.levels.requested,
                self.levels.allocated,
                self.levels.active,
                self.levels.reserved,
            ];
            for (sum, bytes) in self.sums.iter_mut().zip(held) {
                *sum += u128::from(bytes) * passed;
            }
            self.last_at = at;
        }
        self.levels = Levels::now(step.stats);
        if step.stats.reserved.peak > self.peak_reserved {
            self.peak_reserved = step.stats.reserved.peak;
            self.peak_event = Some(step.index);
        }
    }
}
