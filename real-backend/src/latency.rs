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

/// Median cost of timing nothing: two clock readings and their difference, in nanoseconds. Every figure of a
/// [`Latency`] contains it once.
pub fn timer_cost() -> u64 {
    let mut times = Latency::default();
    for _ in 0..10_000 {
        let start = Instant::now();
        times.since(start);
    }
    times.median()
}
