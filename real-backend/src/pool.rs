//! A real `cudaMallocAsync` pool as a policy, for the GPU only.

use crate::call::Context;
use crate::calls::CallLog;
use crate::device::CudaDevice;
use crate::gates::Gates;
use crate::latency::Latency;
use crate::live::{Live, LiveBlocks};
use crate::metered::Metered;
use crate::streams::StreamTable;
use cudarc::driver::sys::{CUevent, CUmemPool_attribute as Attribute, CUmemoryPool, CUstream};
use poolsim_core::{
    Action, AllocError, AllocRequest, BlockId, Bytes, Device, DeviceError, DeviceOp, Grant,
    HeapVisitor, OomCause, Policy, PoolStats, StreamId, SyncScope,
};
use std::sync::Arc;
use std::time::Instant;

/// How a driver pool is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Use the device's default pool instead of an own one.
    pub default_pool: bool,
    /// Bytes that the pool keeps at synchronisations.
    pub release_threshold: Bytes,
    /// Most bytes that the pool may reserve; 0 for no limit. An own pool's only.
    pub max_size: Bytes,
    /// Reuse of memory whose free is ordered before by events.
    pub follow_events: bool,
    /// Reuse of memory whose free is seen to be finished.
    pub opportunistic: bool,
    /// Reuse with a wait that the driver inserts.
    pub internal: bool,
    /// Most bytes that the program may hold, as requested: PyTorch's memory fraction.
    pub limit: Option<Bytes>,
}

impl Default for PoolOptions {
    /// As PyTorch's cudaMallocAsync backend sets its pool.
    fn default() -> Self {
        PoolOptions {
            default_pool: false,
            release_threshold: Bytes::MAX,
            max_size: 0,
            follow_events: true,
            opportunistic: true,
            internal: true,
            limit: None,
        }
    }
}

/// A real `cudaMallocAsync` pool. Reserved and used bytes are the pool's own attributes; asking for them is not timed.
#[derive(Debug)]
pub struct DriverPool {
    context: Arc<Context>,
    streams: Arc<StreamTable>,
    gates: Arc<Gates>,
    pool: CUmemoryPool,
    options: PoolOptions,
    /// Marks the ends of streams that a free has to wait for.
    joint: CUevent,
    /// Frees of blocks that several streams used are queued here, as PyTorch's backend does; made at the first.
    unifying: Option<CUstream>,
    live: LiveBlocks,
    allocs: Latency,
    frees: Latency,
    calls: Arc<CallLog>,
    trims: Latency,
}

// SAFETY: pool, stream and event handles may be used from any thread that has the context current.
unsafe impl Send for DriverPool {}

impl DriverPool {
    /// Makes a pool on the GPU of `device`, using its streams.
    ///
    /// # Errors
    /// `Unsupported` where the driver has no pools; `Driver` if a call fails.
    pub fn new(device: &CudaDevice, options: PoolOptions) -> Result<DriverPool, DeviceError> {
        let context = device.context().clone();
        let pool = if options.default_pool {
            context.default_pool()?
        } else {
            context.pool(options.max_size)?
        };
        let made = DriverPool {
            joint: context.event()?,
            context,
            streams: device.streams().clone(),
            gates: device.gates().clone(),
            calls: device.calls().clone(),
            pool,
            options,
            unifying: None,
            live: LiveBlocks::default(),
            allocs: Latency::default(),
            frees: Latency::default(),
            trims: Latency::default(),
        };
        made.set(&options)?;
        Ok(made)
    }

    fn set(&self, options: &PoolOptions) -> Result<(), DeviceError> {
        self.context.set_pool_bytes(self.pool, options.release_threshold)?;
        for (attribute, on) in [
            (Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, options.follow_events),
            (Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, options.opportunistic),
            (Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, options.internal),
        ] {
            self.context.set_pool_switch(self.pool, attribute, on)?;
        }
        Ok(())
    }

    /// `ReservedMemCurrent` of the pool.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn reserved(&self) -> Result<Bytes, DeviceError> {
        self.context.pool_bytes(self.pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    }

