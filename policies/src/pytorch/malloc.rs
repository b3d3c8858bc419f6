//! Serving a request.

use super::Pytorch;
use super::blocks::{ALLOCATED, Blocks, EXPANDABLE, MAPPED, NONE, UNIT_SHIFT, User};
use super::heap::{LARGE, SMALL, Segment, class_index};
use super::size::{MAX_REQUEST, MIN_BLOCK, round_size, segment_size};
use poolsim_core::device::{Backing, Device};
use poolsim_core::error::{AllocError, DeviceError, OomCause};
use poolsim_core::policy::{AllocRequest, Grant};
use poolsim_core::recording::Action;
use poolsim_core::units::{Bytes, PoolId};

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// Bytes asked for.
    pub requested: Bytes,
    /// Rounded size.
    pub size: Bytes,
    /// The heap that serves it.
    pub heap: u16,
    /// Whether new memory comes from an expandable segment.
    pub expandable: bool,
    /// Whether a redirection to a private pool is open.
    pub captured: bool,
}

/// Why a new segment was not to be had.
pub(super) enum Refusal {
    /// Out of memory; the next step may help.
    Memory(OomCause),
    /// The device failed otherwise.
    Device(DeviceError),
}

impl From<DeviceError> for Refusal {
    fn from(e: DeviceError) -> Self {
        match e {
            DeviceError::OutOfMemory { .. } | DeviceError::OutOfAddresses { .. } => {
                Refusal::Memory(OomCause::DeviceFull)
            }
            e => Refusal::Device(e),
        }
    }
}

impl Pytorch {
    #[inline(always)]
    pub(super) fn allocate(
        &mut self,
        dev: &mut dyn Device,
        req: AllocRequest,
    ) -> Result<Grant, AllocError> {
        if req.size >= MAX_REQUEST {
            return Err(AllocError::OutOfMemory {
                requested: req.size,
                rounded: req.size,
                reserved: self.total,
                largest_free: 0,
                cause: OomCause::TooLarge,
            });
        }
        let captured = self.open > 0 || req.pool.is_private();
        if !captured && self.has_pending() {
            self.process_events(dev);
        }
        let size = round_size(&self.config, req.size);
        let class = if size <= self.config.small_max { SMALL } else { LARGE };
        let heap = self.heaps.find(req.pool, class, req.stream);
        let expandable = self.config.expandable;
        let search = Search { requested: req.size, size, heap, expandable, captured };
        let (block, search) = match self.look_up(&search) {
            Some(block) => (block, search),
            None => self.make_room(dev, search)?,
        };
        Ok(self.hand_out(block, &search, req.slot.0))
    }

    /// `get_free_block`: takes the best free block out of the index, or finds none.
    #[inline(always)]
    pub(super) fn look_up(&mut self, search: &Search) -> Option<u32> {
        let heap = &mut self.heaps.list[usize::from(search.heap)];
        if self.collects {
            let class = &mut self.heaps.classes[class_index(heap.pool, search.heap)];
            class.lookups = class.lookups.wrapping_add(1);
        }
        let units = u32::try_from(search.size >> UNIT_SHIFT).ok()?;
        let mut found = heap.free.best_fit(&self.blocks, units)?;
        if self.blocks.get(found).is(EXPANDABLE) {
            found = walk_expandable(&self.blocks, &heap.free, found, search.expandable)?;
        }
        let size = self.blocks.get(found).size();
        let too_good = search.size < self.max_split && size >= self.max_split;
        let too_big = search.size >= self.max_split
            && size >= search.size + self.config.max_non_split_rounding;
        if too_good || too_big {
            return None;
        }
        heap.free.remove(&mut self.blocks, found);
        Some(found)
    }

    /// Everything that is tried when no free block fits, in PyTorch's order.
    #[cold]
    #[inline(never)]
    fn make_room(
        &mut self,
        dev: &mut dyn Device,
        search: Search,
    ) -> Result<(u32, Search), AllocError> {
        if self.collects {
            self.collect_garbage(dev);
        }
        let mut cause = match self.new_block(dev, &search)? {
            Ok(block) => return Ok((block, search)),
            Err(cause) => cause,
        };
        if self.heaps.get(search.heap).pool == PoolId::DEFAULT
            && let Some(found) = self.fall_back(&search)
        {
            return Ok(found);
        }
        if self.release_oversize(dev, &search) {
            match self.new_block(dev, &search)? {
                Ok(block) => return Ok((block, search)),
                Err(c) => cause = c,
            }
        }
        if !search.captured {
            self.release_everything(dev, None);
            self.stats.pool.retries += 1;
            match self.new_block(dev, &search)? {
                Ok(block) => return Ok((block, search)),
                Err(c) => cause = c,
            }
        }
        Err(self.out_of_memory(search.requested, search.size, cause))
    }

    /// `mempool fallback`: pools that lend their free blocks before anything is released.
    fn fall_back(&mut self, search: &Search) -> Option<(u32, Search)> {
        let stream = self.heaps.get(search.heap).stream;
        let class = usize::from(search.heap & 1);
        for pool in 1..self.heaps.pools.len() {
            if !self.heaps.pools[pool].flags.use_on_oom || self.heaps.pools[pool].freeable {
                continue;
            }
            let heap = self.heaps.find(PoolId(pool as u16), class, stream);
            let there = Search { heap, expandable: false, ..*search };
            if let Some(block) = self.look_up(&there) {
                return Some((block, there));
            }
        }
        None
    }

