//! No caching: every request is a `cudaMalloc`, every free a `cudaFree`.

use crate::arena::{Arena, TOO_LARGE};
use crate::deferred::DeferredFrees;
use crate::registry::{BuildEnv, OomRule, PolicyDef, no_version, no_warnings};
use poolsim_core::{
    Action, AllocError, AllocRequest, BlockId, Bytes, Device, DeviceError, Grant, HeapVisitor,
    Policy, PoolStats, StreamId,
};

/// `cuda-malloc`.
pub static DEF: PolicyDef = PolicyDef {
    name: "cuda-malloc",
    aliases: &[],
    presets: &[],
    summary: "No caching: a cudaMalloc for every request, a cudaFree for every free",
    rules: "Every request takes a range of its own from the driver, in whole granules of 2 MiB, and every free gives it back.\n\
            The driver puts requests below 2 MiB together into one granule; here each has its own, so jobs with many \
            small blocks reserve less in reality.\n\
            cudaFree waits for the device: if other streams use the block, the host waits for them first.\n\
            Nothing is kept, so empty_cache gives nothing back.",
    source: "CUDA runtime API: cudaMalloc, cudaFree; PyTorch with PYTORCH_NO_CUDA_MEMORY_CACHING=1",
    checked_against: "naive judges of the heap",
    params: &[],
    refuses: &[OomRule::CacheReleased, OomRule::NothingFits, OomRule::DeviceLacks],
    version: no_version,
    check: no_warnings,
    build: |_, env| Ok(Box::new(CudaMalloc::new(env))),
};

/// The allocator that keeps nothing.
#[derive(Clone, Debug)]
pub struct CudaMalloc {
    arena: Arena,
    /// Frees of shared blocks, until the host has waited.
    deferred: DeferredFrees,
    granule: Bytes,
}

impl CudaMalloc {
    /// One that holds nothing. A memory fraction in `env` limits what it holds.
    pub fn new(env: &BuildEnv) -> Self {
        let limit = env.memory_fraction.map(|x| (env.caps.total as f64 * x) as Bytes);
        CudaMalloc {
            arena: Arena::with_limit(limit),
            deferred: DeferredFrees::default(),
            granule: env.caps.granule,
        }
    }

    /// Waits for the streams that use blocks freed before, and gives those back. What the device fails at is tried
    /// again in later calls.
    #[cold]
    fn settle(&mut self, dev: &mut dyn Device) {
        let _ = self.deferred.synchronize(dev);
        let mut settled = Vec::new();
        self.deferred.settle(dev, &mut settled);
        for block in settled {
            let stream = self.arena.lane(self.arena.lane_of(block)).stream;
            let (addr, size) = (self.arena.addr(block), self.arena.requested(block));
            dev.note(Action::FreeCompleted, addr, size, stream);
            self.give_back(dev, block);
        }
    }

    fn refuse(&mut self, dev: &dyn Device, requested: Bytes, rounded: Bytes) -> AllocError {
        // Free are only ranges that the device did not take back.
        let idle = self.arena.idle_ranges().map(|range| self.arena.range_size(range));
        let largest = idle.max().unwrap_or(0);
        self.arena.refuse(dev, requested, rounded, largest)
    }

    /// A range that the device does not take stays idle, for empty_cache.
    fn give_back(&mut self, dev: &mut dyn Device, block: BlockId) {
        self.arena.vacate(block);
        let block = self.arena.merge(block, None, None);
        let _ = self.arena.release(dev, self.arena.range_of(block));
    }
}

impl Policy for CudaMalloc {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        let lane = self.arena.lane_for(req.stream, req.pool);
        if req.size >= TOO_LARGE {
            return Err(self.refuse(dev, req.size, req.size));
        }
        if !self.deferred.is_empty() {
            self.settle(dev);
        }
        let size = req.size.next_multiple_of(self.granule);
        match self.arena.reserve(dev, size, lane) {
            Ok(block) => {
                self.arena.occupy(block, size, &req);
                Ok(self.arena.grant(block))
            }
            Err(DeviceError::OutOfMemory { .. } | DeviceError::OutOfAddresses { .. }) => {
                Err(self.refuse(dev, req.size, size))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        if self.arena.is_shared(block) {
            self.arena.suspend(block);
            self.deferred.defer(dev, block);
            self.settle(dev);
        } else {
            self.give_back(dev, block);
        }
    }

    fn record_stream(&mut self, _: &mut dyn Device, block: BlockId, stream: StreamId) {
        if self.arena.lane(self.arena.lane_of(block)).stream != stream {
            self.arena.share(block);
            self.deferred.note_use(block, stream);
        }
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        if !self.deferred.is_empty() {
            self.settle(dev);
        }
        let idle: Vec<_> = self.arena.idle_ranges().collect();
        idle.into_iter().map(|range| self.arena.release(dev, range).unwrap_or(0)).sum()
    }

    fn stats(&self) -> &PoolStats {
        self.arena.stats()
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.arena.visit(visitor);
    }
}
