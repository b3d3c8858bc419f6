//! The driver's own stream-ordered pool (`cudaMallocAsync`), as PyTorch's `backend:cudaMallocAsync` uses it.
//!
//! NVIDIA does not document what the pool decides. The rules here were inferred from a real pool's answers and are
//! numbered as in the policy's `rules`. In short:
//!
//! ```text
//! addresses  one range of twice the device's memory, tiled by blocks
//! memory     pages of 32 MiB, each backed or not; only the common list holds unbacked ones
//! free       into the list of the freeing stream; merges with neighbours there
//! malloc     own list → common list, without holes → other streams' finished frees
//!            → all finished frees to the common list, best fit there, missing pages moved from its free ones, then new
//! host wait  what is finished goes to the common list; pages above the release threshold go back
//! ```
//!
//! A free is finished when the GPU has passed it. Where the device knows of no work in flight, that is at once;
//! else a fence at the free says when.

mod backing;
mod bits;
mod blocks;
mod calls;
#[cfg(debug_assertions)]
mod check;
pub mod def;
mod order;
mod pending;
mod pool;
mod stream;
mod supply;
mod walk;

pub use backing::PAGE;
pub use def::DEF;
pub use order::EventMark;
pub use pool::Attributes;

use crate::arena::TOO_LARGE;
use crate::registry::BuildEnv;
use blocks::Block;
use order::Waited;
use pending::{Free, Pending};
use pool::{Pool, Refusal};
use poolsim_core::{
    Action, AllocError, AllocRequest, BlockId, Bytes, Device, DeviceOp, Grant, HeapVisitor,
    OomCause, Policy, PoolStats, StreamId, SyncScope,
};
use rustc_hash::FxHashMap;

/// What every size is rounded up to.
const QUANTUM: Bytes = 512;

/// The pool of one device, behind PyTorch's rules of who frees where.
#[derive(Clone, Debug)]
pub struct CudaAsync {
    pool: Pool,
    stats: PoolStats,
    /// The most that the program may hold, as requested: PyTorch's memory fraction.
    limit: Option<Bytes>,
    /// What it holds, as requested.
    held: Bytes,
    /// Further streams that use a live block.
    uses: FxHashMap<u32, Vec<StreamId>>,
    pending: Pending,
    /// The stream of the latest request.
    latest: StreamId,
    #[cfg(debug_assertions)]
    calls: u64,
}

impl CudaAsync {
    /// An empty pool.
    pub fn new(attributes: Attributes, env: &BuildEnv) -> Self {
        CudaAsync {
            pool: Pool::new(attributes, env.caps.total),
            stats: PoolStats::default(),
            limit: env.memory_fraction.map(|x| (env.caps.total as f64 * x) as Bytes),
            held: 0,
            uses: FxHashMap::default(),
            pending: Pending::default(),
            latest: StreamId(0),
            #[cfg(debug_assertions)]
            calls: 0,
        }
    }

