//! Where free memory is kept: pools, their size classes, and one heap for each stream in them.

use super::blocks::{Block, Blocks, EXPANDABLE, MAPPED, NONE};
use super::index::FreeIndex;
use poolsim_core::event::PoolFlags;
use poolsim_core::units::{Bytes, DevAddr, PoolId, RangeId, StreamId};
use std::collections::BTreeMap;

/// Index of the small class in everything that is kept per class.
pub const SMALL: usize = 0;
/// Index of the large class.
pub const LARGE: usize = 1;

/// The free memory of one (pool, size class, stream). Streams never share a heap.
#[derive(Clone, Debug)]
pub struct Heap {
    /// Free mapped blocks.
    pub free: FreeIndex,
    /// Free address space of expandable segments, by address.
    pub unmapped: BTreeMap<DevAddr, u32>,
    /// The stream.
    pub stream: StreamId,
    /// The pool's class that it belongs to, as an index into [`Heaps::classes`].
    pub class: u16,
}

impl Heap {
    /// 0 for small requests, 1 for large ones.
    #[inline]
    pub fn size_class(&self) -> usize {
        usize::from(self.class) & 1
    }

    /// The pool.
    pub fn pool(&self) -> PoolId {
        PoolId(self.class / 2)
    }
}

/// One size class of one pool: PyTorch's `BlockPool`.
#[derive(Clone, Debug, Default)]
pub struct PoolClass {
    by_stream: Vec<u16>,
    /// Heaps in stream order, which is the order of PyTorch's set.
    pub heaps: Vec<u16>,
    /// Lookups so far, the clock of garbage collection.
    pub lookups: u32,
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
    /// Segments by address. Expandable reservations are in here from reservation to release.
    pub segments: BTreeMap<DevAddr, Segment>,
}

const NO_HEAP: u16 = u16::MAX;

impl Heaps {
    /// The heap of a pool's class for a stream, made if need be.
    #[inline]
    pub fn find(&mut self, pool: PoolId, class: usize, stream: StreamId) -> u16 {
        let c = pool.index() * 2 + class;
        let known = self.classes.get(c).and_then(|p| p.by_stream.get(stream.index()));
        match known {
            Some(&heap) if heap != NO_HEAP => heap,
            _ => self.make(c, stream),
        }
    }

    #[cold]
    fn make(&mut self, class: usize, stream: StreamId) -> u16 {
        self.declare(PoolId((class / 2) as u16));
        let number = u16::try_from(self.list.len()).expect("fewer than 65535 heaps");
        assert!(number != NO_HEAP, "fewer than 65535 heaps");
        self.list.push(Heap {
            free: FreeIndex::default(),
            unmapped: BTreeMap::new(),
            stream,
            class: class as u16,
        });
        let list = &self.list;
        let c = &mut self.classes[class];
        if c.by_stream.len() <= stream.index() {
            c.by_stream.resize(stream.index() + 1, NO_HEAP);
        }
        c.by_stream[stream.index()] = number;
        let at = c.heaps.partition_point(|&h| list[usize::from(h)].stream < stream);
        c.heaps.insert(at, number);
        number
    }

    /// Makes room for a pool.
    pub fn declare(&mut self, pool: PoolId) -> &mut PoolLife {
        if self.pools.len() <= pool.index() {
            self.pools.resize(pool.index() + 1, PoolLife::default());
            self.classes.resize(self.pools.len() * 2, PoolClass::default());
        }
        &mut self.pools[pool.index()]
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
        blocks.add(Block {
            addr: segment.addr,
            requested: 0,
            units: u32::try_from(segment.size >> 9).expect("a segment is below 2 TiB"),
            prev: NONE,
            next: NONE,
            heap: segment.heap,
            flags,
        })
    }
}
