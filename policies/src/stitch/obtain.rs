//! Where memory comes from, and what is given back for it.

use super::large::Block;
use super::{Stitch, When};
use crate::arena::LaneId;
use poolsim_core::{AllocRequest, BlockId, Bytes, Device, DeviceError, PoolId};

impl Stitch {
    /// Waits for frees that wait for other streams; whether there were any.
    pub(super) fn wait(&mut self, dev: &mut dyn Device) -> bool {
        if self.deferred.is_empty() {
            return false;
        }
        // A failed wait leaves its blocks pending.
        let _ = self.deferred.synchronize(dev);
        self.settle(dev);
        true
    }

    /// Gives back the free pages of some lanes, and idle small ranges; returns the bytes.
    pub(super) fn give_back(
        &mut self,
        dev: &mut dyn Device,
        pool: Option<PoolId>,
        but: Option<LaneId>,
    ) -> Bytes {
        let mut given = self.small.give_back(dev, pool);
        for lane in self.large.pages.lanes() {
            let of = self.small.arena.lane(lane);
            let kept = of.pool.is_private() && !self.dropped.contains(&of.pool);
            if !kept && but != Some(lane) && pool.is_none_or(|pool| pool == of.pool) {
                given += self.large.give_back(dev, lane, of.stream);
            }
        }
        given
    }

    pub(super) fn small_block(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
        req: &AllocRequest,
    ) -> Result<Option<BlockId>, DeviceError> {
        let mut waited = false;
        loop {
            if let Some(block) = self.small.place(size, lane, req) {
                return Ok(Some(block));
            }
            let grown = if self.within_limit(size.next_multiple_of(dev.caps().granule)) {
                not_full(self.small.grow(dev, size, lane, req))?
            } else {
                None
            };
            if grown.is_some() {
                return Ok(grown);
            }
            if !waited && self.wait(dev) {
                waited = true;
            } else if self.give_back(dev, None, None) == 0 {
                return Ok(None);
            } else {
                self.stats.retries += 1;
            }
        }
    }

    /// A large block, by every means: what is free, what can be stitched, new memory, and then what others hold free.
    pub(super) fn large_block(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
        req: &AllocRequest,
    ) -> Result<Option<Block>, DeviceError> {
        let stream = req.stream;
        if let Some(block) = self.large.find(size, lane) {
            return Ok(Some(block));
        }
        let stitched = self.settings.when == When::Always;
        let room = self.limit.map_or(Bytes::MAX, |limit| limit.saturating_sub(self.reserved()));
        if let Some(block) = not_full(self.large.take_new(dev, size, lane, stream, stitched, room))?
        {
            return Ok(Some(block));
        }
        if self.wait(dev)
            && let Some(block) = self.large.find(size, lane)
        {
            return Ok(Some(block));
        }
        for but in [Some(lane), None] {
            let given = self.give_back(dev, None, but);
            self.stats.retries += u64::from(given > 0);
            let room = self.limit.map_or(Bytes::MAX, |limit| limit.saturating_sub(self.reserved()));
            let stitched = but.is_some();
            let taken = not_full(self.large.take_new(dev, size, lane, stream, stitched, room))?;
            if taken.is_some() {
                return Ok(taken);
            }
        }
        Ok(None)
    }
}

/// `None` where the device is full.
fn not_full<T>(result: Result<T, DeviceError>) -> Result<Option<T>, DeviceError> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(DeviceError::OutOfMemory { .. } | DeviceError::OutOfAddresses { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