    fn refresh(&mut self) {
        let used = self.context.pool_bytes(self.pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
        if let (Ok(used), Ok(reserved)) = (used, self.reserved()) {
            self.live.set_held(used, reserved);
        }
    }

    fn queue_free(&mut self, block: &Live) -> Result<(), DeviceError> {
        let own = self.streams.get(block.stream)?;
        if block.uses.is_empty() {
            return self.timed_free(block, own);
        }
        let unifying = match self.unifying {
            Some(stream) => stream,
            None => *self.unifying.insert(self.context.stream()?),
        };
        let gate = self.gates.close()?;
        let users = block.uses.iter().map(|&user| self.streams.get(user));
        let users = users.collect::<Result<Vec<_>, _>>()?;
        for stream in std::iter::once(own).chain(users).chain(gate) {
            self.context.record(self.joint, stream)?;
            self.context.wait(unifying, self.joint)?;
        }
        self.timed_free(block, unifying)?;
        if gate.is_some() { self.gates.queued(unifying) } else { Ok(()) }
    }

    fn timed_free(&mut self, block: &Live, stream: CUstream) -> Result<(), DeviceError> {
        let start = Instant::now();
        let result = self.context.pool_free(block.addr, stream);
        let time = self.frees.since(start);
        self.calls.add(DeviceOp::PoolFree, block.size, time);
        result
    }
}

impl Metered for DriverPool {
    fn allocs(&self) -> &Latency {
        &self.allocs
    }

    fn frees(&self) -> &Latency {
        &self.frees
    }

    fn driver_calls(&self) -> Vec<(DeviceOp, &Latency)> {
        vec![
            (DeviceOp::PoolMalloc, &self.allocs),
            (DeviceOp::PoolFree, &self.frees),
            (DeviceOp::PoolShrink, &self.trims),
        ]
    }
}

impl Policy for DriverPool {
    fn malloc(&mut self, _: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        let held = self.live.stats.requested.current;
        if self.options.limit.is_some_and(|limit| held.saturating_add(req.size) > limit) {
            return Err(self.live.refuse(req.size, OomCause::Limit));
        }
        let stream = self.streams.get(req.stream)?;
        let start = Instant::now();
        let result = self.context.pool_alloc(self.pool, req.size, stream);
        let time = self.allocs.since(start);
        self.calls.add(DeviceOp::PoolMalloc, req.size, time);
        // First: a refusal states what the pool holds, which a failed call may have changed.
        self.refresh();
        self.live.answer(&req, result)
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        let live = self.live.take(block);
        if let Err(e) = self.queue_free(&live) {
            panic!("the driver refused to free {:#x}: {e}", live.addr);
        }
        if !live.uses.is_empty() {
            dev.note(Action::FreeCompleted, live.addr, live.size, live.stream);
        }
        self.refresh();
    }

    fn record_stream(&mut self, _: &mut dyn Device, block: BlockId, stream: StreamId) {
        self.live.note_use(block, stream);
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        let before = self.live.stats.reserved.current;
        if dev.synchronize(SyncScope::Device).is_ok() {
            let start = Instant::now();
            let _ = self.context.trim(self.pool, 0);
            let time = self.trims.since(start);
            self.calls.add(DeviceOp::PoolShrink, before, time);
        }
        self.refresh();
        before.saturating_sub(self.live.stats.reserved.current)
    }

    fn synchronized(&mut self, _: &mut dyn Device, _: Option<StreamId>) {
        self.refresh();
    }

    fn stats(&self) -> &PoolStats {
        &self.live.stats
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.live.visit(visitor);
    }
}

impl Drop for DriverPool {
    fn drop(&mut self) {
        let _ = self.context.enter();
        self.gates.open_all();
        for live in self.live.take_all() {
            let _ = self.queue_free(&live);
        }
        self.gates.open_all();
        let _ = self.context.synchronize();
        let _ = self.context.destroy_event(self.joint);
        if let Some(stream) = self.unifying {
            let _ = self.context.destroy_stream(stream);
        }
        if self.options.default_pool {
            // As the driver sets it up, for whoever uses it next.
            let _ = self.set(&PoolOptions { release_threshold: 0, ..PoolOptions::default() });
            let _ = self.context.trim(self.pool, 0);
        } else {
            let _ = self.context.destroy_pool(self.pool);
        }
    }
}
