//! Freeing: at once, or when other streams are done; and merging.

use super::Pytorch;
use super::blocks::{ALLOCATED, Block, EXPANDABLE, MAPPED, SHARED};
use super::heap::class_index;
use poolsim_core::device::Device;
use poolsim_core::recording::Action;
use poolsim_core::units::{BlockId, PoolId, StreamId};

impl Pytorch {
    /// `free(block)`: the program gives the block back.
    #[inline(always)]
    pub(super) fn release(&mut self, dev: &mut dyn Device, id: u32) {
        let block = self.blocks.get_mut(id);
        // Copied before its flags are written: a copy after that would wait for the write.
        let freed = *block;
        assert!(freed.is(ALLOCATED), "the engine frees live blocks only");
        block.flags = freed.flags & !ALLOCATED;
        if freed.size() >= self.max_split {
            self.stats.oversize_block(false);
        }
        if freed.is(SHARED) {
            self.stats.free_pending(freed.size_class(), freed.size());
            self.deferred.defer(dev, BlockId(id));
        } else {
            self.stats.free(
                freed.size_class(),
                freed.size(),
                self.blocks.users[id as usize].requested,
            );
            self.merge_and_index(id, freed);
        }
    }

    /// `recordStream`: uses on the block's own stream need nothing.
    pub(super) fn share(&mut self, id: u32, stream: StreamId) {
        if self.heaps.get(self.blocks.get(id).heap).stream == stream {
            return;
        }
        self.blocks.get_mut(id).flags |= SHARED;
        self.deferred.note_use(BlockId(id), stream);
    }

    /// `process_events`: completes frees whose fences have passed. PyTorch takes the fences of frees during a redirection
    /// only when it is over. Here they are taken at the free, when the device is told what they wait for, and are not
    /// looked at before the redirection is over: the frees complete at the same malloc.
    #[cold]
    #[inline(never)]
    pub(super) fn process_events(&mut self, dev: &mut dyn Device) {
        self.collect_passed(dev, None);
    }

    /// `synchronize_and_free_events`: waits for every fence and completes every pending free; of one pool only, if
    /// `only` names it.
    pub(super) fn wait_for_events(&mut self, dev: &mut dyn Device, only: Option<PoolId>) {
        self.stats.syncs += 1;
        if !self.has_pending() {
            return;
        }
        if only.is_some() {
            // What passed already is not waited for, and completes in the order in which it passed.
            self.collect_passed(dev, only);
        }
        let waits = |id: BlockId| only.is_none_or(|pool| self.pool_of(id.0) == pool);
        if self.deferred.waiting().any(waits) && self.deferred.synchronize(dev).is_err() {
            return;
        }
        self.collect_passed(dev, only);
    }

    fn pool_of(&self, id: u32) -> PoolId {
        self.heaps.get(self.blocks.get(id).heap).pool
    }

    /// Completes frees whose fences have passed. Those of other pools than `only` are kept for a later call.
    fn collect_passed(&mut self, dev: &mut dyn Device, only: Option<PoolId>) {
        self.deferred.settle(dev, &mut self.unnoticed);
        for block in std::mem::take(&mut self.unnoticed) {
            if only.is_none_or(|pool| self.pool_of(block.0) == pool) {
                self.complete_late(dev, block.0);
            } else {
                self.unnoticed.push(block);
            }
        }
    }

    fn complete_late(&mut self, dev: &mut dyn Device, id: u32) {
        let block = *self.blocks.get(id);
        self.blocks.get_mut(id).flags = block.flags & !SHARED;
        let stream = self.heaps.get(block.heap).stream;
        let requested = self.blocks.users[id as usize].requested;
        dev.note(Action::FreeCompleted, block.addr, requested, stream);
        self.stats.complete_pending(block.size_class(), block.size(), requested);
        self.merge_and_index(id, block);
    }

    /// `free_block`: the block merges with its free neighbours and can be used again.
    #[inline(always)]
    fn merge_and_index(&mut self, id: u32, block: Block) {
        let (mut merged, mut merged_bytes) = (0, 0);
        if self.mergeable(block.prev, MAPPED) {
            merged += 1;
            merged_bytes += self.absorb_below(id, block.prev) as i64;
        }
        if self.mergeable(block.next, MAPPED) {
            merged += 1;
            merged_bytes += self.absorb_above(id, block.next) as i64;
        }
        if !block.is(EXPANDABLE) {
            let now = self.blocks.get(id);
            let more = i64::from(now.is_split());
            let bytes = more * now.size() as i64;
            self.stats.inactive_split.net(block.size_class(), more - merged);
            self.stats.inactive_split_bytes.net(block.size_class(), bytes - merged_bytes);
        }
        self.index(id);
    }

    /// Whether a neighbour can merge with a free block whose mapped flag is `mapped`.
    #[inline]
    pub(super) fn mergeable(&self, id: u32, mapped: u8) -> bool {
        let b = self.blocks.get(id);
        b.usable() && b.flags & MAPPED == mapped
    }

    /// Merges a free block with its free neighbours of the same kind, the one below first.
    pub(super) fn merge(&mut self, id: u32, mapped: u8) {
        let Block { prev, next, .. } = *self.blocks.get(id);
        if self.mergeable(prev, mapped) {
            self.absorb_below(id, prev);
        }
        if self.mergeable(next, mapped) {
            self.absorb_above(id, next);
        }
    }

    /// Takes the free neighbour below out of its set and adds its range to `id`. Returns its size.
    #[inline(always)]
    fn absorb_below(&mut self, id: u32, neighbour: u32) -> u64 {
        let gone = self.take_out(neighbour);
        let block = self.blocks.get_mut(id);
        block.units += gone.units;
        block.addr = gone.addr;
        block.prev = gone.prev;
        self.blocks.get_mut(gone.prev).next = id;
        gone.size()
    }

    /// Takes the free neighbour above out of its set and adds its range to `id`. Returns its size.
    #[inline(always)]
    fn absorb_above(&mut self, id: u32, neighbour: u32) -> u64 {
        let gone = self.take_out(neighbour);
        let block = self.blocks.get_mut(id);
        block.units += gone.units;
        block.next = gone.next;
        self.blocks.get_mut(gone.next).prev = id;
        gone.size()
    }

    #[inline(always)]
    fn take_out(&mut self, id: u32) -> Block {
        let gone = *self.blocks.get(id);
        let heap = &mut self.heaps.list[usize::from(gone.heap)];
        if gone.is(MAPPED) {
            heap.free.remove(&mut self.blocks, id);
        } else {
            heap.unmapped.remove(&gone.addr);
        }
        self.blocks.drop_block(id);
        gone
    }

    /// Puts a free mapped block into its heap's index.
    #[inline]
    pub(super) fn index(&mut self, id: u32) {
        let number = self.blocks.get(id).heap;
        let heap = &mut self.heaps.list[usize::from(number)];
        if self.collects {
            let class = &self.heaps.classes[class_index(heap.pool, number)];
            self.blocks.ages[id as usize] = class.lookups;
        }
        heap.free.insert(&mut self.blocks, id);
    }

    /// True while a free waits for fences.
    #[inline]
    pub(super) fn has_pending(&self) -> bool {
        !(self.deferred.is_empty() && self.unnoticed.is_empty())
    }
}
