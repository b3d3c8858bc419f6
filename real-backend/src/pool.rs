//! The driver's own allocators as policies, for the GPU only.

use crate::call::Context;
use crate::device::CudaDevice;
use crate::streams::StreamTable;
use cudarc::driver::sys::{CUevent, CUmemPool_attribute as Attribute, CUmemoryPool};
use poolsim_core::{
    Action, AllocError, AllocRequest, BlockId, BlockState, BlockView, Bytes, DevAddr, Device,
    DeviceError, Grant, HeapVisitor, OomCause, Policy, PoolId, PoolStats, RangeView, StreamId,
    SyncScope, stack::StackId,
};
use std::sync::Arc;

/// How a driver pool is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Use the device's default pool instead of an own one.
    pub default_pool: bool,
    /// Bytes that the pool keeps at synchronisations.
    pub release_threshold: Bytes,
    /// Most bytes that the pool may reserve; 0 for no limit.
    pub max_size: Bytes,
    /// Reuse of memory whose free is ordered before by events.
    pub follow_events: bool,
    /// Reuse of memory whose free is seen to be finished.
    pub opportunistic: bool,
    /// Reuse with a wait that the driver inserts.
    pub internal: bool,
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
        }
    }
}

#[derive(Clone, Debug)]
struct Live {
    addr: DevAddr,
    size: Bytes,
    stream: StreamId,
    uses: Vec<StreamId>,
    slot: u32,
}

/// A real `cudaMallocAsync` pool. Reserved bytes are the pool's own attribute.
#[derive(Debug)]
pub struct DriverPool {
    context: Arc<Context>,
    streams: Arc<StreamTable>,
    pool: CUmemoryPool,
    own: bool,
    /// Orders frees that several streams must reach first, as PyTorch's backend does.
    joint: CUevent,
    live: Vec<Option<Live>>,
    unused: Vec<u32>,
    stats: PoolStats,
}

// SAFETY: pool and event handles may be used from any thread that has the context current.
unsafe impl Send for DriverPool {}

impl DriverPool {
    /// Makes a pool on the GPU of `device`, using its streams.
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
            pool,
            own: !options.default_pool,
            live: Vec::new(),
            unused: Vec::new(),
            stats: PoolStats::default(),
        };
        made.context.set_pool_bytes(pool, options.release_threshold)?;
        for (attribute, on) in [
            (Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, options.follow_events),
            (Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, options.opportunistic),
            (Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, options.internal),
        ] {
            made.context.set_pool_switch(pool, attribute, on)?;
        }
        Ok(made)
    }

    /// `ReservedMemCurrent` of the pool.
    pub fn reserved(&self) -> Result<Bytes, DeviceError> {
        self.context.pool_bytes(self.pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    }

    fn refresh(&mut self) {
        if let Ok(reserved) = self.reserved() {
            let gauge = &mut self.stats.reserved;
            gauge.current = reserved;
            gauge.peak = gauge.peak.max(reserved);
        }
    }

    /// Frees in order behind every stream that used the block.
    fn free_in_order(&self, block: &Live) -> Result<(), DeviceError> {
        let own = self.streams.get(block.stream)?;
        for &user in &block.uses {
            self.context.record(self.joint, self.streams.get(user)?)?;
            self.context.wait(own, self.joint)?;
        }
        self.context.pool_free(block.addr, own)
    }
}

impl Policy for DriverPool {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        let stream = self.streams.get(req.stream)?;
        let addr = match self.context.pool_alloc(self.pool, req.size, stream) {
            Ok(addr) => addr,
            Err(DeviceError::OutOfMemory { .. }) => {
                self.stats.ooms += 1;
                self.refresh();
                return Err(AllocError::OutOfMemory {
                    requested: req.size,
                    rounded: req.size,
                    reserved: self.stats.reserved.current,
                    largest_free: 0,
                    cause: OomCause::DeviceFull,
                });
            }
            Err(e) => return Err(e.into()),
        };
        let _ = dev;
        let live =
            Live { addr, size: req.size, stream: req.stream, uses: Vec::new(), slot: req.slot.0 };
        let id = match self.unused.pop() {
            Some(id) => {
                self.live[id as usize] = Some(live);
                id
            }
            None => {
                self.live.push(Some(live));
                self.live.len() as u32 - 1
            }
        };
        for gauge in [&mut self.stats.requested, &mut self.stats.allocated, &mut self.stats.active]
        {
            gauge.add(req.size);
        }
        self.refresh();
        Ok(Grant { block: BlockId(id), addr, size: req.size })
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        let live = self.live[block.index()].take().expect("the engine frees live blocks only");
        self.unused.push(block.0);
        if let Err(e) = self.free_in_order(&live) {
            panic!("the driver refused to free {:#x}: {e}", live.addr);
        }
        for gauge in [&mut self.stats.requested, &mut self.stats.allocated, &mut self.stats.active]
        {
            gauge.sub(live.size);
        }
        if !live.uses.is_empty() {
            dev.note(Action::FreeCompleted, live.addr, live.size, live.stream);
        }
        self.refresh();
    }

    fn record_stream(&mut self, _: &mut dyn Device, block: BlockId, stream: StreamId) {
        let live = self.live[block.index()].as_mut().expect("the block is live");
        if live.stream != stream && !live.uses.contains(&stream) {
            live.uses.push(stream);
        }
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        let before = self.stats.reserved.current;
        if dev.synchronize(SyncScope::Device).is_ok() {
            let _ = self.context.trim(self.pool, 0);
        }
        self.refresh();
        before.saturating_sub(self.stats.reserved.current)
    }

    fn synchronized(&mut self, _: &mut dyn Device, _: Option<StreamId>) {
        self.refresh();
    }

    fn stats(&self) -> &PoolStats {
        &self.stats
    }

    /// A driver pool shows its live blocks only; each is listed as a range of its own.
    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        for live in self.live.iter().flatten() {
            visitor.range(&RangeView {
                addr: live.addr,
                size: live.size,
                stream: live.stream,
                pool: PoolId::DEFAULT,
                small: false,
                expandable: false,
                stack: StackId::NONE,
            });
            visitor.block(&BlockView {
                addr: live.addr,
                size: live.size,
                requested: live.size,
                state: BlockState::Allocated,
                slot: Some(poolsim_core::Slot(live.slot)),
                stack: StackId::NONE,
            });
        }
    }
}

impl Drop for DriverPool {
    fn drop(&mut self) {
        let _ = self.context.enter();
        for live in std::mem::take(&mut self.live).into_iter().flatten() {
            let _ = self.free_in_order(&live);
        }
        let _ = self.context.synchronize();
        let _ = self.context.destroy_event(self.joint);
        let _ = if self.own {
            self.context.destroy_pool(self.pool)
        } else {
            self.context.trim(self.pool, 0)
        };
    }
}
