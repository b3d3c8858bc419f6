//! No reuse at all: the upper bound that every allocator should stay below.

use crate::arena::{Arena, LaneId, RangeNo, TOO_LARGE};
use crate::deferred::DeferredFrees;
use crate::params::ParamDef;
use crate::registry::{BuildEnv, OomRule, PolicyDef, no_version, no_warnings};
use crate::stage::growth::{Exact, GROW_UNIT, Growth};
use poolsim_core::{
    Action, AllocError, AllocRequest, BlockId, Bytes, Device, DeviceError, Grant, HeapVisitor,
    Policy, PoolId, PoolOp, PoolStats, StreamId,
};
use rustc_hash::FxHashMap;

const QUANTUM: Bytes = 512;

/// `bump`.
pub static DEF: PolicyDef = PolicyDef {
    name: "bump",
    aliases: &[],
    presets: &[],
    summary: "Never reuses memory; the upper bound of what a job can take",
    rules: "A request is rounded up to a multiple of 512 bytes and gets the next addresses of its stream's and pool's range.\n\
            If they do not suffice, a new range of the needed size, up to a multiple of `unit`, is taken and the old \
            rest is abandoned.\n\
            Freed memory is counted and not used again. Only empty_cache gives ranges back, those in which nothing is live.",
    source: "the project's own; a bump allocator in any textbook",
    checked_against: "naive judges of the heap",
    params: &[ParamDef { key: "unit", ..GROW_UNIT }],
    refuses: &[OomRule::DeviceLacks],
    version: no_version,
    check: no_warnings,
    build: |p, env| Ok(Box::new(Bump::new(p.bytes("unit"), env))),
};

/// The allocator that never reuses.
#[derive(Clone, Debug)]
pub struct Bump {
    grow: Exact,
    arena: Arena,
    /// The unused rest of each lane's range. Freed neighbours are not merged into it.
    rests: FxHashMap<u32, BlockId>,
    deferred: DeferredFrees,
}

impl Bump {
    /// One that takes ranges in multiples of `unit`.
    pub fn new(unit: Bytes, env: &BuildEnv) -> Self {
        let limit = env.memory_fraction.map(|x| (env.caps.total as f64 * x) as Bytes);
        Bump {
            grow: Exact(unit),
            arena: Arena::with_limit(limit),
            rests: FxHashMap::default(),
            deferred: DeferredFrees::default(),
        }
    }

    fn rest(&self, lane: LaneId) -> Option<BlockId> {
        self.rests.get(&lane.0).copied()
    }

    fn settle(&mut self, dev: &mut dyn Device) {
        let mut settled = Vec::new();
        self.deferred.settle(dev, &mut settled);
        for block in settled {
            let stream = self.arena.lane(self.arena.lane_of(block)).stream;
            let (addr, size) = (self.arena.addr(block), self.arena.requested(block));
            dev.note(Action::FreeCompleted, addr, size, stream);
            self.retire(block);
        }
    }

    fn retire(&mut self, block: BlockId) {
        self.arena.vacate(block);
        let rest = self.rest(self.arena.lane_of(block));
        let (prev, next) = self.arena.free_neighbours(block);
        self.arena.merge(
            block,
            prev.filter(|&b| Some(b) != rest),
            next.filter(|&b| Some(b) != rest),
        );
    }

    /// The unused rests of the pool's lanes are all that could serve a request.
    #[cold]
    fn refuse(
        &mut self,
        dev: &dyn Device,
        lane: LaneId,
        requested: Bytes,
        rounded: Bytes,
    ) -> AllocError {
        let lanes = self.arena.lanes_of(self.arena.lane(lane).pool);
        let rests = lanes.filter_map(|lane| self.rest(lane)).map(|rest| self.arena.size(rest));
        let largest = rests.max().unwrap_or(0);
        self.arena.refuse(dev, requested, rounded, largest)
    }

    fn give_back(&mut self, dev: &mut dyn Device, pool: Option<PoolId>) -> Bytes {
        if !self.deferred.is_empty() {
            // A failed wait leaves its blocks pending; other ranges can go all the same.
            let _ = self.deferred.synchronize(dev);
            self.settle(dev);
        }
        let ranges: Vec<RangeNo> = self.arena.ranges().collect();
        let mut given = 0;
        for range in ranges {
            let first = self.arena.first_block(range);
            let lane = self.arena.lane_of(first);
            let other_pool = pool.is_some_and(|pool| self.arena.lane(lane).pool != pool);
            let in_use = self.arena.blocks_of(range).any(|b| !self.arena.is_free(b));
            if other_pool || in_use || self.arena.is_kept(range) {
                continue;
            }
            if self.rest(lane).is_some_and(|rest| self.arena.range_of(rest) == range) {
                self.rests.remove(&lane.0);
            }
            while let (_, Some(next)) = self.arena.free_neighbours(first) {
                self.arena.merge(first, None, Some(next));
            }
            given += self.arena.release(dev, range).unwrap_or(0);
        }
        given
    }
}

impl Policy for Bump {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        let lane = self.arena.lane_for(req.stream, req.pool);
        if req.size >= TOO_LARGE {
            return Err(self.refuse(dev, lane, req.size, req.size));
        }
        if !self.deferred.is_empty() {
            self.settle(dev);
        }
        let size = req.size.next_multiple_of(QUANTUM);
        let block = match self.rest(lane).filter(|&b| self.arena.size(b) >= size) {
            Some(block) => block,
            None => match self.grow.grow(&mut self.arena, dev, size, lane) {
                Ok(block) => block,
                Err(DeviceError::OutOfMemory { .. } | DeviceError::OutOfAddresses { .. }) => {
                    return Err(self.refuse(dev, lane, req.size, size));
                }
                Err(error) => return Err(error.into()),
            },
        };
        match self.arena.occupy(block, size, &req) {
            Some(rest) => self.rests.insert(lane.0, rest),
            None => self.rests.remove(&lane.0),
        };
        Ok(self.arena.grant(block))
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        if self.arena.is_shared(block) {
            self.arena.suspend(block);
            self.deferred.defer(dev, block);
        } else {
            self.retire(block);
        }
    }

    fn record_stream(&mut self, _: &mut dyn Device, block: BlockId, stream: StreamId) {
        if self.arena.lane(self.arena.lane_of(block)).stream != stream {
            self.arena.share(block);
            self.deferred.note_use(block, stream);
        }
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        self.give_back(dev, None)
    }

    fn pool(&mut self, dev: &mut dyn Device, pool: PoolId, op: PoolOp) {
        match op {
            PoolOp::Declare(_) | PoolOp::Close => {}
            PoolOp::Open => self.arena.keep_pool(pool, true),
            PoolOp::Drop => self.arena.keep_pool(pool, false),
            PoolOp::Destroy => {
                self.arena.keep_pool(pool, false);
                self.give_back(dev, Some(pool));
            }
        }
    }

    fn stats(&self) -> &PoolStats {
        self.arena.stats()
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.arena.visit(visitor);
    }
}
