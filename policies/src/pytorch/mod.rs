//! PyTorch's CUDA caching allocator (native backend), decision for decision.
//!
//! Reproduces PyTorch 2.11. The order of work inside a request is observable (in traces, in statistics and in the
//! addresses that come back), so each step here is a step there:
//!
//! ```text
//! malloc: complete frees whose fences passed → round → look up → miss? collect garbage → new segment
//!         → a fallback pool → release oversize blocks → release everything, wait → OOM
//!         → split → hand out the low part
//! free:   not shared → merge with the neighbours and index
//!         shared with other streams → wait for a fence of each; the block merges with nobody until then
//! ```
//!
//! What cannot be known here comes from outside: addresses of new ranges and failures from the device,
//! completions of shared frees from the device's fences, memory limit and device size from [`Config`].

mod blocks;
pub mod config;
pub mod def;
mod expandable;
mod free;
mod heap;
mod index;
pub mod infer;
mod malloc;
mod release;
mod restore;
pub mod size;
mod stats;
mod walk;

pub use config::Config;
pub use def::DEF;

use crate::deferred::DeferredFrees;
use blocks::Blocks;
use heap::Heaps;
use poolsim_core::device::{Device, DeviceCaps};
use poolsim_core::error::AllocError;
use poolsim_core::heap::{HeapImage, HeapVisitor};
use poolsim_core::policy::{AllocRequest, Grant, Policy, PoolOp, PoolStats};
use poolsim_core::units::{BlockId, Bytes, PoolId, Slot, StreamId};
use stats::Stats;

/// The allocator of one device.
#[derive(Clone, Debug)]
pub struct Pytorch {
    config: Config,
    /// Limit on bytes from the device.
    limit: Option<Bytes>,
    /// A limit is set and a threshold, so lookups are counted and garbage is collected.
    collects: bool,
    /// Requested size from which blocks are oversize; no limit is the largest number.
    max_split: Bytes,
    device_total: Bytes,
    blocks: Blocks,
    heaps: Heaps,
    stats: Stats,
    /// Bytes held from the device, all pools.
    total: Bytes,
    /// Redirections to private pools that are open.
    open: u32,
    /// Uses on other streams, and the frees that wait for them.
    deferred: DeferredFrees,
    /// Blocks whose fences have all passed, which no call has looked at since.
    unnoticed: Vec<BlockId>,
}

impl Pytorch {
    /// An empty allocator. `memory_fraction` overrides the one in the settings, as
    /// `set_per_process_memory_fraction` does.
    pub fn new(config: &Config, caps: &DeviceCaps, memory_fraction: Option<f64>) -> Pytorch {
        let mut config = config.clone();
        if let Some(fraction) = memory_fraction {
            config.memory_fraction = fraction;
        }
        let limit = config.limit(caps.total);
        let mut heaps = Heaps::default();
        heaps.declare(PoolId::DEFAULT);
        Pytorch {
            limit,
            collects: limit.is_some() && config.gc_threshold > 0.0,
            max_split: config.max_split_size.unwrap_or(Bytes::MAX),
            device_total: caps.total,
            blocks: Blocks::default(),
            heaps,
            stats: Stats::default(),
            total: 0,
            open: 0,
            deferred: DeferredFrees::default(),
            unnoticed: Vec::new(),
            config,
        }
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What `torch.cuda.memory._set_allocator_settings("")` does in the middle of a run: max_split_size_mb,
    /// max_non_split_rounding_mb, roundup_power2_divisions and garbage_collection_threshold go back to their defaults; what is
    /// allocated stays as it is.
    pub fn reset_settings(&mut self) {
        let standard = Config::default();
        self.config.max_split_size = None;
        self.config.max_non_split_rounding = self.config.large_segment_size;
        self.config.divisions = standard.divisions;
        self.config.rounds_to_divisions = false;
        self.config.gc_threshold = 0.0;
        self.max_split = Bytes::MAX;
        self.collects = false;
    }

    /// The limit on bytes held from the device, if there is one.
    pub fn limit(&self) -> Option<Bytes> {
        self.limit
    }
}

impl Policy for Pytorch {
    #[inline]
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        self.allocate(dev, req)
    }

    #[inline]
    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        self.release(dev, block.0);
    }

    fn record_stream(&mut self, _: &mut dyn Device, block: BlockId, stream: StreamId) {
        self.share(block.0, stream);
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        let before = self.total;
        self.release_everything(dev, None);
        before - self.total
    }

    fn pool(&mut self, dev: &mut dyn Device, pool: PoolId, op: PoolOp) {
        match op {
            PoolOp::Declare(flags) => self.heaps.set_flags(pool, flags),
            PoolOp::Open => self.open += 1,
            PoolOp::Close => self.open = self.open.saturating_sub(1),
            PoolOp::Drop => self.heaps.declare(pool).freeable = true,
            PoolOp::Destroy => {
                self.heaps.declare(pool).freeable = true;
                self.release_everything(dev, Some(pool));
            }
        }
    }

    #[inline]
    fn stats(&self) -> &PoolStats {
        &self.stats.pool
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.walk(visitor);
    }

    fn restore(&mut self, dev: &mut dyn Device, heap: &HeapImage) -> Option<Vec<(Slot, BlockId)>> {
        self.take_over(dev, heap)
    }

    fn native_stats(&self) -> Vec<(String, i64)> {
        self.stats.list(self.config.max_split_size)
    }
}
