//! The pool proper, which `rmm-binning` builds on: where its blocks come from and where they go.

use super::lists::{Coalescing, NO_STREAM, StreamLists};
use crate::arena::LaneId;
use crate::ordered::{Ordered, Refusal};
use crate::registry::BuildEnv;
use poolsim_core::{BlockId, Bytes, Device, DeviceOp, PoolId, StreamId};

/// RMM aligns everything to this (`CUDA_ALLOCATION_ALIGNMENT`).
pub const ALIGN: Bytes = 256;

/// RMM's pool: blocks cut from ranges that it takes from the device and keeps.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The blocks.
    pub heap: Ordered,
    free: StreamLists<Coalescing>,
    settings: Settings,
    started: bool,
}

/// What a pool is to be.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What it takes at the first request.
    pub initial: Bytes,
    /// What it may hold at most.
    pub maximum: Option<Bytes>,
    /// The stream that RMM files memory under that it takes before any request: CUDA's default stream.
    pub default_stream: StreamId,
}

impl Pool {
    /// An empty pool.
    pub fn new(settings: Settings, env: &BuildEnv) -> Self {
        let mut heap = Ordered::new(env);
        // The first lane: RMM makes the event of its default stream before all others.
        heap.arena.lane_for(settings.default_stream, PoolId::DEFAULT);
        Pool { heap, free: StreamLists::default(), settings, started: false }
    }

    /// CUDA's default stream.
    pub fn default_stream(&self) -> StreamId {
        self.settings.default_stream
    }

    /// The lane of a stream's blocks.
    #[inline]
    pub fn lane(&mut self, stream: StreamId) -> LaneId {
        self.heap.arena.lane_for(stream, PoolId::DEFAULT)
    }

    /// A free block of at least `size` bytes, a multiple of [`ALIGN`], that `lane` may use. What is left of it when it
    /// is cut is to be [`Pool::put`] back as it is.
    pub fn take(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
    ) -> Result<BlockId, Refusal> {
        if !self.started {
            self.start(dev)?;
        }
        match self.free.take(&mut self.heap, dev, size, lane) {
            Some(block) => Ok(block),
            None => self.expand(dev, size, lane),
        }
    }

    /// Adds a free block, or what is left of one, to its lane's list.
    #[inline]
    pub fn put(&mut self, block: BlockId) {
        self.free.put(&mut self.heap.arena, block);
    }

    /// The program freed a block: RMM notes how far its stream has come, for other streams to wait for.
    #[inline]
    pub fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        dev.charge(DeviceOp::Record, 1, 0);
        if self.heap.retire(dev, block) {
            self.put(block);
        }
    }

    /// A free that waited is complete.
    pub fn complete(&mut self, block: BlockId) {
        self.heap.arena.vacate(block);
        self.put(block);
    }

    #[cold]
    fn start(&mut self, dev: &mut dyn Device) -> Result<(), Refusal> {
        if self.settings.initial > 0 {
            let lane = self.lane(self.settings.default_stream);
            let block = self.grow(dev, self.settings.initial, lane)?;
            self.put(block);
        }
        self.started = true;
        Ok(())
    }

    /// How much RMM tries to take at first: as much again as it holds, or half of what the maximum leaves.
    fn first_try(&self, size: Bytes) -> Result<Bytes, Refusal> {
        let held = self.heap.arena.stats().reserved.current;
        let Some(maximum) = self.settings.maximum else { return Ok(size.max(held)) };
        let remaining = maximum.saturating_sub(held).next_multiple_of(ALIGN);
        if size > remaining { Err(Refusal::Limit) } else { Ok(size.max(remaining / 2)) }
    }

    #[cold]
    fn expand(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
    ) -> Result<BlockId, Refusal> {
        let mut attempt = self.first_try(size)?;
        loop {
            match self.grow(dev, attempt, lane) {
                Err(Refusal::Full) if attempt > size => attempt = size.max(attempt / 2),
                answer => return answer,
            }
        }
    }

    /// A new range as a free block of `lane`.
    fn grow(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
    ) -> Result<BlockId, Refusal> {
        let arena = &mut self.heap.arena;
        let shown = match arena.lane(lane).stream {
            NO_STREAM => arena.lane_for(StreamId(0), PoolId::DEFAULT),
            _ => lane,
        };
        let block = arena.reserve_exactly(dev, size, shown)?;
        arena.move_to_lane(block, lane);
        Ok(block)
    }

    /// Forgets everything and gives all ranges back, as the pool's destructor does. No block may be in use.
    pub fn destroy(&mut self, dev: &mut dyn Device) -> Bytes {
        let (given, left) = self.heap.give_all_back(dev);
        self.free = StreamLists::default();
        self.started = !left.is_empty();
        left.into_iter().for_each(|block| self.put(block));
        given
    }
}
