//! Requests below the large ones: best fit in ranges of 2 MiB.

use crate::arena::{Arena, LaneId, RangeNo};
use crate::stage::Placement;
use crate::stage::growth::{Exact, Growth};
use crate::stage::placement::BestFit;
use poolsim_core::units::MIB;
use poolsim_core::{AllocRequest, BlockId, Bytes, Device, DeviceError, PoolId};

/// The blocks of small requests; also the one numbering of lanes.
#[derive(Clone, Debug, Default)]
pub(super) struct Small {
    pub(super) arena: Arena,
    index: BestFit,
}

impl Small {
    /// The smallest free block that is large enough.
    pub(super) fn place(
        &mut self,
        size: Bytes,
        lane: LaneId,
        req: &AllocRequest,
    ) -> Option<BlockId> {
        let block = self.index.take(&self.arena, size, lane)?;
        Some(self.occupy(block, size, req))
    }

    /// A block in a new range.
    pub(super) fn grow(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
        req: &AllocRequest,
    ) -> Result<BlockId, DeviceError> {
        let block = Exact(2 * MIB).grow(&mut self.arena, dev, size, lane)?;
        Ok(self.occupy(block, size, req))
    }

    fn occupy(&mut self, block: BlockId, size: Bytes, req: &AllocRequest) -> BlockId {
        if let Some(rest) = self.arena.occupy(block, size, req) {
            self.index.insert(&self.arena, rest);
        }
        block
    }

    /// A block is free.
    pub(super) fn put_back(&mut self, block: BlockId) {
        self.arena.vacate(block);
        let (prev, next) = self.arena.free_neighbours(block);
        for neighbour in [prev, next].into_iter().flatten() {
            self.index.remove(&self.arena, neighbour);
        }
        let whole = self.arena.merge(block, prev, next);
        self.index.insert(&self.arena, whole);
    }

    /// Gives back idle ranges, of one pool or of all.
    pub(super) fn give_back(&mut self, dev: &mut dyn Device, pool: Option<PoolId>) -> Bytes {
        let idle: Vec<RangeNo> = self.arena.idle_ranges().collect();
        let mut given = 0;
        for range in idle {
            let block = self.arena.first_block(range);
            let of = self.arena.lane(self.arena.lane_of(block)).pool;
            if pool.is_some_and(|pool| pool != of) {
                continue;
            }
            self.index.remove(&self.arena, block);
            match self.arena.release(dev, range) {
                Ok(bytes) => given += bytes,
                Err(_) => self.index.insert(&self.arena, block),
            }
        }
        given
    }
}
