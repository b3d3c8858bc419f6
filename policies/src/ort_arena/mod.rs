//! ONNX Runtime's arena (`BFCArena`), which serves its CUDA provider and the host.

mod def;

pub use def::DEF;

use crate::arena::{LaneId, RangeNo};
use crate::ordered::{Ordered, Refusal, Serves, malloc};
use crate::regions::{ALIGN, Growth, Rules, share};
use crate::registry::BuildEnv;
use crate::rmm_pool::lists::{Coalescing, Lists};
use poolsim_core::{
    AllocError, AllocRequest, BlockId, Bytes, Device, Grant, HeapVisitor, Policy, PoolId,
    PoolStats, StreamId,
};

/// What an arena is to be.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How it takes regions.
    pub rules: Rules,
    /// A chunk this much longer than the request is split.
    pub max_dead: Bytes,
    /// The next region after the arena was shrunk.
    pub after_shrink: Bytes,
    /// Whether a host wait for the device shrinks it.
    pub shrinks_after_runs: bool,
}

/// The arena as a policy.
///
/// A chunk in a stream's lane is that stream's, in use or free. `nobody`'s lane has free chunks that any stream may use:
/// new regions, and what streams freed before the host waited for them.
#[derive(Clone, Debug)]
pub struct OrtArena {
    settings: Settings,
    heap: Ordered,
    free: Coalescing,
    nobody: LaneId,
    growth: Growth,
    /// The region that was taken first, which stays where regions double.
    first: Option<RangeNo>,
    allocs: u64,
    largest: Bytes,
    shrinkages: u64,
}

impl OrtArena {
    /// An empty arena.
    pub fn new(settings: Settings, env: &BuildEnv) -> Self {
        let mut heap = Ordered::new(env);
        let nobody = heap.arena.lane_for(StreamId::FOREIGN, PoolId::DEFAULT);
        OrtArena {
            settings,
            heap,
            free: Coalescing::default(),
            nobody,
            growth: Growth::new(settings.rules),
            first: None,
            allocs: 0,
            largest: 0,
            shrinkages: 0,
        }
    }

    /// The smallest free chunk of a lane or of nobody's, out of the index.
    #[inline]
    fn take(&mut self, size: Bytes, lane: LaneId) -> Option<BlockId> {
        let arena = &mut self.heap.arena;
        let own = self.free.take(arena, size, lane);
        let Some(new) = self.free.take(arena, size, self.nobody) else { return own };
        let Some(own) = own else { return Some(new) };
        let by_size = |chunk: BlockId| (arena.size(chunk), arena.addr(chunk));
        let (chosen, other) = if by_size(own) < by_size(new) { (own, new) } else { (new, own) };
        self.free.put(arena, other);
        Some(chosen)
    }

    fn obtain(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
    ) -> Result<BlockId, Refusal> {
        if let Some(chunk) = self.take(size, lane) {
            return Ok(chunk);
        }
        let region = self.growth.extend(&mut self.heap.arena, dev, size, lane)?;
        self.heap.arena.move_to_lane(region, self.nobody);
        self.first.get_or_insert(self.heap.arena.range_of(region));
        Ok(region)
    }

    /// The host waited for a lane's stream: anybody may use its free chunks.
    fn disown(&mut self, lane: LaneId) {
        let arena = &mut self.heap.arena;
        while let Some(chunk) = self.free.take(arena, 1, lane) {
            arena.move_to_lane(chunk, self.nobody);
            self.free.put(arena, chunk);
        }
    }

    /// Gives back the regions without a chunk in use, but for the first where that is to stay.
    #[cold]
    fn shrink(&mut self, dev: &mut dyn Device, keep_first: bool) -> Bytes {
        let regions: Vec<RangeNo> = self.heap.arena.ranges().collect();
        let mut given = 0;
        for region in regions {
            let unused =
                self.heap.arena.blocks_of(region).all(|chunk| self.heap.arena.is_free(chunk));
            if unused && !(keep_first && self.first == Some(region)) {
                given += self.give_back(dev, region);
            }
        }
        self.growth.continue_from(self.settings.after_shrink);
        given
    }

