//! RMM's `arena_memory_resource`.

mod superblocks;

use crate::arena::{LaneId, TOO_LARGE};
use crate::ordered::{Ordered, Refusal};
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind};
use crate::registry::{BuildEnv, PolicyDef, no_warnings};
use crate::rmm_pool::VERSION;
use crate::rmm_pool::pool::ALIGN;
use poolsim_core::{
    AllocError, AllocRequest, BlockId, Bytes, Device, Grant, HeapVisitor, Policy, PoolId,
    PoolStats, StreamId, SyncScope,
};
use superblocks::{MIN_SIZE, Superblocks};

const ARENA_SIZE: ParamDef = ParamDef {
    key: "arena_size",
    kind: ParamKind::Bytes { min: MIN_SIZE, multiple_of: ALIGN },
    default: ParamDefault::Unset("half of the device's free memory"),
    unit: "bytes",
    doc: "What the global arena takes from the device at the first request, once and for all.",
    effect: Effect::Simulated,
};

/// `rmm-arena`.
pub static DEF: PolicyDef = PolicyDef {
    name: "rmm-arena",
    aliases: &[],
    presets: &[],
    summary: "RAPIDS RMM's arenas: a global one of fixed size, and one for each stream",
    rules: "The global arena takes `arena_size` from the device at the first request and never more. It is cut into \
            superblocks of at least 1 MiB.\n\
            A request is rounded up to a multiple of 256 bytes. Up to 1 MiB it gets the first free block that is large \
            enough, by address, of its stream's superblocks; failing that, the stream takes over the global arena's first \
            superblock with such a block, of an empty one just 1 MiB if another 1 MiB stays.\n\
            A larger request is served by the global arena: the first superblock with a block that is large enough, of an \
            empty one just what is needed if 1 MiB stays.\n\
            If nothing serves, the host waits for the device, all superblocks go back to the global arena, and it is tried \
            once more.\n\
            A freed block merges with its neighbours in its superblock. Empty superblocks of the global arena merge. To free \
            more than 1 MiB, or a block whose superblock its stream has no more, the host waits for the stream.\n\
            One block that other streams used waits for them first. empty_cache stands for destroying the arena, and does \
            nothing while the program holds a block.",
    source: "RAPIDS RMM, cpp/include/rmm/mr/detail/arena.hpp and cpp/src/mr/detail/arena_memory_resource_impl.cpp",
    checked_against: "recordings of RMM 26.10 on an H200: every pointer and every byte held, on one stream; its own unit tests",
    params: &[ARENA_SIZE],
    // Where the arena's one range is refused, every request is, however small.
    refuses: &[],
    version: |_| VERSION.into(),
    check: no_warnings,
    build: |p, env| Ok(Box::new(RmmArena::new(p.bytes_if_set(ARENA_SIZE.key), env))),
};

/// RMM's arena as a policy.
#[derive(Clone, Debug)]
pub struct RmmArena {
    heap: Ordered,
    superblocks: Superblocks,
    /// The owner of the superblocks that no stream has.
    global: LaneId,
    size: Option<Bytes>,
    started: bool,
}

impl RmmArena {
    fn new(size: Option<Bytes>, env: &BuildEnv) -> Self {
        let mut heap = Ordered::new(env);
        let global = heap.arena.lane_for(StreamId(0), PoolId(1));
        RmmArena { heap, superblocks: Superblocks::default(), global, size, started: false }
    }

    #[cold]
    fn start(&mut self, dev: &mut dyn Device) -> Result<(), Refusal> {
        let half = || {
            let half = dev.free_bytes() / 2;
            self.heap.arena.limit().map_or(half, |limit| half.min(limit))
        };
        let size = self.size.unwrap_or_else(half) / ALIGN * ALIGN;
        if size < MIN_SIZE {
            return Err(Refusal::Full);
        }
        let lane = self.heap.arena.lane_for(StreamId(0), PoolId::DEFAULT);
        let first = self.heap.arena.reserve_exactly(dev, size, lane)?;
        self.superblocks.add_range(&mut self.heap.arena, first, self.global);
        self.started = true;
        Ok(())
    }

