//! The blocks that a driver allocator handed out.

use poolsim_core::stack::StackId;
use poolsim_core::{
    AllocError, AllocRequest, BlockId, BlockState, BlockView, Bytes, DevAddr, DeviceError, Grant,
    HeapVisitor, OomCause, PoolId, PoolStats, RangeView, Slot, StreamId,
};

#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) addr: DevAddr,
    pub(crate) size: Bytes,
    pub(crate) stream: StreamId,
    /// Further streams that use it.
    pub(crate) uses: Vec<StreamId>,
    slot: Slot,
}

/// Live blocks by number, with the numbers that a policy states of itself.
#[derive(Debug, Default)]
pub(crate) struct LiveBlocks {
    blocks: Vec<Option<Live>>,
    unused: Vec<u32>,
    pub(crate) stats: PoolStats,
}

impl LiveBlocks {
    fn add(&mut self, addr: DevAddr, req: &AllocRequest) -> Grant {
        let live =
            Live { addr, size: req.size, stream: req.stream, uses: Vec::new(), slot: req.slot };
        let id = self.unused.pop().unwrap_or_else(|| {
            self.blocks.push(None);
            u32::try_from(self.blocks.len() - 1).expect("fewer than 2^32 live blocks")
        });
        self.blocks[id as usize] = Some(live);
        self.stats.requested.add(req.size);
        Grant { block: BlockId(id), addr, size: req.size }
    }

    /// What becomes of a request that the driver answered.
    pub(crate) fn answer(
        &mut self,
        req: &AllocRequest,
        answer: Result<DevAddr, DeviceError>,
    ) -> Result<Grant, AllocError> {
        match answer {
            Ok(addr) => Ok(self.add(addr, req)),
            Err(DeviceError::OutOfMemory { .. }) => {
                Err(self.refuse(req.size, OomCause::DeviceFull))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Counts a refused request.
    pub(crate) fn refuse(&mut self, requested: Bytes, cause: OomCause) -> AllocError {
        self.stats.ooms += 1;
        AllocError::OutOfMemory {
            requested,
            rounded: requested,
            reserved: self.stats.reserved.current,
            largest_free: 0,
            cause,
        }
    }

    pub(crate) fn take(&mut self, block: BlockId) -> Live {
        let live = self.blocks[block.index()].take().expect("the engine frees live blocks only");
        self.unused.push(block.0);
        self.stats.requested.sub(live.size);
        live
    }

    pub(crate) fn note_use(&mut self, block: BlockId, stream: StreamId) {
        let live = self.blocks[block.index()].as_mut().expect("the block is live");
        if live.stream != stream && !live.uses.contains(&stream) {
            live.uses.push(stream);
        }
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Live> + use<> {
        std::mem::take(&mut self.blocks).into_iter().flatten()
    }

    /// What the driver says that the program holds, and what is held for it.
    pub(crate) fn set_held(&mut self, used: Bytes, reserved: Bytes) {
        let stats = &mut self.stats;
        for (gauge, now) in [
            (&mut stats.allocated, used),
            (&mut stats.active, used),
            (&mut stats.reserved, reserved),
        ] {
            gauge.current = now;
            gauge.peak = gauge.peak.max(now);
        }
    }

    /// A driver allocator shows its live blocks only; each is listed as a range of its own.
    pub(crate) fn visit(&self, visitor: &mut dyn HeapVisitor) {
        for live in self.blocks.iter().flatten() {
            visitor.range(&RangeView {
                addr: live.addr,
                size: live.size,
                stream: live.stream,
                pool: PoolId::DEFAULT,
                small: false,
                expandable: false,
                stack: StackId::NONE,
            });
            visitor.block(&BlockView {
                addr: live.addr,
                size: live.size,
                requested: live.size,
                state: BlockState::Allocated,
                slot: Some(live.slot),
                stack: StackId::NONE,
            });
        }
    }
}
