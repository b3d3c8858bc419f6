//! What allocators share whose memory moves between streams: a heap, frees that wait, and the order of streams.

use crate::arena::{Arena, RangeNo, TOO_LARGE};
use crate::deferred::DeferredFrees;
use crate::registry::BuildEnv;
use poolsim_core::{
    Action, AllocError, AllocRequest, BlockId, Bytes, Device, DeviceError, Grant, OomCause, PoolId,
    StreamId,
};

/// An arena whose blocks in use lie in the lane of the stream that they were asked for.
#[derive(Clone, Debug, Default)]
pub struct Ordered {
    /// The blocks.
    pub arena: Arena,
    deferred: DeferredFrees,
    /// Fences were taken that nobody polled for since.
    unpolled: bool,
    #[cfg(debug_assertions)]
    calls: u64,
}

impl Ordered {
    /// An empty heap. A memory fraction in `env` limits what it holds.
    pub fn new(env: &BuildEnv) -> Self {
        let limit = env.memory_fraction.map(|x| (env.caps.total as f64 * x) as Bytes);
        Ordered { arena: Arena::with_limit(limit), ..Ordered::default() }
    }

    /// The stream that a block in use was asked for.
    #[inline]
    pub fn stream_of(&self, block: BlockId) -> StreamId {
        self.arena.lane(self.arena.lane_of(block)).stream
    }

    /// A block in use is used on a further stream.
    pub fn record_stream(&mut self, block: BlockId, stream: StreamId) {
        if self.stream_of(block) != stream {
            self.arena.share(block);
            self.deferred.note_use(block, stream);
        }
    }

    /// The program freed a block: whether it is free now. If other streams used it, [`Ordered::settled`] has it later.
    #[inline]
    pub fn retire(&mut self, dev: &mut dyn Device, block: BlockId) -> bool {
        if self.arena.is_shared(block) {
            self.arena.suspend(block);
            self.deferred.defer(dev, block);
            return false;
        }
        self.arena.vacate(block);
        true
    }

    /// The blocks whose other streams are done since the last call. The caller vacates each and puts it back before it
    /// turns to the next.
    #[inline]
    pub fn settled(&mut self, dev: &mut dyn Device) -> Vec<BlockId> {
        self.checked();
        if self.deferred.is_empty() && !self.unpolled { Vec::new() } else { self.poll(dev) }
    }

