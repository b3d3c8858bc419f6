//! The block table: which ranges are held, and how blocks tile them.
//!
//! A worked example, used by the docs below. One range of 2 MiB after three requests and one free:
//!
//! ```text
//! range 0 (lane 0)   | block 0: in use | block 1: free | block 2: in use | block 3: free |
//! ```
//!
//! Blocks of a range form a list in address order. Free neighbours are merged at once, so no two free
//! blocks touch. A *lane* is a pool on a stream: blocks do not change lanes, because memory that is free
//! in one stream's order is not free in another's, unless an allocator orders the streams
//! ([`Arena::move_to_lane`]). A range is *idle* while one free block covers it and its pool may give memory
//! back; idle ranges are kept in the order in which they became so.
//!
//! The arena owns all facts on blocks. A placement stage owns an index over [`BlockId`]s and nothing more.

mod check;
mod range;

pub use range::{Lane, LaneId, RangeNo};

use poolsim_core::units::GIB;
use poolsim_core::{
    AllocError, AllocRequest, BlockId, BlockState, BlockView, Bytes, DevAddr, Device, Grant,
    HeapVisitor, OomCause, PoolId, PoolStats, Slot,
};
use range::{IdleList, Lanes, Ranges};

/// No block.
const NONE: BlockId = BlockId(u32::MAX);

/// Requests from this size on are refused before anything else, as PyTorch does; below it, no sum of
/// sizes in this crate overflows.
pub const TOO_LARGE: Bytes = GIB << 30;

#[derive(Clone, Copy, Debug)]
struct Block {
    addr: DevAddr,
    size: Bytes,
    /// Bytes asked for; stale while the block is free.
    requested: Bytes,
    prev: BlockId,
    next: BlockId,
    range: RangeNo,
    lane: LaneId,
    slot: Slot,
    state: BlockState,
    shared: bool,
}

/// The blocks, ranges and lanes of one allocator, and its statistics.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    blocks: Vec<Block>,
    spare_blocks: Vec<BlockId>,
    ranges: Ranges,
    lanes: Lanes,
    idle: IdleList,
    limit: Option<Bytes>,
    /// Blocks may be in other lanes than their ranges.
    lanes_move: bool,
    stats: PoolStats,
}

impl Arena {
    /// An empty arena that holds at most `limit` bytes.
    pub fn with_limit(limit: Option<Bytes>) -> Self {
        Arena { limit, ..Arena::default() }
    }

    /// The present statistics.
    #[inline]
    pub fn stats(&self) -> &PoolStats {
        &self.stats
    }

    /// For the counts that only the allocator itself knows: refusals and retries.
    #[inline]
    pub fn stats_mut(&mut self) -> &mut PoolStats {
        &mut self.stats
    }

    #[inline]
    fn block(&self, block: BlockId) -> &Block {
        &self.blocks[block.index()]
    }

    #[inline]
    fn block_mut(&mut self, block: BlockId) -> &mut Block {
        &mut self.blocks[block.index()]
    }

    /// First address of a block.
    #[inline]
    pub fn addr(&self, block: BlockId) -> DevAddr {
        self.block(block).addr
    }

    /// Length of a block.
    #[inline]
    pub fn size(&self, block: BlockId) -> Bytes {
        self.block(block).size
    }

    /// Bytes that were asked for with this block.
    #[inline]
    pub fn requested(&self, block: BlockId) -> Bytes {
        self.block(block).requested
    }

    /// The lane of a block.
    #[inline]
    pub fn lane_of(&self, block: BlockId) -> LaneId {
        self.block(block).lane
    }

    /// The range of a block.
    #[inline]
    pub fn range_of(&self, block: BlockId) -> RangeNo {
        self.block(block).range
    }

    /// Whether a block is free.
    #[inline]
    pub fn is_free(&self, block: BlockId) -> bool {
        self.block(block).state == BlockState::Free
    }

    /// Whether other streams use the block ([`Arena::share`]).
    #[inline]
    pub fn is_shared(&self, block: BlockId) -> bool {
        self.block(block).shared
    }

    /// Other streams use the block from now on, until it is free.
    #[inline]
    pub fn share(&mut self, block: BlockId) {
        self.block_mut(block).shared = true;
    }

    /// The free blocks before and after a block in its range.
    #[inline]
    pub fn free_neighbours(&self, block: BlockId) -> (Option<BlockId>, Option<BlockId>) {
        let Block { prev, next, .. } = *self.block(block);
        let free = |b: BlockId| (b != NONE && self.is_free(b)).then_some(b);
        (free(prev), free(next))
    }

    /// Puts a free block to use: its first `size` bytes serve `req`, and what is left over, if anything,
    /// becomes a free block of its own, which is returned.
    #[inline]
    pub fn occupy(&mut self, block: BlockId, size: Bytes, req: &AllocRequest) -> Option<BlockId> {
        debug_assert!(self.is_free(block) && self.size(block) >= size && size >= req.size);
        let rest = self.cut(block, size);
        let b = self.block_mut(block);
        b.requested = req.size;
        b.slot = req.slot;
        b.state = BlockState::Allocated;
        b.shared = false;
        self.stats.requested.add(req.size);
        self.stats.allocated.add(size);
        self.stats.active.add(size);
        rest
    }

    /// Cuts a free block that is in no index after its first `size` bytes, of which it has more. Returns the rest.
    pub fn split(&mut self, block: BlockId, size: Bytes) -> BlockId {
        debug_assert!(self.is_free(block) && self.size(block) > size && size > 0);
        self.cut(block, size).expect("the block is longer than its first part")
    }

