//! The arena's ranges and lanes: what is held from the device, for whom, and what could go back.

use super::{Arena, Block, NONE};
use poolsim_core::{
    Action, Backing, BlockId, BlockState, Bytes, DevAddr, Device, DeviceError, PoolId, RangeId,
    RangeView, Slot, StreamId,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::{Index, IndexMut};

/// A pool on a stream: the blocks that may serve each other's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The stream.
    pub stream: StreamId,
    /// The pool.
    pub pool: PoolId,
}

/// The number of a [`Lane`], dense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneId(pub u32);

/// The arena's number of a range; numbers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeNo(pub u32);

const NO_RANGE: RangeNo = RangeNo(u32::MAX);

#[derive(Clone, Copy, Debug)]
pub(super) struct RangeEntry {
    pub(super) id: RangeId,
    pub(super) addr: DevAddr,
    pub(super) size: Bytes,
    pub(super) lane: LaneId,
    /// The block at its first address; `NONE` marks a number that is not in use.
    pub(super) first: BlockId,
    /// Its pool's owner is alive, so it is not given back even when wholly free.
    pub(super) kept: bool,
    idle: bool,
    older: RangeNo,
    newer: RangeNo,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    entries: Vec<RangeEntry>,
    spare: Vec<RangeNo>,
}

impl Index<RangeNo> for Ranges {
    type Output = RangeEntry;
    fn index(&self, range: RangeNo) -> &RangeEntry {
        &self.entries[range.0 as usize]
    }
}

impl IndexMut<RangeNo> for Ranges {
    fn index_mut(&mut self, range: RangeNo) -> &mut RangeEntry {
        &mut self.entries[range.0 as usize]
    }
}

impl Ranges {
    fn add(&mut self, entry: RangeEntry) -> RangeNo {
        if let Some(range) = self.spare.pop() {
            self[range] = entry;
            return range;
        }
        let range = RangeNo(u32::try_from(self.entries.len()).expect("fewer than 2^32 ranges"));
        self.entries.push(entry);
        range
    }

    fn numbers(&self) -> impl Iterator<Item = RangeNo> {
        let used = self.entries.iter().enumerate().filter(|(_, e)| e.first != NONE);
        used.map(|(i, _)| RangeNo(i as u32))
    }
}

/// The idle ranges, oldest first: a list through the range entries.
#[derive(Clone, Debug)]
pub(super) struct IdleList {
    oldest: RangeNo,
    newest: RangeNo,
    pub(super) bytes: Bytes,
}

impl Default for IdleList {
    fn default() -> Self {
        IdleList { oldest: NO_RANGE, newest: NO_RANGE, bytes: 0 }
    }
}

impl IdleList {
    /// Does nothing if the range is idle already.
    pub(super) fn push(&mut self, ranges: &mut Ranges, range: RangeNo) {
        if ranges[range].idle {
            return;
        }
        let newest = std::mem::replace(&mut self.newest, range);
        let entry = &mut ranges[range];
        (entry.idle, entry.older, entry.newer) = (true, newest, NO_RANGE);
        self.bytes += entry.size;
        match newest {
            NO_RANGE => self.oldest = range,
            newest => ranges[newest].newer = range,
        }
    }

    /// Does nothing if the range is not idle.
    pub(super) fn unlink(&mut self, ranges: &mut Ranges, range: RangeNo) {
        let RangeEntry { idle, older, newer, size, .. } = ranges[range];
        if !idle {
            return;
        }
        ranges[range].idle = false;
        self.bytes -= size;
        match older {
            NO_RANGE => self.oldest = newer,
            older => ranges[older].newer = newer,
        }
        match newer {
            NO_RANGE => self.newest = older,
            newer => ranges[newer].older = older,
        }
    }

    pub(super) fn iter<'a>(&self, ranges: &'a Ranges) -> impl Iterator<Item = RangeNo> + use<'a> {
        let some = |r: RangeNo| (r != NO_RANGE).then_some(r);
        std::iter::successors(some(self.oldest), move |&r| some(ranges[r].newer))
    }
}

/// Lanes by number and by what they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    numbers: FxHashMap<(StreamId, PoolId), LaneId>,
    /// Pools whose owner is gone: their ranges may go back.
    dropped: FxHashSet<PoolId>,
    last: LaneId,
}

impl Lanes {
    #[inline]
    fn number(&mut self, stream: StreamId, pool: PoolId) -> LaneId {
        if self.lanes.get(self.last.0 as usize) != Some(&Lane { stream, pool }) {
            self.last = *self.numbers.entry((stream, pool)).or_insert_with(|| {
                self.lanes.push(Lane { stream, pool });
                LaneId(self.lanes.len() as u32 - 1)
            });
        }
        self.last
    }

    fn keeps(&self, pool: PoolId) -> bool {
        pool.is_private() && !self.dropped.contains(&pool)
    }
}

impl Arena {
    /// The lane of a pool on a stream.
    #[inline]
    pub fn lane_for(&mut self, stream: StreamId, pool: PoolId) -> LaneId {
        self.lanes.number(stream, pool)
    }

    /// How many lanes there are; their numbers are below that.
    pub fn lanes(&self) -> u32 {
        self.lanes.lanes.len() as u32
    }

    /// What a lane is.
    pub fn lane(&self, lane: LaneId) -> Lane {
        self.lanes.lanes[lane.0 as usize]
    }

