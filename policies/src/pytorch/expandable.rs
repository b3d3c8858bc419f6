//! Expandable segments: address space that is mapped page by page.

use super::Pytorch;
use super::blocks::{Block, MAPPED, UNIT_SHIFT};
use super::heap::{SMALL, Segment};
use super::malloc::{Refusal, Search};
use super::size::SMALL_SEGMENT;
use poolsim_core::device::{Backing, Device, SyncScope};
use poolsim_core::error::DeviceError;
use poolsim_core::recording::Action;
use poolsim_core::units::Bytes;

impl Pytorch {
    /// Page size of expandable segments of a size class.
    pub(super) fn page_size(&self, class: usize) -> Bytes {
        if class == SMALL || self.config.exact_segments {
            SMALL_SEGMENT
        } else {
            self.config.large_segment_size
        }
    }

    /// Length of a reservation: nine eighths of the device's memory in whole pages.
    pub(super) fn reservation_size(&self, class: usize) -> Bytes {
        let page = self.page_size(class);
        let most = u64::from(u32::MAX) << UNIT_SHIFT;
        let wanted = (self.device_total + self.device_total / 8).next_multiple_of(page);
        wanted.min(most / page * page)
    }

    /// `try_allocate_expandable_block`: a free mapped block of at least the search's size. Pages mapped before a
    /// failure stay mapped.
    pub(super) fn grow_expandable(
        &mut self,
        dev: &mut dyn Device,
        search: &Search,
    ) -> Result<u32, Refusal> {
        let mut at = self.find_expandable(dev, search)?;
        if !self.blocks.get(at).is(MAPPED) {
            let len = self.blocks.get(at).size().min(search.size);
            self.map_block(dev, at, len)?;
        }
        while self.blocks.get(at).size() < search.size {
            let next = self.blocks.get(at).next;
            let missing = search.size - self.blocks.get(at).size();
            let len = self.blocks.get(next).size().min(missing);
            self.map_block(dev, next, len)?;
            at = next;
        }
        let heap = self.heaps.get_mut(search.heap);
        heap.free.remove(&mut self.blocks, at);
        Ok(at)
    }

    /// `find_expandable_block`: the lowest run of usable blocks, at most one mapped block and then unmapped ones, that is
    /// long enough; a new reservation if there is none.
    fn find_expandable(&mut self, dev: &mut dyn Device, search: &Search) -> Result<u32, Refusal> {
        for &unmapped in self.heaps.get(search.heap).unmapped.values() {
            let prev = self.blocks.get(unmapped).prev;
            let start = if self.blocks.get(prev).usable() { prev } else { unmapped };
            let (mut sum, mut at) = (0, start);
            while self.blocks.get(at).usable() && sum < search.size {
                sum += self.blocks.get(at).size();
                at = self.blocks.get(at).next;
            }
            if sum >= search.size {
                return Ok(start);
            }
        }
        let size = self.reservation_size(usize::from(search.heap & 1));
        if size < search.size {
            return Err(Refusal::Memory(poolsim_core::error::OomCause::DeviceFull));
        }
        Ok(self.new_reservation(dev, search.heap, size)?)
    }

    /// Address space whose blocks are all unmapped.
    pub(super) fn new_reservation(
        &mut self,
        dev: &mut dyn Device,
        heap: u16,
        size: Bytes,
    ) -> Result<u32, DeviceError> {
        let range = dev.reserve(size, Backing::Paged)?;
        let segment = Segment { range: range.id, addr: range.addr, size, heap, expandable: true };
        let id = self.heaps.add_segment(&mut self.blocks, segment);
        self.heaps.get_mut(heap).unmapped.insert(range.addr, id);
        Ok(id)
    }

