//! The blocks: ranges in which a plan says where blocks go, and all others, where the best fit does.

use super::learn::Request;
use crate::arena::{Arena, LaneId, RangeNo};
use crate::deferred::DeferredFrees;
use crate::registry::BuildEnv;
use crate::stage::Placement;
use crate::stage::growth::{Exact, Growth};
use crate::stage::placement::BestFit;
use poolsim_core::{
    Action, AllocError, AllocRequest, BlockId, Bytes, DevAddr, Device, DeviceError, PoolId,
    StreamId,
};
use std::collections::BTreeMap;

/// A range that a plan places blocks in.
#[derive(Clone, Debug)]
struct Home {
    range: RangeNo,
    base: DevAddr,
    free: BTreeMap<DevAddr, BlockId>,
}

/// An arena whose free blocks are in the index of their lane, or in the list of their plan's range.
#[derive(Clone, Debug)]
pub(super) struct Heap {
    pub(super) arena: Arena,
    deferred: DeferredFrees,
    index: BestFit,
    exact: Exact,
    /// By lane; at most one each.
    homes: BTreeMap<u32, Home>,
    /// Lanes whose range the device refused in this iteration.
    refused: Vec<LaneId>,
    #[cfg(debug_assertions)]
    calls: u64,
}

impl Heap {
    pub(super) fn new(unit: Bytes, env: &BuildEnv) -> Self {
        let limit = env.memory_fraction.map(|x| (env.caps.total as f64 * x) as Bytes);
        Heap {
            arena: Arena::with_limit(limit),
            deferred: DeferredFrees::default(),
            index: BestFit::default(),
            exact: Exact(unit),
            homes: BTreeMap::new(),
            refused: Vec::new(),
            #[cfg(debug_assertions)]
            calls: 0,
        }
    }

    /// The plan's range that a block lies in.
    #[inline]
    fn home_of(&mut self, block: BlockId) -> Option<&mut Home> {
        let range = self.arena.range_of(block);
        let home = self.homes.get_mut(&self.arena.lane_of(block).0);
        home.filter(|home| home.range == range)
    }

    fn insert(&mut self, block: BlockId) {
        let addr = self.arena.addr(block);
        match self.home_of(block) {
            Some(home) => drop(home.free.insert(addr, block)),
            None => self.index.insert(&self.arena, block),
        }
    }

    fn remove(&mut self, block: BlockId) {
        let addr = self.arena.addr(block);
        match self.home_of(block) {
            Some(home) => drop(home.free.remove(&addr)),
            None => self.index.remove(&self.arena, block),
        }
    }

    /// Puts a free block that is in no list to use.
    fn occupy(&mut self, block: BlockId, want: Request, req: &AllocRequest) -> BlockId {
        if let Some(rest) = self.arena.occupy(block, want.size, req) {
            self.insert(rest);
        }
        block
    }

    /// A block in use is free.
    pub(super) fn put_back(&mut self, block: BlockId) {
        self.arena.vacate(block);
        let (prev, next) = self.arena.free_neighbours(block);
        for neighbour in [prev, next].into_iter().flatten() {
            self.remove(neighbour);
        }
        let whole = self.arena.merge(block, prev, next);
        self.insert(whole);
    }

    /// Best fit among the blocks that no plan places.
    #[inline]
    pub(super) fn place(&mut self, want: Request, req: &AllocRequest) -> Option<BlockId> {
        let block = self.index.take(&self.arena, want.size, want.lane)?;
        Some(self.occupy(block, want, req))
    }

