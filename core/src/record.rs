//! What one run was and what it measured: self-describing, versioned, the same on every thread count.

use crate::device::DeviceCaps;
use crate::error::OomCause;
use crate::units::{Bytes, DevAddr, Nanos, PoolId, StreamId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the [`RunRecord`] layout.
pub const RECORD_VERSION: u32 = 1;

/// A metric's value. Plain numbers in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Counts, bytes, nanoseconds.
    Int(u64),
    /// Ratios and means.
    Real(f64),
}

impl Value {
    /// The value as a float, for formatting and comparing.
    pub fn as_f64(self) -> f64 {
        match self {
            Value::Int(n) => n as f64,
            Value::Real(x) => x,
        }
    }
}

/// How time was treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// Events keep their recorded times; stalls are counted apart. Comparable across policies.
    #[default]
    Open,
    /// Stalls push later events.
    Closed,
}

/// Where a run happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// poolsim's version.
    pub poolsim_version: String,
    /// Digest of the trace's events (hex).
    pub trace_digest: String,
    /// Where the trace came from (path as given).
    pub trace: String,
    /// Canonical policy spec.
    pub policy: String,
    /// Version of the allocator that the policy reproduces, e.g. `pytorch 2.11`; empty if it reproduces none.
    pub policy_version: String,
    /// `sim` or `gpu`.
    pub target: String,
    /// The device.
    pub device: Option<DeviceCaps>,
    /// Upper bound on the device's memory that was simulated, if any.
    pub capacity: Option<Bytes>,
    /// Memory fraction that was simulated, if any.
    pub memory_fraction: Option<f64>,
    /// The device profile that priced the calls: name, GPU, driver, date.
    pub device_profile: String,
    /// How addresses of new ranges were chosen: `recorded` or `driver-model`.
    pub placement: String,
    /// Seed of anything random.
    pub seed: u64,
    /// How time was treated.
    pub timing: Timing,
}

/// A refused request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OomRecord {
    /// Index of the event that failed.
    pub event: u64,
    /// When.
    pub at: Nanos,
    /// Bytes asked for.
    pub requested: Bytes,
    /// After rounding.
    pub rounded: Bytes,
    /// On which stream.
    pub stream: StreamId,
    /// From which pool.
    pub pool: PoolId,
    /// Which bound failed.
    pub cause: OomCause,
    /// Active bytes at that moment.
    pub active: Bytes,
    /// Reserved bytes at that moment.
    pub reserved: Bytes,
    /// Free device memory at that moment.
    pub device_free: Bytes,
    /// Largest free block at that moment.
    pub largest_free: Bytes,
    /// Free cached bytes at that moment.
    pub cached: Bytes,
    /// Whether the recorded run was refused here too.
    pub recorded: bool,
}

/// One moment of a run's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Index of the event after which this holds.
    pub event: u64,
    /// When.
    pub at: Nanos,
    /// Requested bytes.
    pub requested: Bytes,
    /// Allocated bytes.
    pub allocated: Bytes,
    /// Active bytes.
    pub active: Bytes,
    /// Reserved bytes.
    pub reserved: Bytes,
}

/// A decision of a policy, as `--decisions` lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Index of the event that caused it.
    pub event: u64,
    /// What happened.
    pub action: crate::recording::Action,
    /// Address; for a refused request the device's free memory.
    pub addr: DevAddr,
    /// Bytes.
    pub size: Bytes,
    /// Stream.
    pub stream: StreamId,
}

/// One run: a policy, a trace, a device, and what was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`RECORD_VERSION`] of the writer.
    pub version: u32,
    /// What the run was.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// Values by metric name; [`crate::metric::METRICS`] defines each.
    pub metrics: BTreeMap<String, Value>,
    /// Device calls by operation name.
    pub device_calls: BTreeMap<String, u64>,
    /// Device time in ns by operation name.
    pub device_time_ns: BTreeMap<String, u64>,
    /// Refused requests; at most the first thousand, `metrics.ooms` counts all.
    pub ooms: Vec<OomRecord>,
    /// What a reader must know before believing the numbers.
    pub warnings: Vec<String>,
    /// How a run on real hardware was measured; `None` in simulation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// Times of one kind of call, in nanoseconds. Each contains the cost of reading the clock once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Number of calls.
    pub calls: u64,
    /// Median.
    pub p50_ns: Nanos,
    /// 90th percentile.
    pub p90_ns: Nanos,
    /// 99th percentile.
    pub p99_ns: Nanos,
    /// 99.9th percentile.
    pub p999_ns: Nanos,
    /// Longest call.
    pub max_ns: Nanos,
    /// All calls together.
    pub total_ns: Nanos,
}

/// A mean over repeated runs with its 95 % confidence interval (Student's t).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Mean.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What repeated runs on real hardware measured beside the metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// How time and work on the streams were treated.
    pub mode: String,
    /// Runs that were not counted, before the others.
    pub warmup: u32,
    /// Runs that were counted.
    pub repeats: u32,
    /// Cost of reading the clock, contained once in each time of a call.
    pub timer_cost_ns: f64,
    /// Time of a fixed set of driver calls beside the runs, in nanoseconds: how fast the driver answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_pace_ns: Option<f64>,
    /// All repeats together, by call: `alloc` and `free` are the allocator's own with all that is under them, the
    /// others driver calls.
    pub latency: BTreeMap<String, LatencySummary>,
    /// Over the repeats: `device_time_ns` as the metric, `allocator_time_ns` for all allocs and frees, and quantiles.
    pub intervals: BTreeMap<String, Interval>,
    /// Free memory of the device before the first run and after the last.
    pub device_free_bytes: [Bytes; 2],
    /// Words of memory that were found overwritten; `None` if nobody looked.
    pub overwritten_words: Option<u64>,
}

impl RunRecord {
    /// A metric, or `None` if this run did not measure it.
    pub fn metric(&self, name: &str) -> Option<Value> {
        self.metrics.get(name).copied()
    }

    /// Sets a metric.
    ///
    /// # Panics
    /// If the name is not in [`crate::metric::METRICS`].
    pub fn set(&mut self, name: &str, value: Value) {
        assert!(crate::metric::find(name).is_some(), "unknown metric {name}");
        self.metrics.insert(name.into(), value);
    }
}
