//! Which free block serves a request.

use super::StageDef;
use super::classes::{ClassSet, class_count, class_of};
use super::first_fit::AddressIndex;
use super::size_index::{Nodes, SizeIndex};
use crate::arena::{Arena, LaneId};
use poolsim_core::{BlockId, Bytes};

/// An index over the free blocks of an [`Arena`].
///
/// Every free block is in the index from [`Placement::insert`] until [`Placement::take`] or [`Placement::remove`]; both
/// come before the arena changes the block's size.
pub trait Placement: Send {
    /// Chooses a free block of the lane with at least `size` bytes and takes it out of the index.
    fn take(&mut self, arena: &Arena, size: Bytes, lane: LaneId) -> Option<BlockId>;
    /// A block became free.
    fn insert(&mut self, arena: &Arena, block: BlockId);
    /// A free block goes away: a neighbour takes it in, or its range is given back.
    fn remove(&mut self, arena: &Arena, block: BlockId);
    /// Size of the lane's largest free block, 0 if it has none. Asked when a request is refused.
    fn largest(&self, arena: &Arena, lane: LaneId) -> Bytes;
}

impl<T: Placement + ?Sized> Placement for Box<T> {
    fn take(&mut self, arena: &Arena, size: Bytes, lane: LaneId) -> Option<BlockId> {
        (**self).take(arena, size, lane)
    }
    fn insert(&mut self, arena: &Arena, block: BlockId) {
        (**self).insert(arena, block);
    }
    fn remove(&mut self, arena: &Arena, block: BlockId) {
        (**self).remove(arena, block);
    }
    fn largest(&self, arena: &Arena, lane: LaneId) -> Bytes {
        (**self).largest(arena, lane)
    }
}

/// One index for each lane, made when the lane first has a free block.
#[derive(Clone, Debug)]
struct ByLane<T>(Vec<Option<Box<T>>>);

impl<T> Default for ByLane<T> {
    fn default() -> Self {
        ByLane(Vec::new())
    }
}

impl<T: Default> ByLane<T> {
    #[inline]
    fn get(&mut self, lane: LaneId) -> Option<&mut T> {
        self.0.get_mut(lane.0 as usize)?.as_deref_mut()
    }

    fn peek(&self, lane: LaneId) -> Option<&T> {
        self.0.get(lane.0 as usize)?.as_deref()
    }

    #[inline]
    fn get_or_make(&mut self, lane: LaneId) -> &mut T {
        let i = lane.0 as usize;
        if i >= self.0.len() {
            self.0.resize_with(i + 1, || None);
        }
        self.0[i].get_or_insert_default()
    }
}

/// The smallest block that is large enough, among equals the one at the lowest address.
#[derive(Clone, Debug, Default)]
pub struct BestFit {
    nodes: Nodes,
    lanes: ByLane<SizeIndex>,
}

impl Placement for BestFit {
    #[inline]
    fn take(&mut self, _: &Arena, size: Bytes, lane: LaneId) -> Option<BlockId> {
        let index = self.lanes.get(lane)?;
        let block = index.smallest_at_least(&self.nodes, size)?;
        index.remove(&mut self.nodes, block);
        Some(block)
    }

    #[inline]
    fn insert(&mut self, arena: &Arena, block: BlockId) {
        let index = self.lanes.get_or_make(arena.lane_of(block));
        index.insert(&mut self.nodes, block, arena.size(block), arena.addr(block));
    }

    #[inline]
    fn remove(&mut self, arena: &Arena, block: BlockId) {
        self.lanes.get_or_make(arena.lane_of(block)).remove(&mut self.nodes, block);
    }

    fn largest(&self, arena: &Arena, lane: LaneId) -> Bytes {
        let largest = self.lanes.peek(lane).and_then(|index| index.largest(&self.nodes));
        largest.map_or(0, |b| arena.size(b))
    }
}

/// The largest block, if it is large enough; among equals the one at the lowest address.
#[derive(Clone, Debug, Default)]
pub struct WorstFit(BestFit);

impl Placement for WorstFit {
    fn take(&mut self, arena: &Arena, size: Bytes, lane: LaneId) -> Option<BlockId> {
        let BestFit { nodes, lanes } = &mut self.0;
        let index = lanes.get(lane)?;
        let block = index.largest(nodes).filter(|&b| arena.size(b) >= size)?;
        index.remove(nodes, block);
        Some(block)
    }

    fn insert(&mut self, arena: &Arena, block: BlockId) {
        self.0.insert(arena, block);
    }

    fn remove(&mut self, arena: &Arena, block: BlockId) {
        self.0.remove(arena, block);
    }

    fn largest(&self, arena: &Arena, lane: LaneId) -> Bytes {
        self.0.largest(arena, lane)
    }
}

/// The block at the lowest address that is large enough.
#[derive(Clone, Debug, Default)]
pub struct FirstFit {
    lanes: ByLane<AddressIndex>,
}

