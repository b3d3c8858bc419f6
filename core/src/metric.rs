//! The one table of metrics: every number in a result is a row here.

use serde::Serialize;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanos,
    /// A plain count.
    Count,
    /// A ratio between 0 and 1.
    Ratio,
}

/// Which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Smaller values.
    Lower,
    /// Larger values.
    Higher,
    /// Neither: the number describes.
    Neither,
}

/// A metric: its stable name in results, and what it means.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Metric {
    /// Stable name, as in `metrics.peak_reserved_bytes`.
    pub name: &'static str,
    /// Short heading for tables.
    pub title: &'static str,
    /// Unit.
    pub unit: Unit,
    /// Better direction.
    pub better: Better,
    /// Definition in one sentence.
    pub definition: &'static str,
}

macro_rules! metrics {
    ($($name:ident, $title:literal, $unit:ident, $better:ident, $definition:literal;)*) => {
        /// Every metric, in the order in which results list them.
        pub static METRICS: &[Metric] = &[$(Metric {
            name: stringify!($name), title: $title, unit: Unit::$unit, better: Better::$better, definition: $definition,
        },)*];

        /// The names of all metrics, as constants.
        #[allow(non_upper_case_globals)]
        pub mod name {
            $(#[doc = $definition] pub const $name: &str = stringify!($name);)*
        }
    };
}

metrics! {
    events, "events", Count, Neither, "Events of the trace that were replayed.";
    allocs, "allocs", Count, Neither, "Requests for memory.";
    peak_requested_bytes, "peak requested", Bytes, Neither, "Highest sum of the sizes asked for by active blocks.";
    peak_allocated_bytes, "peak allocated", Bytes, Lower, "Highest sum of the blocks that the program held.";
    peak_active_bytes, "peak active", Bytes, Lower, "Highest sum of held blocks and blocks whose free waited for other streams.";
    peak_reserved_bytes, "peak reserved", Bytes, Lower, "Highest number of bytes held from the device.";
    mean_requested_bytes, "mean requested", Bytes, Neither, "Time-weighted mean of requested bytes.";
    mean_allocated_bytes, "mean allocated", Bytes, Lower, "Time-weighted mean of allocated bytes.";
    mean_active_bytes, "mean active", Bytes, Lower, "Time-weighted mean of active bytes.";
    mean_reserved_bytes, "mean reserved", Bytes, Lower, "Time-weighted mean of reserved bytes.";
    final_allocated_bytes, "final allocated", Bytes, Neither, "Allocated bytes after the last event.";
    final_reserved_bytes, "final reserved", Bytes, Lower, "Reserved bytes after the last event.";
    utilisation, "utilisation", Ratio, Higher, "Peak active bytes divided by peak reserved bytes (the literature's definition).";
    fragmentation, "fragmentation", Ratio, Lower, "1 - utilisation: the share of the peak reservation that no active block ever needed at once.";
    lost_to_rounding_bytes, "rounding", Bytes, Lower, "Active minus requested bytes when reserved bytes peaked first.";
    lost_to_stranded_bytes, "stranded", Bytes, Lower, "Free bytes, when reserved bytes peaked first, in ranges that also held active blocks.";
    lost_to_free_ranges_bytes, "free ranges", Bytes, Lower, "Free bytes, when reserved bytes peaked first, in ranges that held no active block.";
    lost_to_other_streams_bytes, "other streams", Bytes, Lower, "Free bytes, when reserved bytes peaked first, that belonged to other streams than the request that made the peak.";
    largest_free_bytes, "largest free", Bytes, Neither, "Largest free block when reserved bytes peaked first.";
    live_bound_bytes, "live bound", Bytes, Neither, "Highest sum of the sizes that were live at once, waiting frees included: no policy reserves less, but one that lets the host wait for such frees.";
    packed_bytes, "packed offline", Bytes, Neither, "Height of the best placement found, knowing the whole trace, of the same requests in multiples of 512 B; in whole granules.";
    over_bound, "above bound", Ratio, Lower, "Peak reserved bytes divided by live_bound_bytes, less 1; only of runs without a refused request.";
    ooms, "OOMs", Count, Lower, "Requests that were refused.";
    rescued, "rescued", Count, Higher, "Requests that the recorded run was refused and this run granted.";
    retries, "retries", Count, Lower, "Times that the policy released its cache and tried again.";
    device_calls, "device calls", Count, Lower, "Device calls of all kinds.";
    device_time_ns, "device time", Nanos, Lower, "Predicted time in device calls, from the device profile.";
    cuda_malloc_calls, "cudaMalloc", Count, Lower, "cudaMalloc calls.";
    cuda_free_calls, "cudaFree", Count, Lower, "cudaFree calls.";
    map_calls, "maps", Count, Lower, "Pages mapped.";
    unmap_calls, "unmaps", Count, Lower, "Pages unmapped.";
    synchronize_calls, "syncs", Count, Lower, "Host waits.";
}

/// The row of a metric.
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|m| m.name == name)
}
