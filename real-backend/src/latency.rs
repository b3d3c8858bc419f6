//! How long calls take: histograms, and what reading the clock itself costs.

use hdrhistogram::Histogram;
use poolsim_core::record::LatencySummary;
use std::time::Instant;

/// Longest time that a histogram tells apart; longer ones count as this.
const LONGEST: u64 = 60_000_000_000;

/// Times of one kind of call, to three significant digits.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
    total: u64,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are legal");
        Latency { histogram, total: 0 }
    }
}

impl Latency {
    /// Counts one call of `ns` nanoseconds.
    pub fn add(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.max(1));
        self.total += ns;
    }

    /// Counts `calls` calls of `ns` nanoseconds each.
    pub fn add_many(&mut self, ns: u64, calls: u64) {
        self.histogram.saturating_record_n(ns.max(1), calls);
        self.total += ns * calls;
    }

    /// Counts the time since `start` and returns it in nanoseconds.
    pub fn since(&mut self, start: Instant) -> u64 {
        let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.add(ns);
        ns
    }

    /// Takes the calls of another in.
    pub fn merge(&mut self, other: &Latency) {
        self.histogram.add(&other.histogram).expect("all have the same bounds");
        self.total += other.total;
    }

    /// Time of all calls together, in nanoseconds.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Number of calls.
    pub fn calls(&self) -> u64 {
        self.histogram.len()
    }

    /// Median in nanoseconds, 0 without calls.
    pub fn median(&self) -> u64 {
        self.histogram.value_at_quantile(0.5)
    }

    /// Mean of all calls but the slowest hundredth, in nanoseconds, 0 without calls. Those few wait for something else:
    /// memory that the driver still clears, or another guest of the host.
    pub fn usual_mean(&self) -> u64 {
        let count = self.calls() - self.calls() / 100;
        let (mut left, mut sum) = (count, 0);
        for (time, calls) in self.steps() {
            let taken = calls.min(left);
            sum += time * taken;
            left -= taken;
        }
        sum / count.max(1)
    }

    /// All calls by their time, shortest first: times to three digits, rounded up, each with its number of calls.
    pub fn steps(&self) -> Vec<(u64, u64)> {
        let recorded = self.histogram.iter_recorded();
        recorded.map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }

    /// The figures that results carry.
    pub fn summary(&self) -> LatencySummary {
        let at = |q| self.histogram.value_at_quantile(q);
        LatencySummary {
            calls: self.calls(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: self.histogram.max(),
            total_ns: self.total,
        }
    }
}

/// Cost of reading the clock, in nanoseconds. Every figure of a [`Latency`] contains it once.
pub fn timer_cost() -> f64 {
    // The median of batches: one reading is too short for the clock to tell its length.
    const BATCH: u32 = 1000;
    let mut batches: Vec<f64> = (0..51)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..BATCH {
                std::hint::black_box(Instant::now());
            }
            start.elapsed().as_nanos() as f64 / f64::from(BATCH)
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    batches[batches.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_mean_leaves_the_slowest_hundredth_out() {
        let mut latency = Latency::default();
        assert_eq!(latency.usual_mean(), 0);
        latency.add_many(100, 150);
        latency.add_many(200, 48);
        latency.add_many(1_000_000, 2);
        // Histograms keep three digits.
        let mean = (100 * 150 + 200 * 48) / 198;
        assert!(latency.usual_mean().abs_diff(mean) <= 1, "{}", latency.usual_mean());
    }
}