    /// Makes a free block, which may cover a range, one of `size` bytes; returns the rest, if any.
    #[inline]
    fn cut(&mut self, block: BlockId, size: Bytes) -> Option<BlockId> {
        let b = self.block_mut(block);
        let Block { addr, size: whole, prev, next, range, lane, slot, .. } = *b;
        b.size = size;
        if prev == NONE && next == NONE {
            self.idle.unlink(&mut self.ranges, range);
        }
        if whole == size {
            return None;
        }
        let rest = self.add_block(Block {
            addr: addr + size,
            size: whole - size,
            requested: 0,
            prev: block,
            next,
            range,
            lane,
            slot,
            state: BlockState::Free,
            shared: false,
        });
        if next != NONE {
            self.block_mut(next).prev = rest;
        }
        self.block_mut(block).next = rest;
        Some(rest)
    }

    /// Moves a block to another lane than its range's, for allocators whose blocks change streams.
    #[inline]
    pub fn move_to_lane(&mut self, block: BlockId, lane: LaneId) {
        self.block_mut(block).lane = lane;
        self.lanes_move = true;
    }

    /// The block after this one in its range.
    #[inline]
    pub fn following(&self, block: BlockId) -> Option<BlockId> {
        Some(self.block(block).next).filter(|&next| next != NONE)
    }

    /// What the program gets for a block in use.
    #[inline]
    pub fn grant(&self, block: BlockId) -> Grant {
        let b = self.block(block);
        Grant { block, addr: b.addr, size: b.size }
    }

    /// The program freed a block that other streams still use.
    pub fn suspend(&mut self, block: BlockId) {
        let b = self.block_mut(block);
        debug_assert_eq!(b.state, BlockState::Allocated);
        b.state = BlockState::Pending;
        let size = b.size;
        self.stats.allocated.sub(size);
    }

    /// A block in use or suspended is free now. It stays apart from its neighbours until [`Arena::merge`].
    #[inline]
    pub fn vacate(&mut self, block: BlockId) {
        let b = self.block_mut(block);
        let Block { size, requested, state, .. } = *b;
        debug_assert_ne!(state, BlockState::Free);
        b.state = BlockState::Free;
        b.shared = false;
        if state == BlockState::Allocated {
            self.stats.allocated.sub(size);
        }
        self.stats.active.sub(size);
        self.stats.requested.sub(requested);
    }

    /// Joins a free block with free neighbours that are in no index any more. Returns the block that
    /// covers them all.
    #[inline]
    pub fn merge(
        &mut self,
        block: BlockId,
        prev: Option<BlockId>,
        next: Option<BlockId>,
    ) -> BlockId {
        // Worked out in registers and written once: what was just written is slow to read back.
        let b = self.block(block);
        let (mut size, range, before, mut after) = (b.size, b.range, b.prev, b.next);
        if let Some(next) = next {
            debug_assert_eq!(next, after);
            let n = self.block(next);
            (size, after) = (size + n.size, n.next);
            self.spare_blocks.push(next);
        }
        let (mut whole, mut first) = (block, before);
        if let Some(prev) = prev {
            debug_assert_eq!(prev, before);
            let p = self.block(prev);
            (size, first, whole) = (size + p.size, p.prev, prev);
            self.spare_blocks.push(block);
        }
        let b = self.block_mut(whole);
        b.size = size;
        b.next = after;
        if after != NONE {
            self.block_mut(after).prev = whole;
        } else if first == NONE && !self.ranges[range].kept {
            self.idle.push(&mut self.ranges, range);
        }
        whole
    }

    fn add_block(&mut self, block: Block) -> BlockId {
        if let Some(id) = self.spare_blocks.pop() {
            self.blocks[id.index()] = block;
            return id;
        }
        let id = BlockId(u32::try_from(self.blocks.len()).expect("fewer than 2^32 blocks"));
        self.blocks.push(block);
        id
    }

    /// The blocks of a range in address order.
    pub fn blocks_of(&self, range: RangeNo) -> impl Iterator<Item = BlockId> {
        std::iter::successors(Some(self.ranges[range].first), |&b| self.following(b))
    }

    /// Counts a refusal, and says why: no `rounded` bytes for a request of `requested` bytes, while the largest free
    /// block of the same pool has `largest_free`.
    #[cold]
    pub fn refuse(
        &mut self,
        dev: &dyn Device,
        requested: Bytes,
        rounded: Bytes,
        largest_free: Bytes,
    ) -> AllocError {
        self.stats.ooms += 1;
        let cause = if requested >= TOO_LARGE {
            OomCause::TooLarge
        } else if !self.within_limit(rounded.next_multiple_of(dev.caps().granule)) {
            OomCause::Limit
        } else {
            OomCause::DeviceFull
        };
        AllocError::OutOfMemory {
            requested,
            rounded,
            reserved: self.stats.reserved.current,
            largest_free,
            cause,
        }
    }

    /// Size of the largest free block of a pool, 0 if there is none. Walks the heap; an index knows it faster.
    pub fn largest_free(&self, pool: PoolId) -> Bytes {
        let of_pool = |&r: &RangeNo| self.lane(self.ranges[r].lane).pool == pool;
        let blocks = self.ranges().filter(of_pool).flat_map(|r| self.blocks_of(r));
        blocks.filter(|&b| self.is_free(b)).map(|b| self.size(b)).max().unwrap_or(0)
    }

    /// Walks the heap, ranges in the order of their numbers.
    pub fn visit(&self, visitor: &mut dyn HeapVisitor) {
        for range in self.ranges() {
            visitor.range(&self.range_view(range));
            for b in self.blocks_of(range).map(|b| self.block(b)) {
                visitor.block(&BlockView {
                    addr: b.addr,
                    size: b.size,
                    requested: b.requested,
                    state: b.state,
                    slot: (b.state == BlockState::Allocated).then_some(b.slot),
                    stack: Default::default(),
                });
            }
        }
    }
}
