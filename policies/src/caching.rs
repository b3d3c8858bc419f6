//! The one malloc/free skeleton that composes stages.

use crate::arena::{Arena, LaneId, RangeNo, TOO_LARGE};
use crate::deferred::DeferredFrees;
use crate::registry::BuildEnv;
use crate::stage::{Growth, Placement, Reclaim, Rounding};
use poolsim_core::{
    Action, AllocError, AllocRequest, BlockId, Bytes, Device, DeviceError, Grant, HeapVisitor,
    Policy, PoolId, PoolOp, PoolStats, StreamId,
};

/// A caching allocator made of four stages.
///
/// A malloc runs: round, settle deferred frees, place; if nothing fits, give back what is surplus and grow; if
/// the device is full, wait for deferred frees and place again, give back what reclaim chooses and grow
/// again, until nothing more can be given back; then it is out of memory. A free merges the block with its
/// free neighbours as placement has it, or waits for the other streams that used it. Blocks serve only the stream and pool that
/// their range was taken for. Ranges of a private pool stay until its owner is gone; the pool flags
/// `no_split` and `use_on_oom` change nothing here.
pub struct Caching<R, P, G, X> {
    round: R,
    place: P,
    grow: G,
    reclaim: X,
    arena: Arena,
    deferred: DeferredFrees,
    settled: Vec<BlockId>,
    device_total: Bytes,
    #[cfg(debug_assertions)]
    calls: u64,
}

impl<R: Rounding, P: Placement, G: Growth, X: Reclaim> Caching<R, P, G, X> {
    /// An empty allocator. A memory fraction in `env` limits what it holds.
    pub fn new(round: R, place: P, grow: G, reclaim: X, env: &BuildEnv) -> Self {
        let limit = env.memory_fraction.map(|x| (env.caps.total as f64 * x) as Bytes);
        Caching {
            round,
            place,
            grow,
            reclaim,
            arena: Arena::with_limit(limit),
            deferred: DeferredFrees::default(),
            settled: Vec::new(),
            device_total: env.caps.total,
            #[cfg(debug_assertions)]
            calls: 0,
        }
    }

    #[cold]
    #[inline(never)]
    fn settle(&mut self, dev: &mut dyn Device) {
        let mut settled = std::mem::take(&mut self.settled);
        self.deferred.settle(dev, &mut settled);
        for block in settled.drain(..) {
            let stream = self.arena.lane(self.arena.lane_of(block)).stream;
            let (addr, size) = (self.arena.addr(block), self.arena.requested(block));
            dev.note(Action::FreeCompleted, addr, size, stream);
            self.put_back(dev, block);
        }
        self.settled = settled;
    }

    #[inline]
    fn put_back(&mut self, dev: &mut dyn Device, block: BlockId) {
        self.arena.vacate(block);
        self.place.take_up(&mut self.arena, block);
        self.trim(dev, 0);
    }

    /// Gives back what the reclaim stage finds too much.
    #[inline]
    fn trim(&mut self, dev: &mut dyn Device, growth: Bytes) {
        while let Some(range) = self.reclaim.surplus(&self.arena, self.device_total, growth) {
            if self.give_back(dev, range).is_err() {
                break;
            }
        }
    }

    #[cold]
    fn give_back(&mut self, dev: &mut dyn Device, range: RangeNo) -> Result<Bytes, DeviceError> {
        let block = self.arena.first_block(range);
        self.place.remove(&self.arena, block);
        let answer = self.arena.release(dev, range);
        if answer.is_err() {
            self.place.insert(&self.arena, block);
        }
        answer
    }