    /// Gives a region of free chunks back. If the device refuses, they stay what they were.
    fn give_back(&mut self, dev: &mut dyn Device, region: RangeNo) -> Bytes {
        let arena = &mut self.heap.arena;
        let chunks: Vec<BlockId> = arena.blocks_of(region).collect();
        let pieces: Vec<(Bytes, LaneId)> =
            chunks.iter().map(|&chunk| (arena.size(chunk), arena.lane_of(chunk))).collect();
        chunks.into_iter().for_each(|chunk| self.free.remove(arena, chunk));
        let whole = self.heap.make_whole(region);
        let arena = &mut self.heap.arena;
        if let Ok(bytes) = arena.release(dev, region) {
            self.shrinkages += 1;
            self.first = self.first.filter(|&first| first != region);
            return bytes;
        }
        let mut chunks = vec![whole];
        for (at, &(size, lane)) in pieces.iter().enumerate() {
            if at + 1 < pieces.len() {
                chunks.push(arena.split(chunks[at], size));
            }
            arena.move_to_lane(chunks[at], lane);
        }
        chunks.into_iter().for_each(|chunk| self.free.put(arena, chunk));
        0
    }
}

impl Serves for OrtArena {
    #[inline]
    fn heap(&mut self) -> &mut Ordered {
        &mut self.heap
    }

    #[inline]
    fn rounded(&self, asked: Bytes) -> Bytes {
        asked.next_multiple_of(ALIGN)
    }

    #[inline]
    fn serve(
        &mut self,
        dev: &mut dyn Device,
        req: &AllocRequest,
        size: Bytes,
    ) -> Result<BlockId, Refusal> {
        let lane = self.heap.arena.lane_for(req.stream, PoolId::DEFAULT);
        let chunk = self.obtain(dev, size, lane)?;
        let arena = &mut self.heap.arena;
        let share = share(arena.size(chunk), size, self.settings.max_dead);
        if let Some(rest) = arena.occupy(chunk, share, req) {
            self.free.put(arena, rest);
        }
        arena.move_to_lane(chunk, lane);
        self.allocs += 1;
        self.largest = self.largest.max(share);
        Ok(chunk)
    }

    fn complete(&mut self, chunk: BlockId) {
        self.heap.arena.vacate(chunk);
        self.free.put(&mut self.heap.arena, chunk);
    }
}

impl Policy for OrtArena {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        malloc(self, dev, &req)
    }

    fn free(&mut self, dev: &mut dyn Device, chunk: BlockId) {
        if self.heap.retire(dev, chunk) {
            self.free.put(&mut self.heap.arena, chunk);
        }
    }

    fn record_stream(&mut self, _: &mut dyn Device, chunk: BlockId, stream: StreamId) {
        self.heap.record_stream(chunk, stream);
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        for chunk in self.heap.last_frees(dev) {
            self.complete(chunk);
        }
        let session_ends = self.heap.is_unused();
        let given = self.shrink(dev, !session_ends && !self.settings.rules.exact);
        if session_ends && self.heap.arena.stats().reserved.current == 0 {
            self.growth.restart();
        }
        given
    }

    fn synchronized(&mut self, dev: &mut dyn Device, stream: Option<StreamId>) {
        for chunk in self.heap.settled(dev) {
            self.complete(chunk);
        }
        let waited_for = |other: StreamId| stream.is_none_or(|stream| stream == other);
        let lanes: Vec<LaneId> = self.heap.arena.lanes_of(PoolId::DEFAULT).collect();
        for lane in lanes {
            if lane != self.nobody && waited_for(self.heap.arena.lane(lane).stream) {
                self.disown(lane);
            }
        }
        if stream.is_none() && self.settings.shrinks_after_runs {
            self.shrink(dev, !self.settings.rules.exact);
        }
    }

    fn stats(&self) -> &PoolStats {
        self.heap.arena.stats()
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.heap.arena.visit(visitor);
    }

    fn native_stats(&self) -> Vec<(String, i64)> {
        let stats = self.stats();
        [
            ("InUse", stats.allocated.current),
            ("Limit", self.growth.limit()),
            ("MaxAllocSize", self.largest),
            ("MaxInUse", stats.allocated.peak),
            ("NumAllocs", self.allocs),
            ("NumArenaExtensions", self.heap.arena.ranges().count() as u64),
            ("NumArenaShrinkages", self.shrinkages),
            ("RequestedInUse", stats.requested.current),
            ("TotalAllocated", stats.reserved.current),
        ]
        .map(|(name, value)| (name.into(), value as i64))
        .to_vec()
    }
}
