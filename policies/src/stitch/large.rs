//! Requests of a page and more.

use super::Settings;
use super::pages::{Pages, Stretch};
use super::stitches::Stitches;
use crate::arena::LaneId;
use poolsim_core::{
    AllocRequest, BlockState, BlockView, Bytes, DevAddr, Device, DeviceError, Slot, StreamId,
};

/// A large block in use.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) addr: DevAddr,
    pub(super) size: Bytes,
    pub(super) requested: Bytes,
    pub(super) lane: LaneId,
    /// Other streams use it.
    pub(super) shared: bool,
    /// Freed, and waiting for them.
    pub(super) pending: bool,
    slot: Slot,
    /// The stitched range that it is, or none if it lies where its pages are at home.
    stitch: Option<u32>,
}

impl Block {
    pub(super) fn view(&self) -> BlockView {
        BlockView {
            addr: self.addr,
            size: self.size,
            requested: self.requested,
            state: if self.pending { BlockState::Pending } else { BlockState::Allocated },
            slot: (!self.pending).then_some(self.slot),
            stack: Default::default(),
        }
    }
}

/// Sums over the large blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) requested: Bytes,
    pub(super) allocated: Bytes,
    pub(super) active: Bytes,
}

/// The large blocks' pages and ranges.
#[derive(Clone, Debug)]
pub(super) struct Large {
    settings: Settings,
    pub(super) pages: Pages,
    stitches: Stitches,
    pub(super) sums: Sums,
}

impl Large {
    pub(super) fn new(settings: Settings) -> Self {
        Large {
            settings,
            pages: Pages::new(settings.page),
            stitches: Stitches::default(),
            sums: Sums::default(),
        }
    }

    /// Without a device call: a stretch or a kept stitched range of exactly this size, else the front of the smallest stretch
    /// that is larger.
    pub(super) fn find(&mut self, size: Bytes, lane: LaneId) -> Option<Block> {
        let smallest = self.pages.smallest(lane, size);
        if smallest.is_none_or(|(_, len)| len != size)
            && let Some(id) = self.stitches.find(&self.pages, lane, size)
        {
            return Some(self.use_stitch(id, size, lane));
        }
        let (addr, _) = smallest?;
        self.pages.take(lane, (addr, size));
        Some(block(addr, size, lane, None))
    }

    fn use_stitch(&mut self, id: u32, size: Bytes, lane: LaneId) -> Block {
        let (addr, parts) = self.stitches.look(id);
        parts.iter().for_each(|&part| self.pages.take(lane, part));
        self.stitches.set_in_use(id, true);
        block(addr, size, lane, Some(id))
    }

    /// With device calls: free stretches stitched together, with as much new memory as they lack, at most `room` bytes; or
    /// new memory alone.
    pub(super) fn take_new(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
        stream: StreamId,
        stitched: bool,
        room: Bytes,
    ) -> Result<Block, DeviceError> {
        let none = (Vec::new(), 0);
        let (mut parts, sum) =
            if stitched { self.pages.pieces(lane, size, self.settings.least) } else { none };
        let lacking = size - sum;
        let mut new: Option<Stretch> = None;
        if lacking > 0 {
            if lacking > room {
                return Err(DeviceError::OutOfMemory { asked: lacking, free: room });
            }
            let addr = self.pages.grow(dev, lacking, lane, stream)?;
            if sum == 0 {
                return Ok(block(addr, size, lane, None));
            }
            self.pages.put(lane, (addr, lacking));
            new = Some((addr, lacking));
        }
        parts.extend(new);
        let id = self.stitches.make(dev, &self.pages, lane, parts)?;
        Ok(self.use_stitch(id, size, lane))
    }

    /// A block that was found serves a request.
    pub(super) fn occupy(&mut self, block: Block, req: &AllocRequest) -> Block {
        self.sums.requested += req.size;
        self.sums.allocated += block.size;
        self.sums.active += block.size;
        Block { requested: req.size, slot: req.slot, ..block }
    }

    /// A block is free. A stitched range stays mapped.
    pub(super) fn put_back(&mut self, block: Block) {
        self.sums.requested -= block.requested;
        self.sums.allocated -= if block.pending { 0 } else { block.size };
        self.sums.active -= block.size;
        match block.stitch {
            None => self.pages.put(block.lane, (block.addr, block.size)),
            Some(id) => {
                let (_, parts) = self.stitches.look(id);
                parts.iter().for_each(|&part| self.pages.put(block.lane, part));
                self.stitches.set_in_use(id, false);
            }
        }
    }

    /// Unmaps stitched ranges that are too many.
    #[inline]
    pub(super) fn trim(&mut self, dev: &mut dyn Device) {
        self.stitches.trim(dev, self.settings.keep);
    }

    /// Gives back the free pages of a lane, and its kept stitched ranges.
    pub(super) fn give_back(
        &mut self,
        dev: &mut dyn Device,
        lane: LaneId,
        stream: StreamId,
    ) -> Bytes {
        if !self.stitches.clear(dev, lane) {
            return 0;
        }
        self.pages.give_back(dev, lane, stream, |_| true)
    }
}

fn block(addr: DevAddr, size: Bytes, lane: LaneId, stitch: Option<u32>) -> Block {
    let slot = Slot(0);
    Block { addr, size, requested: 0, lane, shared: false, pending: false, slot, stitch }
}
