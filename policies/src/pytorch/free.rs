//! Freeing: at once, or when other streams are done; and merging.

use super::Pytorch;
use super::blocks::{ALLOCATED, EXPANDABLE, MAPPED, NONE, SHARED};
use poolsim_core::device::{Device, SyncScope};
use poolsim_core::recording::Action;
use poolsim_core::units::StreamId;

impl Pytorch {
    /// `free(block)`: the program gives the block back.
    #[inline]
    pub(super) fn release(&mut self, dev: &mut dyn Device, id: u32) {
        let block = self.blocks.get_mut(id);
        assert!(block.flags & ALLOCATED != 0, "the engine frees live blocks only");
        block.flags &= !ALLOCATED;
        let (size, shared, heap) = (block.size(), block.flags & SHARED != 0, block.heap);
        let class = self.heaps.get(heap).size_class();
        self.stats.free(class, size);
        if size >= self.max_split {
            self.stats.oversize_block(false);
        }
        if shared {
            self.free_shared(dev, id);
        } else {
            self.complete(id);
        }
    }

    /// `recordStream`: uses on the block's own stream need nothing.
    pub(super) fn share(&mut self, id: u32, stream: StreamId) {
        if self.heaps.get(self.blocks.get(id).heap).stream == stream {
            return;
        }
        self.blocks.get_mut(id).flags |= SHARED;
        let streams = self.shared_on.entry(id).or_default();
        if !streams.contains(&stream) {
            streams.push(stream);
        }
    }

    #[cold]
    fn free_shared(&mut self, dev: &mut dyn Device, id: u32) {
        if self.open > 0 {
            self.deferred.push(id);
        } else {
            self.fence(dev, id);
        }
    }

    /// Takes a fence of every stream that used the block.
    fn fence(&mut self, dev: &mut dyn Device, id: u32) {
        let streams = self.shared_on.remove(&id).unwrap_or_default();
        let mut left = 0;
        for stream in streams {
            // A stream on which no fence can be recorded has no work either.
            if let Ok(fence) = dev.record(stream) {
                self.waiting.insert(fence, id);
                left += 1;
            }
        }
        if left == 0 {
            self.complete_late(dev, id);
        } else {
            self.fences_left.insert(id, left);
        }
    }

    /// `process_events`: completes frees whose fences have passed.
    #[cold]
    #[inline(never)]
    pub(super) fn process_events(&mut self, dev: &mut dyn Device) {
        for id in std::mem::take(&mut self.deferred) {
            self.fence(dev, id);
        }
        self.collect_passed(dev);
    }

    /// `synchronize_and_free_events`: waits for every fence and completes every pending free.
    pub(super) fn wait_for_events(&mut self, dev: &mut dyn Device) {
        self.stats.syncs += 1;
        for id in std::mem::take(&mut self.deferred) {
            self.fence(dev, id);
        }
        if self.waiting.is_empty() {
            return;
        }
        if dev.synchronize(SyncScope::Fences).is_ok() {
            self.collect_passed(dev);
        }
    }

    fn collect_passed(&mut self, dev: &mut dyn Device) {
        let mut passed = std::mem::take(&mut self.passed);
        passed.clear();
        dev.poll(&mut passed);
        for fence in &passed {
            // Fences of blocks that another policy on this device recorded are none of ours.
            let Some(id) = self.waiting.remove(fence) else { continue };
            let left = self.fences_left.get_mut(&id).expect("a waiting block counts its fences");
            *left -= 1;
            if *left == 0 {
                self.fences_left.remove(&id);
                self.complete_late(dev, id);
            }
        }
        self.passed = passed;
    }

    fn complete_late(&mut self, dev: &mut dyn Device, id: u32) {
        let block = self.blocks.get_mut(id);
        block.flags &= !SHARED;
        let (addr, requested, heap) = (block.addr, block.requested, block.heap);
        dev.note(Action::FreeCompleted, addr, requested, self.heaps.get(heap).stream);
        self.complete(id);
    }

    /// `free_block`: the block merges with its free neighbours and can be used again.
    #[inline]
    pub(super) fn complete(&mut self, id: u32) {
        let block = *self.blocks.get(id);
        let class = self.heaps.get(block.heap).size_class();
        let (mut merged, mut merged_bytes) = (0, 0);
        for neighbour in [block.prev, block.next] {
            if neighbour != NONE && self.mergeable(neighbour, MAPPED) {
                merged += 1;
                merged_bytes += self.absorb(id, neighbour) as i64;
            }
        }
        self.index(id);
        self.stats.complete(class, block.size(), block.requested);
        if !block.is(EXPANDABLE) {
            let now = self.blocks.get(id);
            let (more, bytes) = if now.is_split() { (1, now.size() as i64) } else { (0, 0) };
            self.stats.inactive_split.net(class, more - merged);
            self.stats.inactive_split_bytes.net(class, bytes - merged_bytes);
        }
    }

    /// Whether a neighbour can merge with a free block whose mapped flag is `mapped`.
    #[inline]
    pub(super) fn mergeable(&self, id: u32, mapped: u8) -> bool {
        let b = self.blocks.get(id);
        b.usable() && b.flags & MAPPED == mapped
    }

    /// Takes a free neighbour out of its set and adds its range to `id`. Returns its size.
    #[inline]
    pub(super) fn absorb(&mut self, id: u32, neighbour: u32) -> u64 {
        let gone = *self.blocks.get(neighbour);
        let heap = self.heaps.get_mut(gone.heap);
        if gone.is(MAPPED) {
            heap.free.remove(&mut self.blocks, neighbour);
        } else {
            heap.unmapped.remove(&gone.addr);
        }
        let block = self.blocks.get_mut(id);
        block.units += gone.units;
        if block.prev == neighbour {
            block.addr = gone.addr;
            block.prev = gone.prev;
            if gone.prev != NONE {
                self.blocks.get_mut(gone.prev).next = id;
            }
        } else {
            block.next = gone.next;
            if gone.next != NONE {
                self.blocks.get_mut(gone.next).prev = id;
            }
        }
        self.blocks.drop_block(neighbour);
        gone.size()
    }

    /// Puts a free mapped block into its heap's index.
    #[inline]
    pub(super) fn index(&mut self, id: u32) {
        let heap = &mut self.heaps.list[usize::from(self.blocks.get(id).heap)];
        if self.collects {
            self.blocks.ages[id as usize] = self.heaps.classes[usize::from(heap.class)].lookups;
        }
        heap.free.insert(&mut self.blocks, id);
    }

    /// True while a free waits for fences.
    #[inline]
    pub(super) fn has_pending(&self) -> bool {
        !(self.waiting.is_empty() && self.deferred.is_empty())
    }
}