    /// The lanes of a pool.
    pub fn lanes_of(&self, pool: PoolId) -> impl Iterator<Item = LaneId> {
        let lanes = self.lanes.lanes.iter().enumerate();
        lanes.filter(move |(_, lane)| lane.pool == pool).map(|(i, _)| LaneId(i as u32))
    }

    /// Ranges in the order of their numbers.
    pub fn ranges(&self) -> impl Iterator<Item = RangeNo> {
        self.ranges.numbers()
    }

    /// Length of a range.
    pub fn range_size(&self, range: RangeNo) -> Bytes {
        self.ranges[range].size
    }

    /// The block at the first address of a range.
    pub fn first_block(&self, range: RangeNo) -> BlockId {
        self.ranges[range].first
    }

    /// Whether the owner of a range's pool is alive, so that the range must stay.
    pub fn is_kept(&self, range: RangeNo) -> bool {
        self.ranges[range].kept
    }

    pub(super) fn range_view(&self, range: RangeNo) -> RangeView {
        let r = &self.ranges[range];
        let Lane { stream, pool } = self.lane(r.lane);
        RangeView {
            addr: r.addr,
            size: r.size,
            stream,
            pool,
            small: false,
            expandable: false,
            stack: Default::default(),
        }
    }

    /// The idle range that became so first.
    pub fn oldest_idle(&self) -> Option<RangeNo> {
        self.idle_ranges().next()
    }

    /// Idle ranges, oldest first.
    pub fn idle_ranges(&self) -> impl Iterator<Item = RangeNo> {
        self.idle.iter(&self.ranges)
    }

    /// Bytes of all idle ranges.
    pub fn idle_bytes(&self) -> Bytes {
        self.idle.bytes
    }

    /// The arena's own limit.
    pub fn limit(&self) -> Option<Bytes> {
        self.limit
    }

    /// Whether `size` more bytes stay within the arena's own limit.
    pub fn within_limit(&self, size: Bytes) -> bool {
        self.limit.is_none_or(|limit| self.stats.reserved.current.saturating_add(size) <= limit)
    }

    /// Takes a whole range of at least `size` bytes for a lane. It is one free block, in no index and
    /// not idle: the caller puts it to use at once, or calls [`Arena::merge`] on it.
    pub fn reserve(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
    ) -> Result<BlockId, DeviceError> {
        let granule = dev.caps().granule;
        self.reserve_exactly(dev, size.next_multiple_of(granule), lane)
    }

    /// The same, without rounding up to granules, for allocators that ask `cudaMalloc` for odd sizes.
    pub fn reserve_exactly(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
    ) -> Result<BlockId, DeviceError> {
        if !self.within_limit(size) {
            let free = self.limit.unwrap_or(0).saturating_sub(self.stats.reserved.current);
            return Err(DeviceError::OutOfMemory { asked: size, free });
        }
        let range = dev.reserve(size, Backing::Whole)?;
        let Lane { stream, pool } = self.lane(lane);
        dev.note(Action::SegmentAlloc, range.addr, range.size, stream);
        self.stats.reserved.add(range.size);
        let number = self.ranges.add(RangeEntry {
            id: range.id,
            addr: range.addr,
            size: range.size,
            lane,
            first: NONE,
            kept: self.lanes.keeps(pool),
            idle: false,
            older: NO_RANGE,
            newer: NO_RANGE,
        });
        let block = self.add_block(Block {
            addr: range.addr,
            size: range.size,
            requested: 0,
            prev: NONE,
            next: NONE,
            range: number,
            lane,
            slot: Slot(0),
            state: BlockState::Free,
            shared: false,
        });
        self.ranges[number].first = block;
        Ok(block)
    }

    /// Gives a range back that one free block covers; the block must be in no index. Returns its bytes. If the
    /// device refuses, nothing changes.
    pub fn release(&mut self, dev: &mut dyn Device, range: RangeNo) -> Result<Bytes, DeviceError> {
        let RangeEntry { id, addr, size, lane, first, .. } = self.ranges[range];
        debug_assert!(self.is_free(first) && self.size(first) == size);
        dev.release(id)?;
        dev.note(Action::SegmentFree, addr, size, self.lane(lane).stream);
        self.idle.unlink(&mut self.ranges, range);
        self.ranges[range].first = NONE;
        self.ranges.spare.push(range);
        self.spare_blocks.push(first);
        self.stats.reserved.sub(size);
        Ok(size)
    }

    /// The owner of a pool came (`true`) or is gone: its ranges are kept, or may go back once idle.
    pub fn keep_pool(&mut self, pool: PoolId, keep: bool) {
        if keep {
            self.lanes.dropped.remove(&pool);
        } else {
            self.lanes.dropped.insert(pool);
        }
        let kept = self.lanes.keeps(pool);
        let ranges: Vec<RangeNo> = self.ranges().collect();
        for range in ranges {
            let RangeEntry { lane, first, size, .. } = self.ranges[range];
            if self.lane(lane).pool != pool || self.ranges[range].kept == kept {
                continue;
            }
            self.ranges[range].kept = kept;
            if kept {
                self.idle.unlink(&mut self.ranges, range);
            } else if self.is_free(first) && self.size(first) == size {
                self.idle.push(&mut self.ranges, range);
            }
        }
    }

    pub(super) fn marked_idle(&self, range: RangeNo) -> bool {
        self.ranges[range].idle
    }
}