    /// `map_block`: maps the pages that cover the first `len` bytes of an unmapped block and merges the result.
    pub(super) fn map_block(
        &mut self,
        dev: &mut dyn Device,
        id: u32,
        len: Bytes,
    ) -> Result<(), DeviceError> {
        let block = *self.blocks.get(id);
        let class = block.size_class();
        let page = self.page_size(class);
        let len = len.next_multiple_of(page);
        let segment = *self.heaps.segment_of(block.addr);
        dev.populate(segment.range, block.addr - segment.addr, len, page)?;
        self.heaps.get_mut(block.heap).unmapped.remove(&block.addr);
        self.blocks.get_mut(id).flags |= MAPPED;
        if len < block.size() {
            self.cut_unmapped_tail(id, (len >> UNIT_SHIFT) as u32);
        }
        self.merge(id, MAPPED);
        self.index(id);
        self.total += len;
        self.stats.reserve(class, len);
        dev.note(Action::SegmentMap, block.addr, len, self.heaps.get(block.heap).stream);
        Ok(())
    }

    /// The block keeps its first `units`; the rest becomes an unmapped block behind it.
    fn cut_unmapped_tail(&mut self, id: u32, units: u32) {
        let block = *self.blocks.get(id);
        let addr = block.addr + (Bytes::from(units) << UNIT_SHIFT);
        let tail = self.blocks.add(Block {
            addr,
            units: block.units - units,
            prev: id,
            flags: block.flags & !MAPPED,
            ..block
        });
        self.blocks.get_mut(block.next).prev = tail;
        let head = self.blocks.get_mut(id);
        head.next = tail;
        head.units = units;
        self.heaps.get_mut(block.heap).unmapped.insert(addr, tail);
    }

    /// `unmap_block`: gives the whole pages inside a free block back. The pieces before and behind them stay as free
    /// blocks of their own.
    pub(super) fn unmap_block(&mut self, dev: &mut dyn Device, id: u32) {
        let block = *self.blocks.get(id);
        let class = block.size_class();
        let page = self.page_size(class);
        let segment = *self.heaps.segment_of(block.addr);
        let first = (block.addr - segment.addr).next_multiple_of(page);
        let last = (block.end() - segment.addr) / page * page;
        if first >= last {
            return;
        }
        let stream = self.heaps.get(block.heap).stream;
        // The stream may still read the memory: its work must be done before the pages go.
        let gone = dev
            .synchronize(SyncScope::Stream(stream))
            .and_then(|()| dev.depopulate(segment.range, first, last - first));
        if let Err(e) = gone {
            panic!("unmapping pages that the allocator mapped failed: {e}");
        }
        self.heaps.get_mut(block.heap).free.remove(&mut self.blocks, id);
        self.leave_ends(id, segment.addr + first, segment.addr + last);
        self.blocks.get_mut(id).flags &= !MAPPED;
        self.merge(id, 0);
        let addr = self.blocks.get(id).addr;
        self.heaps.get_mut(block.heap).unmapped.insert(addr, id);
        let len = last - first;
        self.total -= len;
        self.stats.unreserve(class, len);
        let pool = self.heaps.get(block.heap).pool;
        if pool.is_private() {
            self.heaps.pools[pool.index()].mallocs -= 1;
        }
        dev.note(Action::SegmentUnmap, segment.addr + first, len, stream);
    }

    /// Cuts a mapped block down to `[first, last)`; what is left over on either side becomes a free block.
    fn leave_ends(&mut self, id: u32, first: u64, last: u64) {
        let block = *self.blocks.get(id);
        if block.addr < first {
            let low = self.blocks.cut_low(id, ((first - block.addr) >> UNIT_SHIFT) as u32);
            self.index(low);
        }
        if last < block.end() {
            let keep = *self.blocks.get(id);
            let units = ((last - keep.addr) >> UNIT_SHIFT) as u32;
            let tail =
                self.blocks.add(Block { addr: last, units: keep.units - units, prev: id, ..keep });
            self.blocks.get_mut(keep.next).prev = tail;
            let middle = self.blocks.get_mut(id);
            middle.next = tail;
            middle.units = units;
            self.index(tail);
        }
    }

    /// Gives a reservation up if nothing in it is mapped.
    pub(super) fn drop_reservation_if_empty(&mut self, dev: &mut dyn Device, id: u32) {
        let block = *self.blocks.get(id);
        if block.is(MAPPED) || block.is_split() {
            return;
        }
        self.heaps.get_mut(block.heap).unmapped.remove(&block.addr);
        self.blocks.drop_block(id);
        let segment =
            self.heaps.segments.remove(&block.addr).expect("the block is its reservation");
        dev.release(segment.range).expect("an empty reservation can be released");
    }
}
