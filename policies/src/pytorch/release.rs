//! Giving memory back: garbage collection, oversize release, release of everything.

use super::Pytorch;
use super::blocks::{EXPANDABLE, UNIT_SHIFT};
use super::heap::LARGE;
use super::malloc::Search;
use poolsim_core::device::Device;
use poolsim_core::recording::Action;
use poolsim_core::units::{Bytes, PoolId};

impl Pytorch {
    /// `garbage_collect_cached_blocks`: frees unsplit blocks of the default large pool that were not used for long.
    /// A round frees every block at least as old as the mean age at its start, and does not stop at the target.
    pub(super) fn collect_garbage(&mut self, dev: &mut dyn Device) {
        let limit = self.limit.expect("garbage is collected under a limit only");
        let threshold = (self.config.gc_threshold * limit as f64) as Bytes;
        if self.total <= threshold {
            return;
        }
        let target = self.total - threshold;
        let now = self.heaps.classes[LARGE].lookups;
        let age = |this: &Self, id: u32| now.wrapping_sub(this.blocks.ages[id as usize]);
        let whole = |this: &Self, id: u32| !this.blocks.get(id).is_split();
        let mut candidates: Vec<u32> =
            self.class_in_order(LARGE).into_iter().filter(|&id| whole(self, id)).collect();
        let mut total_age: f64 = candidates.iter().map(|&id| f64::from(age(self, id))).sum();
        let mut count = candidates.len();
        let (mut reclaimed, mut freed_any) = (0, true);
        while reclaimed < target && freed_any && count > 0 {
            freed_any = false;
            let old = total_age / count as f64;
            let mut kept = Vec::with_capacity(candidates.len());
            for id in candidates {
                let its_age = f64::from(age(self, id));
                if its_age < old || self.blocks.get(id).is(EXPANDABLE) {
                    kept.push(id);
                    continue;
                }
                reclaimed += self.blocks.get(id).size();
                total_age -= its_age;
                count -= 1;
                freed_any = true;
                self.release_block(dev, id);
            }
            candidates = kept;
        }
    }

    /// `release_available_cached_blocks`: makes room for a request by freeing oversize blocks of its own pool and
    /// stream. Returns whether enough went to try again.
    pub(super) fn release_oversize(&mut self, dev: &mut dyn Device, search: &Search) -> bool {
        if self.config.max_split_size.is_none() {
            return false;
        }
        let wanted = search.size.max(self.max_split);
        let Ok(units) = u32::try_from(wanted >> UNIT_SHIFT) else { return false };
        let free = &self.heaps.get(search.heap).free;
        let fit = free.best_fit(&self.blocks, units);
        if let Some(id) = fit
            && !self.blocks.get(id).is(EXPANDABLE)
        {
            self.release_block(dev, id);
            return true;
        }
        let mut at = match fit {
            Some(id) => free.before(&self.blocks, id),
            None => free.last(&self.blocks),
        };
        let mut freed = 0;
        while let Some(id) = at {
            let block = *self.blocks.get(id);
            if freed >= wanted || block.size() < self.max_split {
                break;
            }
            at = self.heaps.get(search.heap).free.before(&self.blocks, id);
            if !block.is(EXPANDABLE) {
                freed += block.size();
                self.release_block(dev, id);
            }
        }
        freed >= wanted
    }

    /// `release_cached_blocks`: waits for pending frees and gives back every unsplit free segment and every wholly free
    /// page of the default pool and of pools whose owner is gone. `only` limits it to one such pool.
    pub(super) fn release_everything(&mut self, dev: &mut dyn Device, only: Option<PoolId>) {
        if only.is_some() {
            self.wait_for_events(dev, only);
        } else if self.open == 0 {
            self.wait_for_events(dev, None);
            self.release_class(dev, LARGE);
            self.release_class(dev, 1 - LARGE);
        }
        for pool in 1..self.heaps.pools.len() {
            let asked = only.is_none_or(|p| p.index() == pool);
            if self.heaps.pools[pool].freeable && asked {
                self.release_class(dev, pool * 2);
                self.release_class(dev, pool * 2 + 1);
            }
        }
    }

    /// `release_blocks`: whole segments first, in order; then pages of expandable segments, whose blocks are listed
    /// before any is unmapped, because unmapping puts new pieces into the same set.
    fn release_class(&mut self, dev: &mut dyn Device, class: usize) {
        let all = self.class_in_order(class);
        let (expandable, whole): (Vec<u32>, Vec<u32>) =
            all.into_iter().partition(|&id| self.blocks.get(id).is(EXPANDABLE));
        for id in whole {
            if !self.blocks.get(id).is_split() {
                self.release_block(dev, id);
            }
        }
        for id in expandable {
            self.unmap_block(dev, id);
            self.drop_reservation_if_empty(dev, id);
        }
    }

    /// The free blocks of a pool's class in set order: stream, size, address.
    fn class_in_order(&self, class: usize) -> Vec<u32> {
        let heaps = self.heaps.classes.get(class).map_or(&[][..], |c| &c.heaps);
        heaps.iter().flat_map(|&h| self.heaps.get(h).free.in_order(&self.blocks)).collect()
    }

    /// `release_block`: cudaFree of a whole segment. PyTorch writes the entry before the call.
    fn release_block(&mut self, dev: &mut dyn Device, id: u32) {
        let block = *self.blocks.get(id);
        debug_assert!(!block.is_split() && !block.is(EXPANDABLE));
        let size = block.size();
        let heap = self.heaps.get_mut(block.heap);
        heap.free.remove(&mut self.blocks, id);
        let (class, stream, pool) = (block.size_class(), heap.stream, heap.pool);
        dev.note(Action::SegmentFree, block.addr, size, stream);
        let segment =
            self.heaps.segments.remove(&block.addr).expect("an unsplit block is a segment");
        dev.release(segment.range).expect("a range that the device handed out can be released");
        self.total -= size;
        if pool.is_private() {
            self.heaps.pools[pool.index()].mallocs -= 1;
        }
        self.stats.segment.sub(class, 1);
        self.stats.unreserve(class, size);
        if size >= self.max_split {
            self.stats.oversize_segment(false);
        }
        self.blocks.drop_block(id);
    }
}