    /// Gives back every idle range, of one pool or of all. A range that the device refuses to take stays.
    fn give_back_idle(&mut self, dev: &mut dyn Device, pool: Option<PoolId>) {
        let idle: Vec<RangeNo> = self.arena.idle_ranges().collect();
        let of_pool = |arena: &Arena, range: RangeNo| {
            let lane = arena.lane(arena.lane_of(arena.first_block(range)));
            pool.is_none_or(|pool| lane.pool == pool)
        };
        for range in idle {
            if of_pool(&self.arena, range) {
                let _ = self.give_back(dev, range);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn obtain(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
        requested: Bytes,
    ) -> Result<BlockId, AllocError> {
        self.trim(dev, size);
        let full = |e: &DeviceError| {
            matches!(e, DeviceError::OutOfMemory { .. } | DeviceError::OutOfAddresses { .. })
        };
        loop {
            match self.grow.grow(&mut self.arena, dev, size, lane) {
                Ok(block) => return Ok(block),
                Err(error) if full(&error) => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(block) = self.wait_and_place(dev, size, lane) {
                return Ok(block);
            }
            if self.relieve(dev, size) == 0 {
                return Err(self.refuse(dev, lane, requested, size));
            }
            self.arena.stats_mut().retries += 1;
        }
    }

    /// Waits for deferred frees, if there are any, and looks again.
    fn wait_and_place(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
    ) -> Option<BlockId> {
        if self.deferred.is_empty() || self.deferred.synchronize(dev).is_err() {
            return None;
        }
        self.settle(dev);
        self.place.take(&self.arena, size, lane)
    }

    /// One round of giving back under pressure; returns how many bytes went.
    fn relieve(&mut self, dev: &mut dyn Device, need: Bytes) -> Bytes {
        let mut given = 0;
        while let Some(range) = self.reclaim.under_pressure(&self.arena) {
            match self.give_back(dev, range) {
                Ok(bytes) => given += bytes,
                Err(_) => break,
            }
            let enough = dev.free_bytes() >= need && self.arena.within_limit(need);
            if enough && !self.reclaim.all_at_once() {
                break;
            }
        }
        given
    }

    #[cold]
    fn refuse(
        &mut self,
        dev: &dyn Device,
        lane: LaneId,
        requested: Bytes,
        rounded: Bytes,
    ) -> AllocError {
        let lanes = self.arena.lanes_of(self.arena.lane(lane).pool);
        let largest = lanes.map(|lane| self.place.largest(&self.arena, lane)).max().unwrap_or(0);
        self.arena.refuse(dev, requested, rounded, largest)
    }

    /// In debug builds, proves the arena's invariants: after each of the first calls, later now and then.
    #[inline]
    fn checked(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.calls += 1;
            if self.calls <= 512 || self.calls.is_multiple_of(1024) {
                self.arena.check(self.place.coalesces());
            }
        }
    }
}

impl<R: Rounding, P: Placement, G: Growth, X: Reclaim> Policy for Caching<R, P, G, X> {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        let lane = self.arena.lane_for(req.stream, req.pool);
        if req.size >= TOO_LARGE {
            return Err(self.refuse(dev, lane, req.size, req.size));
        }
        if !self.deferred.is_empty() {
            self.settle(dev);
        }
        let size = self.round.round(req.size);
        let block = match self.place.take(&self.arena, size, lane) {
            Some(block) => block,
            None => self.obtain(dev, size, lane, req.size)?,
        };
        if let Some(rest) = self.arena.occupy(block, size, &req) {
            self.place.take_up_rest(&mut self.arena, rest);
        }
        self.checked();
        Ok(self.arena.grant(block))
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        if self.arena.is_shared(block) {
            self.arena.suspend(block);
            self.deferred.defer(dev, block);
        } else {
            self.put_back(dev, block);
        }
        self.checked();
    }

    fn record_stream(&mut self, _: &mut dyn Device, block: BlockId, stream: StreamId) {
        if self.arena.lane(self.arena.lane_of(block)).stream != stream {
            self.arena.share(block);
            self.deferred.note_use(block, stream);
        }
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        let before = self.arena.stats().reserved.current;
        if !self.deferred.is_empty() {
            // A failed wait leaves its blocks pending; what is idle can go all the same.
            let _ = self.deferred.synchronize(dev);
            self.settle(dev);
        }
        self.give_back_idle(dev, None);
        self.checked();
        // Settling gives back what is surplus.
        before - self.arena.stats().reserved.current
    }

    fn pool(&mut self, dev: &mut dyn Device, pool: PoolId, op: PoolOp) {
        match op {
            PoolOp::Declare(_) | PoolOp::Close => {}
            PoolOp::Open => self.arena.keep_pool(pool, true),
            PoolOp::Drop => self.arena.keep_pool(pool, false),
            PoolOp::Destroy => {
                self.arena.keep_pool(pool, false);
                if !self.deferred.is_empty() {
                    let _ = self.deferred.synchronize(dev);
                    self.settle(dev);
                }
                self.give_back_idle(dev, Some(pool));
            }
        }
        self.checked();
    }

    fn stats(&self) -> &PoolStats {
        self.arena.stats()
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.arena.visit(visitor);
    }
}
