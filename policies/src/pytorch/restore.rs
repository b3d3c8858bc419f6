//! Starting from a recorded heap instead of an empty one.
//!
//! Sizes, neighbours, streams and pools are taken over exactly. What a heap does not show starts fresh: ages, sums and
//! peaks. On a device that chooses addresses itself the heap is the same but for where its segments lie.

use super::Pytorch;
use super::blocks::{ALLOCATED, Block, MAPPED, NONE, SHARED, UNIT_SHIFT};
use super::heap::{LARGE, SMALL, Segment};
use super::size::MIN_BLOCK;
use poolsim_core::BlockId;
use poolsim_core::device::{Backing, Device};
use poolsim_core::error::DeviceError;
use poolsim_core::heap::{BlockState, BlockView, HeapImage, RangeView};
use poolsim_core::units::{DevAddr, PoolId, Slot, StreamId};
use std::collections::BTreeMap;

/// A reservation is told apart by what it serves.
type Serves = (PoolId, StreamId, bool);

impl Pytorch {
    /// Takes over `image`. `None` if it breaks the rules of this allocator's heaps (sizes that are no multiples of 512
    /// bytes, gaps) or the device cannot hold it; the allocator is then as new.
    pub(super) fn take_over(
        &mut self,
        dev: &mut dyn Device,
        image: &HeapImage,
    ) -> Option<Vec<(Slot, BlockId)>> {
        if !image.ranges.iter().all(|(r, blocks)| is_legal(r, blocks)) {
            return None;
        }
        let mut bases: BTreeMap<Serves, DevAddr> = BTreeMap::new();
        for (r, _) in image.ranges.iter().filter(|(r, _)| r.expandable) {
            let base = bases.entry((r.pool, r.stream, r.small)).or_insert(r.addr);
            *base = (*base).min(r.addr);
        }
        let mut reservations = BTreeMap::new();
        let mut live = Vec::new();
        for (range, blocks) in image.ranges.iter().filter(|(_, blocks)| !blocks.is_empty()) {
            let taken = if range.expandable {
                let base = bases[&(range.pool, range.stream, range.small)];
                self.take_mapped(dev, range, blocks, base, &mut reservations, &mut live)
            } else {
                self.take_segment(dev, range, blocks, &mut live)
            };
            if taken.is_err() {
                self.give_up(dev);
                return None;
            }
        }
        self.stats.start_here();
        Some(live)
    }

    /// Gives back what was taken so far and starts over.
    fn give_up(&mut self, dev: &mut dyn Device) {
        for b in &mut self.blocks.table {
            b.flags &= !(ALLOCATED | SHARED);
        }
        for segment in std::mem::take(&mut self.heaps.segments).into_values() {
            if segment.expandable {
                let mapped: Vec<Block> = self
                    .blocks
                    .table
                    .iter()
                    .filter(|b| {
                        b.is(MAPPED)
                            && (segment.addr..segment.addr + segment.size).contains(&b.addr)
                    })
                    .copied()
                    .collect();
                for b in mapped {
                    // A page may be shared by two blocks; the second call finds it gone.
                    let _ = dev.depopulate(segment.range, b.addr - segment.addr, b.size());
                }
            }
            let _ = dev.release(segment.range);
        }
        let caps = dev.caps().clone();
        *self = Pytorch::new(&self.config.clone(), &caps, None);
    }

    fn take_segment(
        &mut self,
        dev: &mut dyn Device,
        range: &RangeView,
        blocks: &[BlockView],
        live: &mut Vec<(Slot, BlockId)>,
    ) -> Result<(), DeviceError> {
        let heap = self.heap_of(range);
        let given = dev.reserve(range.size, Backing::Whole)?;
        let class = usize::from(heap & 1);
        let segment = Segment {
            range: given.id,
            addr: given.addr,
            size: range.size,
            heap,
            expandable: false,
        };
        let first = self.heaps.add_segment(&mut self.blocks, segment);
        self.total += range.size;
        self.stats.segment.add(class, 1);
        self.stats.reserve(class, range.size);
        if range.size >= self.max_split {
            self.stats.oversize_segment(true);
        }
        self.lay_out(first, blocks, live);
        Ok(())
    }

