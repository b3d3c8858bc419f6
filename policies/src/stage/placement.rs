//! Which free block serves a request.

use super::StageDef;
use super::bins::Bins;
use super::first_fit::AddressIndex;
use super::size_index::{Nodes, SizeIndex};
use crate::arena::{Arena, LaneId};
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind};
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

    /// Takes up a block that is free and in no index: joined with its free neighbours. A rule that keeps some
    /// neighbours apart does so here, and must still call [`Arena::merge`] once, which marks idle ranges.
    #[inline]
    fn take_up(&mut self, arena: &mut Arena, block: BlockId) {
        let (prev, next) = arena.free_neighbours(block);
        for neighbour in [prev, next].into_iter().flatten() {
            self.remove(arena, neighbour);
        }
        let whole = arena.merge(block, prev, next);
        self.insert(arena, whole);
    }

    /// Takes up what is left behind a block that was put to use: as one block, unless the rule cuts it further.
    #[inline]
    fn take_up_rest(&mut self, arena: &mut Arena, rest: BlockId) {
        self.insert(arena, rest);
    }

    /// Whether free neighbours always join.
    fn coalesces(&self) -> bool {
        true
    }
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
    fn take_up(&mut self, arena: &mut Arena, block: BlockId) {
        (**self).take_up(arena, block);
    }
    fn take_up_rest(&mut self, arena: &mut Arena, rest: BlockId) {
        (**self).take_up_rest(arena, rest);
    }
    fn coalesces(&self) -> bool {
        (**self).coalesces()
    }
}

/// One index for each lane, made when the lane first has a free block.
#[derive(Clone, Debug)]
pub(super) struct ByLane<T>(Vec<Option<Box<T>>>);

impl<T> Default for ByLane<T> {
    fn default() -> Self {
        ByLane(Vec::new())
    }
}

impl<T> ByLane<T> {
    #[inline]
    fn get(&mut self, lane: LaneId) -> Option<&mut T> {
        self.0.get_mut(lane.0 as usize)?.as_deref_mut()
    }

    pub(super) fn peek(&self, lane: LaneId) -> Option<&T> {
        self.0.get(lane.0 as usize)?.as_deref()
    }

    #[inline]
    pub(super) fn get_or_make_with(&mut self, lane: LaneId, make: impl FnOnce() -> T) -> &mut T {
        let i = lane.0 as usize;
        if i >= self.0.len() {
            self.0.resize_with(i + 1, || None);
        }
        self.0[i].get_or_insert_with(|| Box::new(make()))
    }

    #[inline]
    fn get_or_make(&mut self, lane: LaneId) -> &mut T
    where
        T: Default,
    {
        self.get_or_make_with(lane, T::default)
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
        build: |_| Box::new(Bins::quick()),
    },
    StageDef {
        name: "tlsf",
        summary: "two-level segregated lists, 2^place.sli an octave, last freed first, in constant time",
        params: &[SLI],
        build: |p| Box::new(Bins::tlsf(p.uint(SLI.key) as u32)),
    },
];

/// `place.sli`.
pub const SLI: ParamDef = ParamDef {
    key: "place.sli",
    kind: ParamKind::UInt { min: 0, max: 5 },
    default: ParamDefault::Is("5"),
    unit: "",
    doc: "Second-level index: 2^sli lists between two powers of two.",
    effect: Effect::Simulated,
};

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