    /// `alloc_block`: a new segment or newly mapped pages. The outer error is the device's, the inner one says
    /// that there is no memory.
    fn new_block(
        &mut self,
        dev: &mut dyn Device,
        search: &Search,
    ) -> Result<Result<u32, OomCause>, AllocError> {
        match self.try_new_block(dev, search) {
            Ok(block) => Ok(Ok(block)),
            Err(Refusal::Memory(cause)) => Ok(Err(cause)),
            Err(Refusal::Device(e)) => Err(e.into()),
        }
    }

    fn try_new_block(&mut self, dev: &mut dyn Device, search: &Search) -> Result<u32, Refusal> {
        let size = segment_size(&self.config, search.size);
        if self.limit.is_some_and(|limit| self.total.saturating_add(size) > limit) {
            return Err(Refusal::Memory(OomCause::Limit));
        }
        let pool = self.heaps.get(search.heap).pool;
        let block = if search.expandable {
            self.grow_expandable(dev, search)?
        } else {
            if size >> UNIT_SHIFT > u64::from(u32::MAX) {
                return Err(Refusal::Memory(OomCause::DeviceFull));
            }
            self.new_segment(dev, search.heap, size)?
        };
        if pool.is_private() {
            self.heaps.pools[pool.index()].mallocs += 1;
        }
        Ok(block)
    }

    fn new_segment(
        &mut self,
        dev: &mut dyn Device,
        heap: u16,
        size: Bytes,
    ) -> Result<u32, Refusal> {
        let range = dev.reserve(size, Backing::Whole)?;
        let (stream, class) = (self.heaps.get(heap).stream, usize::from(heap & 1));
        self.total += size;
        self.stats.segment.add(class, 1);
        self.stats.reserve(class, size);
        if size >= self.max_split {
            self.stats.oversize_segment(true);
        }
        dev.note(Action::SegmentAlloc, range.addr, size, stream);
        let segment = Segment { range: range.id, addr: range.addr, size, heap, expandable: false };
        Ok(self.heaps.add_segment(&mut self.blocks, segment))
    }

    /// `should_split`, as the smallest remainder that is split off.
    #[inline(always)]
    fn smallest_rest(&self, heap: u16, search: &Search) -> Bytes {
        let class = usize::from(heap & 1);
        if self.heaps.get(heap).no_split {
            return Bytes::MAX;
        }
        if search.expandable {
            return MIN_BLOCK;
        }
        // Not `&&`: the first is nearly always false and foreseen, the second never is.
        if (search.size >= self.max_split) & (class == LARGE) {
            return Bytes::MAX;
        }
        // More than 1 MiB, in sizes that are multiples of 512.
        [MIN_BLOCK, self.config.small_max + MIN_BLOCK][class]
    }

    /// `alloc_found_block`: splits if it should and gives the low part to the program.
    #[inline(always)]
    fn hand_out(&mut self, found: u32, search: &Search, slot: u32) -> Grant {
        let block = self.blocks.get(found);
        let (addr, mut size, heap) = (block.addr, block.size(), block.heap);
        let (was_split, counts) = (block.is_split(), !block.is(EXPANDABLE));
        let class = usize::from(heap & 1);
        let mut id = found;
        let rest = size - search.size;
        let splits = rest >= self.smallest_rest(heap, search);
        if splits {
            id = self.blocks.cut_low(found, (search.size >> UNIT_SHIFT) as u32);
            self.index(found);
            size = search.size;
        }
        if counts {
            let gone = if was_split { -(size as i64) } else { 0 };
            let bytes = if splits && !was_split { rest as i64 } else { gone };
            self.stats.inactive_split_bytes.net(class, bytes);
            self.stats.inactive_split.net(class, i64::from(splits) - i64::from(was_split));
        }
        self.blocks.get_mut(id).flags |= ALLOCATED;
        self.blocks.users[id as usize] = User { requested: search.requested, slot };
        self.stats.allocate(class, size, search.requested);
        if size >= self.max_split {
            self.stats.oversize_block(true);
        }
        Grant { block: Blocks::handle(id), addr, size }
    }

    #[cold]
    fn out_of_memory(&mut self, requested: Bytes, rounded: Bytes, cause: OomCause) -> AllocError {
        self.stats.pool.ooms += 1;
        let largest_free = self
            .heaps
            .list
            .iter()
            .filter_map(|h| h.free.last(&self.blocks))
            .map(|id| self.blocks.get(id).size())
            .max()
            .unwrap_or(0);
        AllocError::OutOfMemory { requested, rounded, reserved: self.total, largest_free, cause }
    }
}

/// The walk of `get_free_block` when the best fit lies in an expandable segment.
///
/// With expandable segments on, a free block that touches the growable tail counts as if it had the tail
/// too, and a later block without one is preferred while that makes it smaller; the walk stops at the first
/// block that is no improvement. With them off, blocks of expandable segments are passed over.
fn walk_expandable(
    blocks: &Blocks,
    free: &super::index::FreeIndex,
    first: u32,
    expandable: bool,
) -> Option<u32> {
    let mut at = first;
    if !expandable {
        while blocks.get(at).is(EXPANDABLE) {
            at = free.after(blocks, at)?;
        }
        return Some(at);
    }
    while blocks.get(at).is(EXPANDABLE) {
        match free.after(blocks, at) {
            Some(next) if reach(blocks, next) < reach(blocks, at) => at = next,
            _ => break,
        }
    }
    Some(at)
}

/// Size of a block together with the unmapped space behind it.
fn reach(blocks: &Blocks, id: u32) -> Bytes {
    let b = blocks.get(id);
    let tail = match b.next {
        NONE => 0,
        next if blocks.get(next).is(MAPPED) => 0,
        next => blocks.get(next).size(),
    };
    b.size() + tail
}