    fn take_mapped(
        &mut self,
        dev: &mut dyn Device,
        range: &RangeView,
        blocks: &[BlockView],
        base: DevAddr,
        reservations: &mut BTreeMap<Serves, DevAddr>,
        live: &mut Vec<(Slot, BlockId)>,
    ) -> Result<(), DeviceError> {
        let heap = self.heap_of(range);
        let serves = (range.pool, range.stream, range.small);
        let start = match reservations.get(&serves) {
            Some(&start) => start,
            None => {
                let size = self.reservation_size(usize::from(heap & 1));
                let id = self.new_reservation(dev, heap, size)?;
                let start = self.blocks.get(id).addr;
                reservations.insert(serves, start);
                start
            }
        };
        let addr = start + (range.addr - base);
        let hole = self.heaps.get(heap).unmapped.range(..=addr).next_back().map(|(_, &id)| id);
        let hole = hole.ok_or(DeviceError::OutOfAddresses { asked: range.size })?;
        let b = *self.blocks.get(hole);
        if b.end() < addr + range.size {
            return Err(DeviceError::OutOfAddresses { asked: range.size });
        }
        let mut at = hole;
        if b.addr < addr {
            self.heaps.get_mut(heap).unmapped.remove(&b.addr);
            let low = self.blocks.cut_low(hole, ((addr - b.addr) >> UNIT_SHIFT) as u32);
            self.heaps.get_mut(heap).unmapped.insert(b.addr, low);
            self.heaps.get_mut(heap).unmapped.insert(addr, hole);
            at = hole;
        }
        self.map_block(dev, at, range.size)?;
        self.heaps.get_mut(heap).free.remove(&mut self.blocks, at);
        self.lay_out(at, blocks, live);
        Ok(())
    }

    fn heap_of(&mut self, range: &RangeView) -> u16 {
        self.heaps.find(range.pool, if range.small { SMALL } else { LARGE }, range.stream)
    }

    /// Cuts a free block that is in no index into the given blocks.
    fn lay_out(&mut self, whole: u32, blocks: &[BlockView], live: &mut Vec<(Slot, BlockId)>) {
        let mut rest = whole;
        for (i, view) in blocks.iter().enumerate() {
            let id = if i + 1 < blocks.len() {
                self.blocks.cut_low(rest, (view.size >> UNIT_SHIFT) as u32)
            } else {
                rest
            };
            rest = if id == rest { NONE } else { rest };
            self.blocks.users[id as usize].requested = view.requested;
            self.set_up(id, view, live);
        }
    }

    fn set_up(&mut self, id: u32, view: &BlockView, live: &mut Vec<(Slot, BlockId)>) {
        let block = *self.blocks.get(id);
        let class = block.size_class();
        if view.state == BlockState::Free {
            self.index(id);
            if block.is_split() && !block.is(super::blocks::EXPANDABLE) {
                self.stats.inactive_split.add(class, 1);
                self.stats.inactive_split_bytes.add(class, view.size);
            }
            return;
        }
        // A pending free comes back as a live block: its free event is still ahead in the trace.
        self.blocks.get_mut(id).flags |= ALLOCATED;
        self.stats.allocate(class, view.size, view.requested);
        if view.size >= self.max_split {
            self.stats.oversize_block(true);
        }
        if let Some(slot) = view.slot {
            self.blocks.users[id as usize].slot = slot.0;
            live.push((slot, BlockId(id)));
        }
    }
}

fn is_legal(range: &RangeView, blocks: &[BlockView]) -> bool {
    let mut at = range.addr;
    for b in blocks {
        if b.addr != at || b.size == 0 || b.size % MIN_BLOCK != 0 {
            return false;
        }
        at += b.size;
    }
    // An empty range says where an expandable segment starts whose first pages are not mapped.
    (!blocks.is_empty() || range.expandable) && at == range.addr + range.size
}
