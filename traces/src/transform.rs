//! Names of allocations, from whatever a source uses to dense, reused slots; and tools that make a trace of traces.

mod each;
mod flow;
mod merge;
mod shrink;
mod slice;
mod start;

pub use each::{Factor, Strip, anonymize, scale, strip};
pub use flow::Flow;
pub use merge::{Align, merge};
pub use shrink::{Shrunk, shrink};
pub use slice::{Span, slice};
pub use start::start_of;

use poolsim_core::Slot;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::Hash;

/// Hands out slots, always the lowest free one: traces of the same job get the same slots in every step of
/// its loop, which is what makes them small on disk.
#[derive(Clone, Debug, Default)]
pub struct SlotAllocator {
    free: BinaryHeap<Reverse<u32>>,
    next: u32,
}

impl SlotAllocator {
    /// The slot for a new allocation.
    ///
    /// # Panics
    /// If 2^32 - 1 allocations are live.
    pub fn take(&mut self) -> Slot {
        if let Some(Reverse(slot)) = self.free.pop() {
            return Slot(slot);
        }
        let slot = self.next;
        self.next = slot.checked_add(1).expect("fewer than 2^32 allocations are live");
        Slot(slot)
    }

    /// The slot that [`SlotAllocator::take`] would give: for a refused request, which never lives.
    pub fn peek(&self) -> Slot {
        Slot(self.free.peek().map_or(self.next, |slot| slot.0))
    }

    /// Makes a slot free again. Call it once the free is complete, and once only.
    pub fn release(&mut self, slot: Slot) {
        debug_assert!(slot.0 < self.next, "slot {slot} was never taken");
        self.free.push(Reverse(slot.0));
    }

    /// One more than the largest slot handed out so far.
    pub fn slot_count(&self) -> u32 {
        self.next
    }
}

/// Slots by the source's own names (addresses, ids, strings).
#[derive(Clone, Debug)]
pub struct Densifier<K> {
    slots: SlotAllocator,
    live: HashMap<K, Slot>,
}

impl<K> Default for Densifier<K> {
    fn default() -> Self {
        Densifier { slots: SlotAllocator::default(), live: HashMap::new() }
    }
}

impl<K: Eq + Hash> Densifier<K> {
    /// A new allocation; `Err` with its slot if one of that name is live.
    pub fn begin(&mut self, key: K) -> Result<Slot, Slot> {
        match self.live.entry(key) {
            std::collections::hash_map::Entry::Occupied(entry) => Err(*entry.get()),
            std::collections::hash_map::Entry::Vacant(entry) => {
                Ok(*entry.insert(self.slots.take()))
            }
        }
    }

    /// The live allocation of that name.
    pub fn get(&self, key: &K) -> Option<Slot> {
        self.live.get(key).copied()
    }

    /// Ends the live allocation of that name; its slot is free again.
    pub fn end(&mut self, key: &K) -> Option<Slot> {
        let slot = self.live.remove(key)?;
        self.slots.release(slot);
        Some(slot)
    }

    /// The slot that the next allocation gets.
    pub fn peek(&self) -> Slot {
        self.slots.peek()
    }

    /// Number of live allocations.
    pub fn live_count(&self) -> usize {
        self.live.len()
    }

    /// One more than the largest slot handed out so far.
    pub fn slot_count(&self) -> u32 {
        self.slots.slot_count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_dense_lowest_first_and_reused() {
        let mut names = Densifier::default();
        assert_eq!(names.begin("a"), Ok(Slot(0)));
        assert_eq!(names.begin("b"), Ok(Slot(1)));
        assert_eq!(names.begin("c"), Ok(Slot(2)));
        assert_eq!(names.begin("b"), Err(Slot(1)));
        assert_eq!(names.end(&"c"), Some(Slot(2)));
        assert_eq!(names.end(&"a"), Some(Slot(0)));
        assert_eq!(names.end(&"a"), None);
        assert_eq!(names.peek(), Slot(0));
        assert_eq!(names.begin("d"), Ok(Slot(0)));
        assert_eq!(names.begin("e"), Ok(Slot(2)));
        assert_eq!(names.begin("f"), Ok(Slot(3)));
        assert_eq!((names.slot_count(), names.live_count()), (4, 4));
    }
}
