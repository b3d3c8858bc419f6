//! Pages for a block, and pages back to the device (rules 16, 18, 19, 23 and 25).

use super::backing::{PAGE, touched};
use super::pool::{Pool, Refusal};
use poolsim_core::{Bytes, Device, DeviceError, DeviceOp, StreamId};

impl Pool {
    /// Backs the first `size` bytes of a block of the common list that is in no index at present: with free pages of
    /// that list, highest first, then with new ones. On failure, what was moved and created stays.
    pub(super) fn supply(
        &mut self,
        dev: &mut dyn Device,
        id: u32,
        size: Bytes,
        stream: StreamId,
    ) -> Result<(), Refusal> {
        let start = self.blocks.get(id).start;
        let need = touched(start, start + size);
        let (mut moved, mut created) = (0, 0);
        let (mut next, mut below) = (need.start, usize::MAX);
        let result = loop {
            let Some(to) = self.backing.backed().first_without(next..need.end) else {
                break Ok(());
            };
            next = to + 1;
            let supplied = match self.backing.spare(below, &need) {
                Some(from) => {
                    below = from;
                    self.move_page(dev, from, to, id, stream).map(|()| moved += 1)
                }
                None => self.create_page(dev, to, stream).map(|()| created += 1),
            };
            if let Err(refusal) = supplied {
                break Err(refusal);
            }
            self.blocks.get_mut(id).holes -= 1;
        };
        for (op, calls) in [(DeviceOp::PoolMove, moved), (DeviceOp::PoolGrow, created)] {
            if calls > 0 {
                dev.charge(op, calls, calls * PAGE);
            }
        }
        result
    }

    fn create_page(
        &mut self,
        dev: &mut dyn Device,
        page: usize,
        stream: StreamId,
    ) -> Result<(), Refusal> {
        let limit = self.attributes.max_size.map_or(u64::MAX, |max| max.div_ceil(PAGE));
        if self.backing.count() as u64 >= limit {
            return Err(Refusal::Limit);
        }
        self.backing.create(dev, page, stream).map_err(Refusal::from)
    }

    /// `target` is the block that gets the page and is in no index.
    fn move_page(
        &mut self,
        dev: &mut dyn Device,
        from: usize,
        to: usize,
        target: u32,
        stream: StreamId,
    ) -> Result<(), Refusal> {
        let moved = self.backing.relocate(dev, from, to, stream);
        if !self.backing.backed().get(from) {
            self.add_hole(from, Some(target));
        }
        moved.map_err(Refusal::from)
    }

    /// The page is not backed any more. `unindexed` is a block that is in no index.
    fn add_hole(&mut self, page: usize, unindexed: Option<u32>) {
        let owner = self.backing.owner(page);
        let indexed = unindexed != Some(owner);
        if indexed {
            self.unindex_common(owner);
        }
        self.blocks.get_mut(owner).holes += 1;
        if indexed {
            self.index_common(owner);
        }
    }

    /// Gives back the highest wholly free pages while `too_much` says that too much is reserved. Returns the bytes.
    fn shrink(&mut self, dev: &mut dyn Device, too_much: impl Fn(Bytes) -> bool) -> Bytes {
        let (mut given, mut below) = (0, usize::MAX);
        while too_much(self.reserved()) {
            let Some(page) = self.backing.spare(below, &(0..0)) else { break };
            below = page;
            if self.backing.give_back(dev, page, StreamId(0)).is_ok() {
                self.add_hole(page, None);
                given += 1;
            }
        }
        if given > 0 {
            dev.charge(DeviceOp::PoolShrink, given, given * PAGE);
        }
        given * PAGE
    }

    /// What every synchronisation does in the end: keeps no more than the release threshold.
    pub(super) fn release_surplus(&mut self, dev: &mut dyn Device) -> Bytes {
        match self.attributes.release_threshold {
            Some(threshold) => self.shrink(dev, |reserved| reserved > threshold),
            None => 0,
        }
    }

    /// `cudaMemPoolTrimTo`: keeps at least `keep` bytes.
    pub(super) fn trim(&mut self, dev: &mut dyn Device, keep: Bytes) -> Bytes {
        self.shrink(dev, |reserved| reserved >= keep.saturating_add(PAGE))
    }
}

impl From<DeviceError> for Refusal {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::OutOfMemory { .. } => Refusal::DeviceFull,
            DeviceError::OutOfAddresses { .. } => Refusal::NoAddresses,
            other => Refusal::Device(other),
        }
    }
}
