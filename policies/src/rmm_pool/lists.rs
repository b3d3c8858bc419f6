//! RMM's free lists: one for each stream, and how a stream comes to memory in another's list.

use crate::arena::{Arena, LaneId};
use crate::ordered::Ordered;
use crate::stage::Placement;
use crate::stage::placement::BestFit;
use poolsim_core::{BlockId, Bytes, Device, DeviceOp, StreamId};
use std::collections::VecDeque;

/// Stands for CUDA's default stream in programs that do not use it.
pub const NO_STREAM: StreamId = StreamId::FOREIGN;

/// A free list for each lane. A block in a list is in that lane.
pub trait Lists: Default {
    /// Takes a block of at least `size` bytes out of a lane's list.
    fn take(&mut self, arena: &Arena, size: Bytes, lane: LaneId) -> Option<BlockId>;
    /// Adds a free block to its lane's list.
    fn put(&mut self, arena: &mut Arena, block: BlockId);
}

/// The pool's lists: the smallest block that fits, the lowest address among equals; neighbours in one list merge
/// unless they came from the device apart.
#[derive(Clone, Debug, Default)]
pub struct Coalescing(BestFit);

impl Coalescing {
    /// Takes a free block out of its lane's list.
    pub fn remove(&mut self, arena: &Arena, block: BlockId) {
        self.0.remove(arena, block);
    }
}

impl Lists for Coalescing {
    #[inline]
    fn take(&mut self, arena: &Arena, size: Bytes, lane: LaneId) -> Option<BlockId> {
        self.0.take(arena, size, lane)
    }

    #[inline]
    fn put(&mut self, arena: &mut Arena, block: BlockId) {
        let lane = arena.lane_of(block);
        let (prev, next) = arena.free_neighbours(block);
        let prev = prev.filter(|&b| arena.lane_of(b) == lane);
        let next = next.filter(|&b| arena.lane_of(b) == lane);
        for neighbour in [prev, next].into_iter().flatten() {
            self.0.remove(arena, neighbour);
        }
        let whole = arena.merge(block, prev, next);
        self.0.insert(arena, whole);
    }
}

/// A bin's lists of equal blocks: first in, first out.
#[derive(Clone, Debug, Default)]
pub struct Equal(Vec<VecDeque<BlockId>>);

impl Lists for Equal {
    fn take(&mut self, _: &Arena, _: Bytes, lane: LaneId) -> Option<BlockId> {
        self.0.get_mut(lane.0 as usize)?.pop_front()
    }

    fn put(&mut self, arena: &mut Arena, block: BlockId) {
        let i = arena.lane_of(block).0 as usize;
        if i >= self.0.len() {
            self.0.resize_with(i + 1, VecDeque::new);
        }
        self.0[i].push_back(block);
    }
}

/// Lists by stream, with the order in which RMM looks through them.
#[derive(Clone, Debug, Default)]
pub struct StreamLists<L> {
    lists: L,
    /// Lanes that have a list, ascending: in the order in which RMM made the streams' events. RMM orders by the
    /// events' handles.
    there: Vec<u32>,
}

impl<L: Lists> StreamLists<L> {
    #[inline]
    fn note(&mut self, lane: LaneId) {
        if let Err(at) = self.there.binary_search(&lane.0) {
            self.there.insert(at, lane.0);
        }
    }

    /// Adds a free block to its lane's list.
    #[inline]
    pub fn put(&mut self, arena: &mut Arena, block: BlockId) {
        self.note(arena.lane_of(block));
        self.lists.put(arena, block);
    }

    /// A block of at least `size` bytes for a lane: from its own list; else from the first other list that has
    /// one; else the other lists are joined to its own, one by one, until one fits. The block is still in
    /// the lane of the list that what is left of it goes back to.
    #[inline]
    pub fn take(
        &mut self,
        heap: &mut Ordered,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
    ) -> Option<BlockId> {
        if let Some(block) = self.lists.take(&heap.arena, size, lane) {
            return Some(block);
        }
        self.note(lane);
        if self.there.len() == 1 {
            return None;
        }
        self.steal(heap, dev, size, lane).or_else(|| self.join(heap, dev, size, lane))
    }

    #[cold]
    fn steal(
        &mut self,
        heap: &mut Ordered,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
    ) -> Option<BlockId> {
        for &other in self.there.iter().filter(|&&other| other != lane.0) {
            let Some(block) = self.lists.take(&heap.arena, size, LaneId(other)) else { continue };
            if follows(heap, dev, LaneId(other), lane) {
                return Some(block);
            }
            self.lists.put(&mut heap.arena, block);
        }
        None
    }

    #[cold]
    fn join(
        &mut self,
        heap: &mut Ordered,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
    ) -> Option<BlockId> {
        for other in self.there.clone() {
            if other == lane.0 || !follows(heap, dev, LaneId(other), lane) {
                continue;
            }
            while let Some(block) = self.lists.take(&heap.arena, 1, LaneId(other)) {
                heap.arena.move_to_lane(block, lane);
                self.lists.put(&mut heap.arena, block);
            }
            self.there.retain(|&l| l != other);
            if let Some(block) = self.lists.take(&heap.arena, size, lane) {
                return Some(block);
            }
        }
        None
    }
}

/// Orders a lane's stream behind another lane's. If the device cannot, the other list stays out of reach.
fn follows(heap: &mut Ordered, dev: &mut dyn Device, other: LaneId, lane: LaneId) -> bool {
    let (earlier, stream) = (heap.arena.lane(other).stream, heap.arena.lane(lane).stream);
    if earlier == NO_STREAM {
        // RMM waits for an event that was never recorded, as nothing ran there.
        dev.charge(DeviceOp::Wait, 1, 0);
        return true;
    }
    heap.order(dev, earlier, stream).is_ok()
}
