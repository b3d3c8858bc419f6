//! Peaks and time-weighted means.

use crate::engine::{Observer, Step};
use poolsim_core::{Bytes, Nanos};

/// A quantity's sum over time, kept by its changes: the sum of `value × duration` is the last value times the whole
/// time, less each change times the time before it. So a quantity that does not change costs nothing.
#[derive(Clone, Copy, Debug, Default)]
struct OverTime {
    value: Bytes,
    /// Sum of change × time since the start.
    moved: i128,
}

impl OverTime {
    #[inline(always)]
    fn set(&mut self, value: Bytes, since_start: i64) {
        if value != self.value {
            let change = value.wrapping_sub(self.value) as i64;
            self.moved += i128::from(change) * i128::from(since_start);
            self.value = value;
        }
    }

    fn sum(&self, span: Nanos) -> i128 {
        i128::from(self.value) * i128::from(span) - self.moved
    }
}

/// Time-weighted means over the trace's time, and the moment of the peak reservation. Peaks themselves are the
/// policy's, which notes them at every single increase.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    first_at: Nanos,
    last_at: Nanos,
    requested: OverTime,
    active: OverTime,
    /// Active but not allocated: frees that wait for other streams.
    pending: OverTime,
    reserved: OverTime,
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
        let [requested, active, pending, reserved] =
            [self.requested, self.active, self.pending, self.reserved].map(|q| q.sum(span));
        let sums = [requested, active - pending, active, reserved];
        (span > 0).then(|| sums.map(|sum| sum as f64 / span as f64))
    }
}

impl Observer for Totals {
    #[inline(always)]
    fn on_step(&mut self, step: &Step<'_>) {
        let (at, stats) = (step.event.at, step.stats);
        if step.index == 0 {
            self.first_at = at;
        }
        self.last_at = at;
        // Longer than 292 years is not a time.
        let since_start = (at - self.first_at).min(i64::MAX as u64) as i64;
        self.requested.set(stats.requested.current, since_start);
        self.active.set(stats.active.current, since_start);
        self.pending.set(stats.active.current - stats.allocated.current, since_start);
        self.reserved.set(stats.reserved.current, since_start);
        if stats.reserved.peak > self.peak_reserved {
            self.peak_reserved = stats.reserved.peak;
            self.peak_event = Some(step.index);
        }
    }
}
