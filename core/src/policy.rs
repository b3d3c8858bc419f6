//! The contract of an allocator.

use crate::device::Device;
use crate::error::AllocError;
use crate::event::PoolFlags;
use crate::heap::{HeapImage, HeapVisitor};
use crate::units::{BlockId, Bytes, DevAddr, PoolId, Slot, StreamId};

/// What a program asks an allocator for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocRequest {
    /// Bytes, never 0.
    pub size: Bytes,
    /// The stream whose work will use the memory first.
    pub stream: StreamId,
    /// The pool that the request is directed to.
    pub pool: PoolId,
    /// The trace's name for the allocation, for policies that plan ahead and for heap walks.
    pub slot: Slot,
}

/// What a program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The handle to free it with.
    pub block: BlockId,
    /// First address.
    pub addr: DevAddr,
    /// Length in bytes; at least the request's size.
    pub size: Bytes,
}

/// A quantity with its highest value so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    /// Now.
    pub current: u64,
    /// Highest value, noted at every single increase.
    pub peak: u64,
}

impl Gauge {
    /// Adds `n` and notes the peak.
    #[inline]
    pub fn add(&mut self, n: u64) {
        self.current += n;
        self.peak = self.peak.max(self.current);
    }

    /// Takes `n` off.
    #[inline]
    pub fn sub(&mut self, n: u64) {
        debug_assert!(self.current >= n, "gauge would fall below 0");
        self.current -= n;
    }
}

/// What a policy says of itself at any time, at no cost.
///
/// `requested ≤ active ≤ reserved` and `allocated ≤ active`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes asked for by the blocks that are active.
    pub requested: Gauge,
    /// Bytes of blocks that the program holds.
    pub allocated: Gauge,
    /// `allocated` and the blocks whose free still waits for other streams.
    pub active: Gauge,
    /// Bytes held from the device.
    pub reserved: Gauge,
    /// Requests that were refused.
    pub ooms: u64,
    /// Times that the policy released its cache and tried again.
    pub retries: u64,
}

/// What happens to a private pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolOp {
    /// The pool has these properties. Comes before any request to it.
    Declare(PoolFlags),
    /// A redirection of requests to it starts.
    Open,
    /// It ends.
    Close,
    /// Its owner is gone: its memory may go at the next release.
    Drop,
    /// Its owner is gone and its memory is to be released at once.
    Destroy,
}

/// An allocator. Single-threaded, deterministic, the same code on every device.
///
/// Timeline of one allocation: `malloc`, then any number of `record_stream`, then `free`. If the block was
/// used on other streams, a policy that respects streams takes a fence of each at `free` and keeps
/// the block out of reuse until they passed, which it learns by polling the device in later calls.
/// The engine never frees twice and never names a block that was not granted; that is checked before
/// the policy sees it.
pub trait Policy: Send {
    /// Serves a request or refuses it. On refusal the policy is in a state from which it can go on.
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError>;

    /// Takes a block back. Cannot fail.
    fn free(&mut self, dev: &mut dyn Device, block: BlockId);

    /// The block is used on a further stream. The default suits policies whose memory never moves
    /// between streams before a host wait.
    fn record_stream(&mut self, dev: &mut dyn Device, block: BlockId, stream: StreamId);

    /// Gives unused memory back to the device; returns how many bytes.
    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes;

    /// Something happened to a private pool. The default serves all pools from one heap.
    fn pool(&mut self, dev: &mut dyn Device, pool: PoolId, op: PoolOp) {
        let _ = (dev, pool, op);
    }

    /// The host waited for a stream, or for the device (`None`), in the recorded program. The device has
    /// done its part before this call.
    fn synchronized(&mut self, dev: &mut dyn Device, stream: Option<StreamId>) {
        let _ = (dev, stream);
    }

    /// Present state, O(1).
    fn stats(&self) -> &PoolStats;

    /// Walks the heap, range by range in any order that is the same on every run.
    fn visit(&self, visitor: &mut dyn HeapVisitor);

    /// Takes over a recorded heap before the first event. Returns the block of each live slot, in
    /// the image's order, or `None` if this policy cannot start from a foreign heap; the engine
    /// then sends the live allocations as requests.
    ///
    /// Blocks in state `Pending` are restored as if the program still held them, and are returned too: the
    /// trace frees each by a `FreeLater` before anything else, which the engine then does not note in the log.
    fn restore(&mut self, dev: &mut dyn Device, heap: &HeapImage) -> Option<Vec<(Slot, BlockId)>> {
        let _ = (dev, heap);
        None
    }

    /// Statistics in the words of the allocator that this policy reproduces (`torch.cuda.memory_stats()`),
    /// in its own order. Empty if it has none.
    fn native_stats(&self) -> Vec<(String, i64)> {
        Vec::new()
    }
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        (**self).malloc(dev, req)
    }
    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        (**self).free(dev, block);
    }
    fn record_stream(&mut self, dev: &mut dyn Device, block: BlockId, stream: StreamId) {
        (**self).record_stream(dev, block, stream);
    }
    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        (**self).empty_cache(dev)
    }
    fn pool(&mut self, dev: &mut dyn Device, pool: PoolId, op: PoolOp) {
        (**self).pool(dev, pool, op);
    }
    fn synchronized(&mut self, dev: &mut dyn Device, stream: Option<StreamId>) {
        (**self).synchronized(dev, stream);
    }
    fn stats(&self) -> &PoolStats {
        (**self).stats()
    }
    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        (**self).visit(visitor);
    }
    fn restore(&mut self, dev: &mut dyn Device, heap: &HeapImage) -> Option<Vec<(Slot, BlockId)>> {
        (**self).restore(dev, heap)
    }
    fn native_stats(&self) -> Vec<(String, i64)> {
        (**self).native_stats()
    }
}
