//! Times every call of a policy.

use crate::latency::Latency;
use crate::metered::Metered;
use poolsim_core::{
    AllocError, AllocRequest, BlockId, Bytes, Device, Grant, HeapImage, HeapVisitor, Policy,
    PoolId, PoolOp, PoolStats, Slot, StreamId,
};
use std::time::Instant;

/// A policy whose allocations and frees are timed, driver calls included.
pub struct Timed<P> {
    /// The policy.
    pub inner: P,
    allocs: Latency,
    frees: Latency,
}

impl<P: Policy> Timed<P> {
    /// Times `inner` from now on.
    pub fn new(inner: P) -> Self {
        Timed { inner, allocs: Latency::default(), frees: Latency::default() }
    }
}

impl<P: Policy> Metered for Timed<P> {
    fn allocs(&self) -> &Latency {
        &self.allocs
    }

    fn frees(&self) -> &Latency {
        &self.frees
    }
}

impl<P: Policy> Policy for Timed<P> {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        let start = Instant::now();
        let grant = self.inner.malloc(dev, req);
        self.allocs.since(start);
        grant
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        let start = Instant::now();
        self.inner.free(dev, block);
        self.frees.since(start);
    }

    fn record_stream(&mut self, dev: &mut dyn Device, block: BlockId, stream: StreamId) {
        self.inner.record_stream(dev, block, stream);
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        self.inner.empty_cache(dev)
    }

    fn pool(&mut self, dev: &mut dyn Device, pool: PoolId, op: PoolOp) {
        self.inner.pool(dev, pool, op);
    }

    fn synchronized(&mut self, dev: &mut dyn Device, stream: Option<StreamId>) {
        self.inner.synchronized(dev, stream);
    }

    fn stats(&self) -> &PoolStats {
        self.inner.stats()
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.inner.visit(visitor);
    }

    fn restore(&mut self, dev: &mut dyn Device, heap: &HeapImage) -> Option<Vec<(Slot, BlockId)>> {
        self.inner.restore(dev, heap)
    }

    fn native_stats(&self) -> Vec<(String, i64)> {
        self.inner.native_stats()
    }
}