    /// In debug builds, proves the arena's invariants: at each of the first calls, later now and then.
    #[inline]
    fn checked(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.calls += 1;
            if self.calls <= 512 || self.calls.is_multiple_of(1024) {
                self.arena.check(false);
            }
        }
    }

    #[cold]
    fn poll(&mut self, dev: &mut dyn Device) -> Vec<BlockId> {
        self.unpolled = false;
        let mut settled = Vec::new();
        self.deferred.settle(dev, &mut settled);
        for &block in &settled {
            let (addr, size) = (self.arena.addr(block), self.arena.requested(block));
            dev.note(Action::FreeCompleted, addr, size, self.stream_of(block));
        }
        settled
    }

    /// Waits on the host until every free that waits can complete; the same blocks as [`Ordered::settled`].
    pub fn wait_for_frees(&mut self, dev: &mut dyn Device) -> Vec<BlockId> {
        if self.deferred.is_empty() || self.deferred.synchronize(dev).is_err() {
            return Vec::new();
        }
        self.poll(dev)
    }

    /// Makes later work of `stream` wait for all work that `earlier` has so far, so that memory last used on one
    /// may be used on the other.
    pub fn order(
        &mut self,
        dev: &mut dyn Device,
        earlier: StreamId,
        stream: StreamId,
    ) -> Result<(), DeviceError> {
        self.unpolled = true;
        let fence = dev.record(earlier)?;
        dev.wait(stream, fence)
    }

    /// If the program holds nothing, waits on the host for its last frees; the same blocks as [`Ordered::settled`].
    pub fn last_frees(&mut self, dev: &mut dyn Device) -> Vec<BlockId> {
        let unused = self.arena.stats().allocated.current == 0;
        if unused { self.wait_for_frees(dev) } else { Vec::new() }
    }

    /// Whether the program holds nothing and no free waits.
    pub fn is_unused(&self) -> bool {
        self.arena.stats().active.current == 0
    }

    /// Gives back every range; no block may be in use, and none in an index. Returns the bytes that went and the
    /// blocks of ranges that the device refused to take.
    pub fn give_all_back(&mut self, dev: &mut dyn Device) -> (Bytes, Vec<BlockId>) {
        let ranges: Vec<RangeNo> = self.arena.ranges().collect();
        let (mut given, mut left) = (0, Vec::new());
        for range in ranges {
            let whole = self.make_whole(range);
            match self.arena.release(dev, range) {
                Ok(bytes) => given += bytes,
                Err(_) => left.push(whole),
            }
        }
        (given, left)
    }

    /// Merges the blocks of a range, all free and in no index.
    pub fn make_whole(&mut self, range: RangeNo) -> BlockId {
        let first = self.arena.first_block(range);
        while let Some(next) = self.arena.following(first) {
            self.arena.merge(first, None, Some(next));
        }
        first
    }

    /// Counts a refusal and says why.
    #[cold]
    pub fn refuse(
        &mut self,
        dev: &dyn Device,
        requested: Bytes,
        rounded: Bytes,
        why: Refusal,
    ) -> AllocError {
        if let Refusal::Device(error) = why {
            return error.into();
        }
        let largest = self.arena.largest_free(PoolId::DEFAULT);
        let mut refused = self.arena.refuse(dev, requested, rounded, largest);
        if let (AllocError::OutOfMemory { cause, .. }, Refusal::Limit) = (&mut refused, why) {
            *cause = OomCause::Limit;
        }
        refused
    }
}

/// What an allocator over an [`Ordered`] heap says of itself, for [`malloc`].
pub trait Serves {
    /// Its heap.
    fn heap(&mut self) -> &mut Ordered;
    /// The size of the smallest block that serves `asked` bytes. `asked` is below [`TOO_LARGE`].
    fn rounded(&self, asked: Bytes) -> Bytes;
    /// Puts a block to use for `req`, whose size after rounding is `size`.
    fn serve(
        &mut self,
        dev: &mut dyn Device,
        req: &AllocRequest,
        size: Bytes,
    ) -> Result<BlockId, Refusal>;
    /// A free that waited is complete: vacates the block and puts it back.
    fn complete(&mut self, block: BlockId);
}

/// Serves a request. Before it is refused, the host waits for pending frees, and it is tried again.
#[inline]
pub fn malloc<A: Serves>(
    allocator: &mut A,
    dev: &mut dyn Device,
    req: &AllocRequest,
) -> Result<Grant, AllocError> {
    if req.size >= TOO_LARGE {
        return Err(allocator.heap().refuse(dev, req.size, req.size, Refusal::Full));
    }
    for block in allocator.heap().settled(dev) {
        allocator.complete(block);
    }
    let size = allocator.rounded(req.size);
    loop {
        let refusal = match allocator.serve(dev, req, size) {
            Ok(block) => return Ok(allocator.heap().arena.grant(block)),
            Err(refusal) => refusal,
        };
        let freed = allocator.heap().wait_for_frees(dev);
        if freed.is_empty() {
            return Err(allocator.heap().refuse(dev, req.size, size, refusal));
        }
        freed.into_iter().for_each(|block| allocator.complete(block));
    }
}

/// Why a heap did not grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The allocator's own bound.
    Limit,
    /// The device has no memory or no addresses left, or the process may take no more.
    Full,
    /// The device failed in another way.
    Device(DeviceError),
}

impl From<DeviceError> for Refusal {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::OutOfMemory { .. } | DeviceError::OutOfAddresses { .. } => Refusal::Full,
            other => Refusal::Device(other),
        }
    }
}