    /// A block in a new range, or `None` if the device is full.
    pub(super) fn grow(
        &mut self,
        dev: &mut dyn Device,
        want: Request,
        req: &AllocRequest,
    ) -> Result<Option<BlockId>, DeviceError> {
        match self.exact.grow(&mut self.arena, dev, want.size, want.lane) {
            Ok(block) => Ok(Some(self.occupy(block, want, req))),
            Err(DeviceError::OutOfMemory { .. } | DeviceError::OutOfAddresses { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The block at `offset` of the lane's planned range of `height` bytes, if nothing is in use there. The range is
    /// taken if it is not there; if the device refuses that, it is not tried again before the next iteration.
    pub(super) fn place_at(
        &mut self,
        dev: &mut dyn Device,
        offset: Bytes,
        height: Bytes,
        want: Request,
        req: &AllocRequest,
    ) -> Option<BlockId> {
        if !self.homes.contains_key(&want.lane.0) {
            self.make_home(dev, height, want.lane)?;
        }
        let home = self.homes.get_mut(&want.lane.0)?;
        let at = home.base + offset;
        let (&addr, &found) = home.free.range(..=at).next_back()?;
        if addr + self.arena.size(found) < at + want.size {
            return None;
        }
        home.free.remove(&addr);
        let mut block = found;
        if addr < at {
            block = self.arena.split(found, at - addr);
            home.free.insert(addr, found);
        }
        Some(self.occupy(block, want, req))
    }

    fn make_home(&mut self, dev: &mut dyn Device, height: Bytes, lane: LaneId) -> Option<()> {
        if self.refused.contains(&lane) {
            return None;
        }
        let Ok(block) = self.arena.reserve(dev, height, lane) else {
            self.refused.push(lane);
            return None;
        };
        let (range, base) = (self.arena.range_of(block), self.arena.addr(block));
        self.arena.merge(block, None, None);
        let free = BTreeMap::from([(base, block)]);
        self.homes.insert(lane.0, Home { range, base, free });
        Some(())
    }

    /// An iteration begins. While the plan is fresh, what is idle makes room for the plan's ranges.
    pub(super) fn begin(&mut self, dev: &mut dyn Device, fresh: bool) {
        self.refused.clear();
        if fresh {
            self.give_back_idle(dev, None);
        }
    }

    /// The plan is no more: its ranges serve as any other.
    pub(super) fn give_up_homes(&mut self) {
        for (_, home) in std::mem::take(&mut self.homes) {
            home.free.into_values().for_each(|block| self.index.insert(&self.arena, block));
        }
    }

    /// The smallest gap of the plan's range that is large enough.
    pub(super) fn fill_gap(&mut self, want: Request, req: &AllocRequest) -> Option<BlockId> {
        let home = self.homes.get_mut(&want.lane.0)?;
        let size = |&(_, &block): &(&DevAddr, &BlockId)| self.arena.size(block);
        let large = home.free.iter().filter(|gap| size(gap) >= want.size);
        let (&addr, &block) = large.min_by_key(|gap| (size(gap), *gap.0))?;
        home.free.remove(&addr);
        Some(self.occupy(block, want, req))
    }

    /// Gives back every idle range, of one pool or of all; returns the bytes. A range that the device refuses to take
    /// stays.
    pub(super) fn give_back_idle(&mut self, dev: &mut dyn Device, pool: Option<PoolId>) -> Bytes {
        let idle: Vec<RangeNo> = self.arena.idle_ranges().collect();
        let mut given = 0;
        for range in idle {
            let lane = self.arena.lane(self.arena.lane_of(self.arena.first_block(range)));
            if pool.is_none_or(|pool| lane.pool == pool) {
                given += self.release(dev, range);
            }
        }
        given
    }

    /// Gives an idle range back; returns the bytes, 0 if the device refuses it.
    fn release(&mut self, dev: &mut dyn Device, range: RangeNo) -> Bytes {
        let block = self.arena.first_block(range);
        let lane = self.arena.lane_of(block);
        let planned = self.home_of(block).is_some();
        self.remove(block);
        match self.arena.release(dev, range) {
            Ok(bytes) => {
                if planned {
                    self.homes.remove(&lane.0);
                }
                bytes
            }
            Err(_) => {
                self.insert(block);
                0
            }
        }
    }

    /// A range of a block's own for a request, or `None` if the device is full.
    pub(super) fn grow_own(
        &mut self,
        dev: &mut dyn Device,
        want: Request,
        req: &AllocRequest,
    ) -> Result<Option<BlockId>, DeviceError> {
        let size = want.size.next_multiple_of(dev.caps().granule);
        match self.arena.reserve(dev, size, want.lane) {
            Ok(block) => Ok(Some(self.occupy(block, Request { size, ..want }, req))),
            Err(DeviceError::OutOfMemory { .. } | DeviceError::OutOfAddresses { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives a range back if it is idle.
    pub(super) fn release_if_idle(&mut self, dev: &mut dyn Device, range: RangeNo) {
        if self.arena.idle_ranges().any(|idle| idle == range) {
            self.release(dev, range);
        }
    }

    pub(super) fn record_stream(&mut self, block: BlockId, stream: StreamId) {
        if self.arena.lane(self.arena.lane_of(block)).stream != stream {
            self.arena.share(block);
            self.deferred.note_use(block, stream);
        }
    }

    /// The program freed a block that other streams use.
    pub(super) fn defer(&mut self, dev: &mut dyn Device, block: BlockId) {
        self.arena.suspend(block);
        self.deferred.defer(dev, block);
    }

    /// Blocks whose free is complete by now, still to be put back.
    #[inline]
    pub(super) fn settled(&mut self, dev: &mut dyn Device) -> Vec<BlockId> {
        let mut settled = Vec::new();
        if self.deferred.is_empty() {
            return settled;
        }
        self.deferred.settle(dev, &mut settled);
        for &block in &settled {
            let stream = self.arena.lane(self.arena.lane_of(block)).stream;
            let (addr, size) = (self.arena.addr(block), self.arena.requested(block));
            dev.note(Action::FreeCompleted, addr, size, stream);
        }
        settled
    }

    /// The same after a host wait. A failed wait leaves its blocks pending.
    pub(super) fn waited(&mut self, dev: &mut dyn Device) -> Vec<BlockId> {
        if !self.deferred.is_empty() {
            let _ = self.deferred.synchronize(dev);
        }
        self.settled(dev)
    }

    #[cold]
    pub(super) fn refuse(
        &mut self,
        dev: &dyn Device,
        want: Request,
        requested: Bytes,
    ) -> AllocError {
        let largest = self.arena.largest_free(self.arena.lane(want.lane).pool);
        self.arena.refuse(dev, requested, want.size, largest)
    }

    /// In debug builds, proves the arena's invariants: after each of the first calls, later now and then.
    #[inline]
    pub(super) fn checked(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.calls += 1;
            if self.calls <= 512 || self.calls.is_multiple_of(1024) {
                self.arena.check(true);
            }
        }
    }
}
