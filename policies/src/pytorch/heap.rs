//! Where free memory is kept: pools, their size classes, and one heap for each stream in them.

use super::blocks::{Block, Blocks, EXPANDABLE, MAPPED, UNIT_SHIFT};
use super::index::FreeIndex;
use poolsim_core::event::PoolFlags;
use poolsim_core::units::{Bytes, DevAddr, PoolId, RangeId, StreamId};
use std::collections::BTreeMap;

/// Index of the small class in everything that is kept per class.
pub const SMALL: usize = 0;
/// Index of the large class.
pub const LARGE: usize = 1;

/// The free memory of one (pool, size class, stream). Streams never share a heap.
///
/// Heaps come in pairs: an even number serves small requests, the next one large requests.
#[derive(Clone, Debug)]
pub struct Heap {
    /// Free mapped blocks.
    pub free: FreeIndex,
    /// Free address space of expandable segments, by address.
    pub unmapped: BTreeMap<DevAddr, u32>,
    /// The stream.
    pub stream: StreamId,
    /// The pool.
    pub pool: PoolId,
    /// Blocks of this pool are never split.
    pub no_split: bool,
}

/// One size class of one pool: PyTorch's `BlockPool`.
#[derive(Clone, Debug, Default)]
pub struct PoolClass {
    /// Heaps in stream order, which is the order of PyTorch's set.
    pub heaps: Vec<u16>,
    /// Lookups so far, the clock of garbage collection.
    pub lookups: u32,
}

/// The class of a pool in [`Heaps::classes`].
#[inline]
pub fn class_index(pool: PoolId, heap: u16) -> usize {
    pool.index() * 2 + usize::from(heap & 1)
}

/// A segment: a whole range, or an expandable reservation.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// The device's range.
    pub range: RangeId,
    /// First address.
    pub addr: DevAddr,
    /// Length in bytes (of the reservation, if expandable).
    pub size: Bytes,
    /// The heap that its blocks belong to.
    pub heap: u16,
    /// The block at its first address.
    pub expandable: bool,
}

/// A private pool's life.
#[derive(Clone, Debug, Default)]
pub struct PoolLife {
    /// Properties.
    pub flags: PoolFlags,
    /// The owner is gone: its segments go at the next release of everything.
    pub freeable: bool,
    /// Segments and expandable allocations that are out, as PyTorch counts them.
    pub mallocs: i64,
}

/// All pools, heaps and segments.
#[derive(Clone, Debug, Default)]
pub struct Heaps {
    /// Heaps by number.
    pub list: Vec<Heap>,
    /// Size classes: pool 0 small, pool 0 large, pool 1 small, …
    pub classes: Vec<PoolClass>,
    /// Pools by id.
    pub pools: Vec<PoolLife>,
    /// The first heap of each (pool, stream): `pool * stride + stream`.
    pairs: Vec<u16>,
    stride: usize,
    /// Segments by address. Expandable reservations are in here from reservation to release.
    pub segments: BTreeMap<DevAddr, Segment>,
}

const NO_HEAP: u16 = u16::MAX;

impl Heaps {
    /// The heap of a pool's class for a stream, made if need be.
    #[inline]
    pub fn find(&mut self, pool: PoolId, class: usize, stream: StreamId) -> u16 {
        if stream.index() < self.stride
            && let Some(&pair) = self.pairs.get(pool.index() * self.stride + stream.index())
            && pair != NO_HEAP
        {
            return pair + class as u16;
        }
        self.make(pool, stream) + class as u16
    }

    #[cold]
    #[inline(never)]
    fn make(&mut self, pool: PoolId, stream: StreamId) -> u16 {
        self.declare(pool);
        if stream.index() >= self.stride {
            self.widen(stream.index() + 1);
        }
        let at = pool.index() * self.stride + stream.index();
        if self.pairs.len() <= at {
            self.pairs.resize(at + 1, NO_HEAP);
        }
        let pair = self.list.len();
        assert!(pair + 2 < usize::from(NO_HEAP), "fewer than 65534 heaps");
        self.pairs[at] = pair as u16;
        for heap in [pair as u16, pair as u16 + 1] {
            self.list.push(Heap {
                free: FreeIndex::default(),
                unmapped: BTreeMap::new(),
                stream,
                pool,
                no_split: self.pools[pool.index()].flags.no_split,
            });
            let list = &self.list;
            let heaps = &mut self.classes[class_index(pool, heap)].heaps;
            heaps.insert(heaps.partition_point(|&h| list[usize::from(h)].stream < stream), heap);
        }
        pair as u16
    }

    /// Makes room for more streams in `pairs`.
    fn widen(&mut self, stride: usize) {
        let mut pairs = vec![NO_HEAP; self.pools.len() * stride];
        for (old, &pair) in self.pairs.iter().enumerate() {
            pairs[old / self.stride * stride + old % self.stride] = pair;
        }
        (self.pairs, self.stride) = (pairs, stride);
    }

    /// Makes room for a pool.
    pub fn declare(&mut self, pool: PoolId) -> &mut PoolLife {
        if self.pools.len() <= pool.index() {
            self.pools.resize(pool.index() + 1, PoolLife::default());
            self.classes.resize(self.pools.len() * 2, PoolClass::default());
        }
        &mut self.pools[pool.index()]
    }

    /// Sets a pool's properties.
    pub fn set_flags(&mut self, pool: PoolId, flags: PoolFlags) {
        self.declare(pool).flags = flags;
        for heap in self.list.iter_mut().filter(|h| h.pool == pool) {
            heap.no_split = flags.no_split;
        }
    }

    /// A heap.
    #[inline]
    pub fn get(&self, heap: u16) -> &Heap {
        &self.list[usize::from(heap)]
    }

    /// A heap, to change.
    #[inline]
    pub fn get_mut(&mut self, heap: u16) -> &mut Heap {
        &mut self.list[usize::from(heap)]
    }

    /// The segment that holds an address.
    ///
    /// # Panics
    /// If none does; every block lies in a segment.
    pub fn segment_of(&self, addr: DevAddr) -> &Segment {
        let (_, s) = self.segments.range(..=addr).next_back().expect("a block lies in a segment");
        debug_assert!(addr < s.addr + s.size);
        s
    }

    /// A block that fills a new segment, in no index.
    pub fn add_segment(&mut self, blocks: &mut Blocks, segment: Segment) -> u32 {
        let old = self.segments.insert(segment.addr, segment);
        assert!(old.is_none(), "a device hands out an address once");
        let flags = if segment.expandable { EXPANDABLE } else { MAPPED };
        let units = u32::try_from(segment.size >> UNIT_SHIFT).expect("a segment is below 2 TiB");
        blocks.add(Block::alone(segment.addr, units, segment.heap, flags))
    }
}