impl Placement for FirstFit {
    fn take(&mut self, _: &Arena, size: Bytes, lane: LaneId) -> Option<BlockId> {
        let index = self.lanes.get(lane)?;
        let (block, addr) = index.first_at_least(size)?;
        index.remove(addr);
        Some(block)
    }

    fn insert(&mut self, arena: &Arena, block: BlockId) {
        let index = self.lanes.get_or_make(arena.lane_of(block));
        index.insert(block, arena.size(block), arena.addr(block));
    }

    fn remove(&mut self, arena: &Arena, block: BlockId) {
        self.lanes.get_or_make(arena.lane_of(block)).remove(arena.addr(block));
    }

    fn largest(&self, _: &Arena, lane: LaneId) -> Bytes {
        self.lanes.peek(lane).map_or(0, AddressIndex::largest)
    }
}

const BIN_BITS: u32 = 3;
/// How many blocks of the request's own bin are looked at.
const BIN_TRIES: usize = 8;
const END: BlockId = BlockId(u32::MAX);

/// Bins of sizes, eight an octave, the block freed last first. The request's own bin may hold blocks that are too
/// small: its first eight are looked at. Then the next bin that has any serves with its first block. At
/// most a constant number of steps, for up to an eighth more memory in the chosen block.
#[derive(Clone, Debug, Default)]
pub struct Bins {
    links: Vec<(BlockId, BlockId)>,
    lanes: ByLane<BinHeads>,
}

#[derive(Clone, Debug)]
struct BinHeads {
    heads: Vec<BlockId>,
    used: ClassSet,
}

impl Default for BinHeads {
    fn default() -> Self {
        let count = class_count(BIN_BITS);
        BinHeads { heads: vec![END; count], used: ClassSet::new(count) }
    }
}

impl Bins {
    /// The blocks of a bin from its head on.
    fn bin(&self, head: Option<BlockId>) -> impl Iterator<Item = BlockId> {
        let some = |b: BlockId| (b != END).then_some(b);
        std::iter::successors(head.and_then(some), move |b| some(self.links[b.index()].1))
    }

    fn unlink(&mut self, arena: &Arena, block: BlockId) {
        let bins = self.lanes.get_or_make(arena.lane_of(block));
        let class = class_of(arena.size(block), BIN_BITS);
        let (prev, next) = self.links[block.index()];
        if prev == END {
            bins.heads[class] = next;
            if next == END {
                bins.used.remove(class);
            }
        } else {
            self.links[prev.index()].1 = next;
        }
        if next != END {
            self.links[next.index()].0 = prev;
        }
    }
}

impl Placement for Bins {
    fn take(&mut self, arena: &Arena, size: Bytes, lane: LaneId) -> Option<BlockId> {
        let bins = self.lanes.peek(lane)?;
        let own = class_of(size, BIN_BITS);
        let above = bins.used.at_least(own + 1).map(|c| bins.heads[c]);
        let first = Some(bins.heads[own]);
        let fits = self.bin(first).take(BIN_TRIES).find(|&b| arena.size(b) >= size);
        let block = fits.or(above)?;
        self.unlink(arena, block);
        Some(block)
    }

    fn insert(&mut self, arena: &Arena, block: BlockId) {
        if block.index() >= self.links.len() {
            self.links.resize(block.index() + 1, (END, END));
        }
        let bins = self.lanes.get_or_make(arena.lane_of(block));
        let class = class_of(arena.size(block), BIN_BITS);
        let next = std::mem::replace(&mut bins.heads[class], block);
        bins.used.insert(class);
        self.links[block.index()] = (END, next);
        if next != END {
            self.links[next.index()].0 = block;
        }
    }

    fn remove(&mut self, arena: &Arena, block: BlockId) {
        self.unlink(arena, block);
    }

    fn largest(&self, arena: &Arena, lane: LaneId) -> Bytes {
        let Some(bins) = self.lanes.peek(lane) else { return 0 };
        let first = bins.used.highest().map(|class| bins.heads[class]);
        self.bin(first).map(|b| arena.size(b)).max().unwrap_or(0)
    }
}

/// The placement stages.
pub const PLACEMENTS: &[StageDef<dyn Placement>] = &[
    StageDef {
        name: "best",
        summary: "the smallest block that is large enough, at the lowest address",
        params: &[],
        build: |_| Box::new(BestFit::default()),
    },
    StageDef {
        name: "first",
        summary: "the block at the lowest address that is large enough",
        params: &[],
        build: |_| Box::new(FirstFit::default()),
    },
    StageDef {
        name: "worst",
        summary: "the largest block",
        params: &[],
        build: |_| Box::new(WorstFit::default()),
    },
    StageDef {
        name: "bins",
        summary: "bins of eight sizes an octave, last freed first, in constant time",
        params: &[],
        build: |_| Box::new(Bins::default()),
    },
];

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
