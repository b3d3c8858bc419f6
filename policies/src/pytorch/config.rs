//! The settings that change what the allocator decides.

use super::size::SMALL_MAX;
use poolsim_core::units::{Bytes, MIB};

/// Settings of `PYTORCH_CUDA_ALLOC_CONF` in the units that the rules use. `Default` is PyTorch's.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Segment for requests of 1 to 10 MiB, and page of large expandable segments. Default 20 MiB.
    pub large_segment_size: Bytes,
    /// Blocks of this size and more are not split, and serve only requests of this size and more.
    pub max_split_size: Option<Bytes>,
    /// How much larger than its request an oversize block may be. Default: `large_segment_size`.
    pub max_non_split_rounding: Bytes,
    /// Steps between powers of two to which requests are rounded, by size bucket; 0 and 1 mean none.
    pub divisions: [u32; 16],
    /// Whether any bucket of `divisions` is above 1.
    pub rounds_to_divisions: bool,
    /// Share of the memory limit above which cached blocks are collected; 0 switches it off.
    pub gc_threshold: f64,
    /// Segments grow by mapping pages.
    pub expandable: bool,
    /// Share of the device's memory that the process may take; 1 means no limit.
    pub memory_fraction: f64,
    /// Rounded requests up to this size use the small pool. Always [`SMALL_MAX`] in PyTorch; see
    /// [`counterfactual`](crate::counterfactual).
    pub small_max: Bytes,
    /// Segments have the size that is needed. Never in PyTorch; see [`counterfactual`](crate::counterfactual).
    pub exact_segments: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            large_segment_size: 20 * MIB,
            max_split_size: None,
            max_non_split_rounding: 20 * MIB,
            divisions: [0; 16],
            rounds_to_divisions: false,
            gc_threshold: 0.0,
            expandable: false,
            memory_fraction: 1.0,
            small_max: SMALL_MAX,
            exact_segments: false,
        }
    }
}

impl Config {
    /// The limit on bytes taken from the device: the fraction of its total memory, truncated as PyTorch
    /// truncates it. A fraction of 1 means no limit at all, not a limit of everything.
    pub fn limit(&self, device_total: Bytes) -> Option<Bytes> {
        if self.memory_fraction < 1.0 {
            Some((self.memory_fraction * device_total as f64) as Bytes)
        } else {
            None
        }
    }
}
