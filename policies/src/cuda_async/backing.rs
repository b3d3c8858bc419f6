//! The pages behind the pool's address range.

use super::bits::Bits;
use poolsim_core::units::MIB;
use poolsim_core::{Action, Backing as Kind, Bytes, Device, DeviceError, PageId, StreamId};
use std::ops::Range;

/// The unit in which the pool takes, moves and gives back memory.
pub const PAGE: Bytes = 32 * MIB;

/// Which pages of the address range have memory, and which of them could be moved or given back.
#[derive(Clone, Debug)]
pub(super) struct Backing {
    range: Option<poolsim_core::Range>,
    len: Bytes,
    backed: Bits,
    /// Pages that lie wholly inside one block of the common list, backed or not.
    loose: Bits,
    /// The block of each loose page.
    owner: Vec<u32>,
    /// The memory of each backed page.
    memory: Vec<PageId>,
    count: usize,
    /// One more than the highest page that ever was backed.
    high: usize,
}

/// The pages that `[start, end)` touches.
pub(super) fn touched(start: Bytes, end: Bytes) -> Range<usize> {
    (start / PAGE) as usize..end.div_ceil(PAGE) as usize
}

/// The pages wholly inside `[start, end)`. If there is none, the range may end before it starts.
#[inline]
pub(super) fn inside(start: Bytes, end: Bytes) -> Range<usize> {
    start.div_ceil(PAGE) as usize..(end / PAGE) as usize
}

impl Backing {
    /// No page of `pages` is backed; all lie in block 0.
    pub(super) fn new(pages: usize) -> Self {
        let mut loose = Bits::none(pages);
        loose.set_range(0..pages);
        Backing {
            range: None,
            len: pages as Bytes * PAGE,
            backed: Bits::none(pages),
            loose,
            owner: vec![0; pages],
            memory: vec![PageId(0); pages],
            count: 0,
            high: 0,
        }
    }

    /// Bytes of the address range.
    pub(super) fn len(&self) -> Bytes {
        self.len
    }

    /// First address of the range; 0 before there is one.
    #[inline]
    pub(super) fn base(&self) -> u64 {
        self.range.map_or(0, |r| r.addr)
    }

    /// Pages that are backed.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn backed(&self) -> &Bits {
        &self.backed
    }

    /// How many pages are loose.
    #[cfg(debug_assertions)]
    pub(super) fn loose(&self) -> usize {
        self.loose.count(0..self.owner.len())
    }

    /// Whether these pages are loose in this block.
    #[cfg(debug_assertions)]
    pub(super) fn all_loose(&self, pages: Range<usize>, owner: u32) -> bool {
        let count = self.loose.count(pages.clone());
        count == pages.len() && (count == 0 || self.owner[pages].iter().all(|&o| o == owner))
    }

    pub(super) fn owner(&self, page: usize) -> u32 {
        self.owner[page]
    }

    /// These pages lie wholly inside the block `owner` of the common list now.
    #[inline]
    pub(super) fn loosen(&mut self, pages: Range<usize>, owner: u32) {
        if !pages.is_empty() {
            self.loose.set_range(pages.clone());
            self.owner[pages].fill(owner);
        }
    }

    /// These pages no longer lie wholly inside one block of the common list.
    #[inline]
    pub(super) fn tighten(&mut self, pages: Range<usize>) {
        self.loose.clear_range(pages);
    }

    /// The highest page below `below` and outside `except` that is backed and wholly free in the common list.
    pub(super) fn spare(&self, below: usize, except: &Range<usize>) -> Option<usize> {
        let below = below.min(self.high);
        self.backed
            .last_in_both(&self.loose, except.end..below)
            .or_else(|| self.backed.last_in_both(&self.loose, 0..below.min(except.start)))
    }

    fn at(page: usize) -> Bytes {
        page as Bytes * PAGE
    }

    fn note(&self, dev: &mut dyn Device, action: Action, page: usize, stream: StreamId) {
        dev.note(action, self.base() + Self::at(page), PAGE, stream);
    }

    fn range(&mut self, dev: &mut dyn Device) -> Result<poolsim_core::Range, DeviceError> {
        match self.range {
            Some(range) => Ok(range),
            None => Ok(*self.range.insert(dev.reserve(self.len, Kind::Paged)?)),
        }
    }

    fn now_backed(&mut self, page: usize, memory: PageId) {
        self.backed.set(page);
        self.memory[page] = memory;
        self.high = self.high.max(page + 1);
    }

    /// Backs a page with new memory.
    pub(super) fn create(
        &mut self,
        dev: &mut dyn Device,
        page: usize,
        stream: StreamId,
    ) -> Result<(), DeviceError> {
        dev.set_metered(false);
        let made = self.create_unmetered(dev, page);
        dev.set_metered(true);
        made?;
        self.note(dev, Action::SegmentMap, page, stream);
        Ok(())
    }

    fn create_unmetered(&mut self, dev: &mut dyn Device, page: usize) -> Result<(), DeviceError> {
        let range = self.range(dev)?;
        let memory = dev.create(PAGE)?;
        if let Err(error) = dev.map(range.id, Self::at(page), memory) {
            // What cannot even be given back is the device's to clean up.
            let _ = dev.destroy(memory);
            return Err(error);
        }
        self.now_backed(page, memory);
        self.count += 1;
        Ok(())
    }

    /// Backs the page `to` with the memory of the page `from`. If that fails on the way, the memory is given back:
    /// `from` is unbacked in either case unless it could not be unmapped.
    pub(super) fn relocate(
        &mut self,
        dev: &mut dyn Device,
        from: usize,
        to: usize,
        stream: StreamId,
    ) -> Result<(), DeviceError> {
        let range = self.range(dev)?;
        dev.set_metered(false);
        let moved = dev.unmap(range.id, Self::at(from), PAGE).map(|()| {
            self.backed.clear(from);
            dev.map(range.id, Self::at(to), self.memory[from])
        });
        if let Ok(Err(_)) = moved {
            let _ = dev.destroy(self.memory[from]);
            self.count -= 1;
        }
        dev.set_metered(true);
        moved.as_ref().map_err(Clone::clone)?;
        self.note(dev, Action::SegmentUnmap, from, stream);
        moved??;
        self.now_backed(to, self.memory[from]);
        self.note(dev, Action::SegmentMap, to, stream);
        Ok(())
    }

    /// Gives a page back.
    pub(super) fn give_back(
        &mut self,
        dev: &mut dyn Device,
        page: usize,
        stream: StreamId,
    ) -> Result<(), DeviceError> {
        let range = self.range(dev)?;
        dev.set_metered(false);
        let gone = dev.unmap(range.id, Self::at(page), PAGE);
        if gone.is_ok() {
            self.backed.clear(page);
            self.count -= 1;
            // What cannot even be given back is the device's to clean up.
            let _ = dev.destroy(self.memory[page]);
        }
        dev.set_metered(true);
        gone?;
        self.note(dev, Action::SegmentUnmap, page, stream);
        Ok(())
    }
}