    /// In debug builds, proves the pool's invariants: after each of the first calls, later now and then.
    #[inline]
    fn checked(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.calls += 1;
            if self.calls <= 512 || self.calls.is_multiple_of(1024) {
                self.pool.check();
            }
        }
    }

    /// Brings `reserved` up to date. Within a call, it moves in one direction only.
    #[inline]
    fn count_reserved(&mut self) {
        let reserved = &mut self.stats.reserved;
        reserved.current = self.pool.reserved();
        reserved.peak = reserved.peak.max(reserved.current);
    }

    /// Learns which frees are finished.
    #[cold]
    fn settle(&mut self, dev: &mut dyn Device) {
        self.pool.settle(dev);
        self.complete_finished(dev);
    }

    fn complete_finished(&mut self, dev: &mut dyn Device) {
        let Some(unifying) = self.pool.streams.get(self.pool.unifying as usize) else { return };
        let finished = unifying.finished();
        while let Some(free) = self.pending.take_finished(finished) {
            self.complete(dev, &free);
        }
    }

    fn complete(&mut self, dev: &mut dyn Device, free: &Free) {
        self.stats.active.sub(free.end - free.start);
        self.stats.requested.sub(free.requested);
        let addr = self.pool.backing.base() + free.start;
        dev.note(Action::FreeCompleted, addr, free.requested, free.stream);
    }

    fn waited(&mut self, dev: &mut dyn Device, what: Waited<'_>) -> Bytes {
        let given = self.pool.waited(dev, what);
        self.complete_finished(dev);
        self.count_reserved();
        self.checked();
        given
    }

    /// The program gives a live block up.
    #[inline]
    fn give_up(&mut self, block: &Block) {
        self.held -= block.requested;
        self.stats.allocated.sub(block.size());
    }

    /// PyTorch makes its unifying stream wait for every stream that used the block, and frees it there.
    #[cold]
    fn free_shared(&mut self, dev: &mut dyn Device, id: u32) {
        let b = *self.pool.blocks.get(id);
        self.give_up(&b);
        let mut streams = vec![b.stream];
        streams.extend(self.uses.remove(&id).unwrap_or_default());
        let stamp = self.pool.free_behind(dev, id, &streams);
        let Block { start, end, requested, stream, .. } = b;
        self.pending.add(Free { start, end, requested, stream, stamp });
    }

    #[inline]
    fn grant(&mut self, id: u32, req: &AllocRequest) -> Grant {
        let b = self.pool.blocks.get_mut(id);
        b.requested = req.size;
        b.slot = req.slot;
        b.stream = req.stream;
        b.shared = false;
        let (start, size) = (b.start, b.size());
        self.held += req.size;
        self.stats.requested.add(req.size);
        self.stats.allocated.add(size);
        self.stats.active.add(size);
        Grant { block: BlockId(id), addr: self.pool.backing.base() + start, size }
    }

    #[cold]
    fn refuse(&mut self, rounded: Bytes, requested: Bytes, cause: OomCause) -> AllocError {
        self.stats.ooms += 1;
        AllocError::OutOfMemory {
            requested,
            rounded,
            reserved: self.stats.reserved.current,
            largest_free: self.pool.largest_free(),
            cause,
        }
    }

    #[cold]
    fn refused(&mut self, refusal: Refusal, rounded: Bytes, requested: Bytes) -> AllocError {
        let cause = match refusal {
            Refusal::Device(error) => return error.into(),
            Refusal::DeviceFull => OomCause::DeviceFull,
            Refusal::NoAddresses if rounded > self.pool.backing.len() => OomCause::TooLarge,
            Refusal::NoAddresses | Refusal::Limit => OomCause::Limit,
        };
        self.refuse(rounded, requested, cause)
    }

    /// A request was served from memory with frees in it that are not finished: its stream was made to wait.
    #[cold]
    fn complete_within(&mut self, dev: &mut dyn Device, id: u32) {
        let Block { start, end, .. } = *self.pool.blocks.get(id);
        while let Some(free) = self.pending.take_touching(start, end) {
            self.complete(dev, &free);
        }
    }
}

impl Policy for CudaAsync {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        if req.size >= TOO_LARGE {
            return Err(self.refuse(req.size, req.size, OomCause::TooLarge));
        }
        let size = req.size.next_multiple_of(QUANTUM);
        if self.limit.is_some_and(|limit| self.held + req.size > limit) {
            return Err(self.refuse(size, req.size, OomCause::Limit));
        }
        if self.pool.tracking() {
            self.settle(dev);
        }
        self.latest = req.stream;
        dev.charge(DeviceOp::PoolMalloc, 1, size);
        let result = self.pool.malloc(dev, size, req.stream);
        self.count_reserved();
        self.checked();
        let id = match result {
            Ok(id) => id,
            Err(refusal) => return Err(self.refused(refusal, size, req.size)),
        };
        if !self.pending.is_empty() {
            self.complete_within(dev, id);
        }
        Ok(self.grant(id, &req))
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        let b = *self.pool.blocks.get(block.0);
        dev.charge(DeviceOp::PoolFree, 1, b.size());
        if b.shared {
            self.free_shared(dev, block.0);
        } else {
            self.give_up(&b);
            self.stats.active.sub(b.size());
            self.stats.requested.sub(b.requested);
            self.pool.free(dev, block.0, b.stream);
        }
        self.checked();
    }

    fn record_stream(&mut self, _: &mut dyn Device, block: BlockId, stream: StreamId) {
        let b = self.pool.blocks.get_mut(block.0);
        if b.stream == stream {
            return;
        }
        b.shared = true;
        let uses = self.uses.entry(block.0).or_default();
        if !uses.contains(&stream) {
            uses.push(stream);
        }
    }

    /// As PyTorch: waits for the device, then trims the pool to nothing.
    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        let before = self.pool.reserved();
        if dev.synchronize(SyncScope::Device).is_ok() {
            self.waited(dev, Waited::Device);
        }
        self.trim_to(dev, 0);
        before - self.pool.reserved()
    }

    fn synchronized(&mut self, dev: &mut dyn Device, stream: Option<StreamId>) {
        self.waited(dev, stream.map_or(Waited::Device, Waited::Stream));
    }

    fn stats(&self) -> &PoolStats {
        &self.stats
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.walk(visitor);
    }

    /// What `torch.cuda.memory_stats()` fills in under this backend; PyTorch leaves the other keys at 0.
    fn native_stats(&self) -> Vec<(String, i64)> {
        let PoolStats { allocated, reserved, .. } = self.stats;
        let mut out = Vec::new();
        for (name, gauge) in [
            ("active_bytes", allocated),
            ("allocated_bytes", allocated),
            ("reserved_bytes", reserved),
        ] {
            out.push((format!("{name}.all.current"), gauge.current as i64));
            out.push((format!("{name}.all.peak"), gauge.peak as i64));
        }
        out
    }
}