    #[inline]
    fn take(&mut self, size: Bytes, lane: LaneId) -> Option<BlockId> {
        let arena = &mut self.heap.arena;
        if size > MIN_SIZE {
            return self.superblocks.take_from_global(arena, size, self.global);
        }
        if let Some(block) = self.superblocks.take(arena, size, lane) {
            return Some(block);
        }
        let block = self.superblocks.take_from_global(arena, size, self.global)?;
        self.superblocks.give_to(arena, block, lane);
        Some(block)
    }

    /// Waits for the device and collects all superblocks. A device that fails to wait leaves them where they are.
    #[cold]
    fn defragment(&mut self, dev: &mut dyn Device) {
        if dev.synchronize(SyncScope::Device).is_err() {
            return;
        }
        self.settle(dev);
        self.superblocks.collect(&mut self.heap.arena, self.global);
    }

    fn settle(&mut self, dev: &mut dyn Device) {
        for block in self.heap.settled(dev) {
            self.complete(dev, block);
        }
    }

    fn complete(&mut self, dev: &mut dyn Device, block: BlockId) {
        self.heap.arena.vacate(block);
        self.put(dev, block);
    }

    fn put(&mut self, dev: &mut dyn Device, block: BlockId) {
        let arena = &mut self.heap.arena;
        let (lane, large) = (arena.lane_of(block), arena.size(block) > MIN_SIZE);
        let owner = self.superblocks.owner(block);
        let elsewhere = owner != lane && !(large && owner == self.global);
        for _ in 0..u32::from(large) + u32::from(elsewhere) {
            // A wait that fails is RMM's to ignore: it frees without looking at the answer.
            let _ = dev.synchronize(SyncScope::Stream(arena.lane(lane).stream));
        }
        self.superblocks.put(arena, block, self.global);
    }

    fn destroy(&mut self, dev: &mut dyn Device) -> Bytes {
        let (given, left) = self.heap.give_all_back(dev);
        self.superblocks = Superblocks::default();
        self.started = !left.is_empty();
        for block in left {
            self.superblocks.add_range(&mut self.heap.arena, block, self.global);
        }
        given
    }
}

impl Policy for RmmArena {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        if req.size >= TOO_LARGE {
            return Err(self.heap.refuse(dev, req.size, req.size, Refusal::Full));
        }
        self.settle(dev);
        let size = req.size.next_multiple_of(ALIGN);
        if !self.started
            && let Err(refusal) = self.start(dev)
        {
            return Err(self.heap.refuse(dev, req.size, size, refusal));
        }
        let lane = self.heap.arena.lane_for(req.stream, PoolId::DEFAULT);
        let block = self.take(size, lane).or_else(|| {
            self.defragment(dev);
            self.take(size, lane)
        });
        let Some(block) = block else {
            return Err(self.heap.refuse(dev, req.size, size, Refusal::Limit));
        };
        let rest = self.heap.arena.occupy(block, size, &req);
        self.superblocks.cut(&self.heap.arena, block, rest);
        self.heap.arena.move_to_lane(block, lane);
        Ok(self.heap.arena.grant(block))
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        if self.heap.retire(dev, block) {
            self.put(dev, block);
        }
    }

    fn record_stream(&mut self, _: &mut dyn Device, block: BlockId, stream: StreamId) {
        self.heap.record_stream(block, stream);
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        for block in self.heap.last_frees(dev) {
            self.complete(dev, block);
        }
        if self.heap.is_unused() { self.destroy(dev) } else { 0 }
    }

    fn stats(&self) -> &PoolStats {
        self.heap.arena.stats()
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.heap.arena.visit(visitor);
    }

    fn native_stats(&self) -> Vec<(String, i64)> {
        vec![
            ("arena_size".into(), self.stats().reserved.current as i64),
            ("superblocks".into(), self.superblocks.len() as i64),
        ]
    }
}
