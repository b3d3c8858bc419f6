//! No caching on the real driver: `cudaMalloc` and `cudaFree` for every block.

use crate::call::Context;
use crate::calls::CallLog;
use crate::device::CudaDevice;
use crate::gates::Gates;
use crate::latency::Latency;
use crate::live::LiveBlocks;
use crate::metered::Metered;
use poolsim_core::{
    Action, AllocError, AllocRequest, BlockId, Bytes, Device, DeviceError, DeviceOp, Grant,
    HeapVisitor, OomCause, Policy, PoolStats, StreamId, SyncScope,
};
use std::sync::Arc;
use std::time::Instant;

/// Every request is a `cudaMalloc` of its very size, every free a `cudaFree`.
///
/// Reserved bytes are what the device has less of free memory than before the first request, asked after each call; what
/// other processes take meanwhile counts too.
#[derive(Debug)]
pub struct DriverMalloc {
    context: Arc<Context>,
    gates: Arc<Gates>,
    limit: Option<Bytes>,
    free_before: Bytes,
    live: LiveBlocks,
    allocs: Latency,
    frees: Latency,
    calls: Arc<CallLog>,
}

impl DriverMalloc {
    /// One that holds nothing, on the GPU of `device`. It holds no more than `limit` from the device.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn new(device: &CudaDevice, limit: Option<Bytes>) -> Result<DriverMalloc, DeviceError> {
        let context = device.context().clone();
        Ok(DriverMalloc {
            free_before: context.memory()?.0,
            gates: device.gates().clone(),
            calls: device.calls().clone(),
            context,
            limit,
            live: LiveBlocks::default(),
            allocs: Latency::default(),
            frees: Latency::default(),
        })
    }

    fn refresh(&mut self) {
        if let Ok((free, _)) = self.context.memory() {
            let held = self.live.stats.requested.current;
            let reserved = self.free_before.saturating_sub(free).max(held);
            self.live.set_held(held, reserved);
        }
    }
}

impl Metered for DriverMalloc {
    fn allocs(&self) -> &Latency {
        &self.allocs
    }

    fn frees(&self) -> &Latency {
        &self.frees
    }

    fn driver_calls(&self) -> Vec<(DeviceOp, &Latency)> {
        vec![(DeviceOp::Alloc, &self.allocs), (DeviceOp::Free, &self.frees)]
    }
}

impl Policy for DriverMalloc {
    fn malloc(&mut self, _: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        let reserved = self.live.stats.reserved.current;
        if self.limit.is_some_and(|limit| reserved.saturating_add(req.size) > limit) {
            return Err(self.live.refuse(req.size, OomCause::Limit));
        }
        let start = Instant::now();
        let result = self.context.alloc(req.size);
        let time = self.allocs.since(start);
        self.calls.add(DeviceOp::Alloc, req.size, time);
        let answered = self.live.answer(&req, result);
        self.refresh();
        answered
    }

    /// `cudaFree` waits for the work of every stream by itself.
    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        let live = self.live.take(block);
        let start = Instant::now();
        let result = self.context.free(live.addr);
        let time = self.frees.since(start);
        self.calls.add(DeviceOp::Free, live.size, time);
        if let Err(e) = result {
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
        let _ = dev.synchronize(SyncScope::Device);
        0
    }

    fn stats(&self) -> &PoolStats {
        &self.live.stats
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.live.visit(visitor);
    }
}

impl Drop for DriverMalloc {
    fn drop(&mut self) {
        let _ = self.context.enter();
        self.gates.open_all();
        for live in self.live.take_all() {
            let _ = self.context.free(live.addr);
        }
    }
}
