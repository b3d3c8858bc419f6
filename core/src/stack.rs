//! Call stacks, interned: a frame and a stack cost memory once, however often they occur.

use hashbrown::{DefaultHashBuilder, HashTable};
use serde::{Deserialize, Serialize};
use std::hash::BuildHasher;

/// A stack in a [`StackTable`]; 0 is the empty stack.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct StackId(pub u32);

impl StackId {
    /// No stack.
    pub const NONE: StackId = StackId(0);
}

/// One call. Names are untrusted text from the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Function name.
    pub name: String,
    /// Source file.
    pub file: String,
    /// Line, 0 if unknown.
    pub line: u32,
}

/// All stacks of a trace, innermost frame first.
#[derive(Clone, Debug)]
pub struct StackTable {
    frames: Vec<Frame>,
    frame_ids: HashTable<u32>,
    /// The frame numbers of all stacks, one stack after the other; `ends[id]` is where stack `id` ends.
    numbers: Vec<u32>,
    ends: Vec<usize>,
    stack_ids: HashTable<u32>,
    /// Seeded at random, so that no trace can be made to collide. The numbering does not depend on it.
    hasher: DefaultHashBuilder,
}

impl Default for StackTable {
    fn default() -> Self {
        let mut table = StackTable {
            frames: Vec::new(),
            frame_ids: HashTable::new(),
            numbers: Vec::new(),
            ends: Vec::new(),
            stack_ids: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        };
        let empty = table.intern_stack(&[]);
        debug_assert_eq!(empty, StackId::NONE);
        table
    }
}

impl StackTable {
    /// The number of a frame, the same for equal frames.
    pub fn intern_frame(&mut self, frame: Frame) -> u32 {
        let StackTable { frames, frame_ids, hasher, .. } = self;
        let hash = hasher.hash_one(&frame);
        if let Some(&id) = frame_ids.find(hash, |&id| frames[id as usize] == frame) {
            return id;
        }
        let id = u32::try_from(frames.len()).expect("fewer than 2^32 distinct frames");
        frames.push(frame);
        frame_ids.insert_unique(hash, id, |&id| hasher.hash_one(&frames[id as usize]));
        id
    }

    /// The id of a stack given by frame numbers, innermost first.
    ///
    /// # Panics
    /// If a number was not handed out by [`StackTable::intern_frame`].
    pub fn intern_stack(&mut self, stack: &[u32]) -> StackId {
        let StackTable { frames, numbers, ends, stack_ids, hasher, .. } = self;
        let hash = hasher.hash_one(stack);
        if let Some(&id) = stack_ids.find(hash, |&id| slice(numbers, ends, id) == stack) {
            return StackId(id);
        }
        assert!(stack.iter().all(|&f| (f as usize) < frames.len()), "frame number out of range");
        let id = u32::try_from(ends.len()).expect("fewer than 2^32 distinct stacks");
        numbers.extend_from_slice(stack);
        ends.push(numbers.len());
        stack_ids.insert_unique(hash, id, |&id| hasher.hash_one(slice(numbers, ends, id)));
        StackId(id)
    }

    /// The frames of a stack, innermost first; empty for an unknown id.
    pub fn stack(&self, id: StackId) -> impl Iterator<Item = &Frame> {
        self.frame_numbers(id).iter().map(|&f| &self.frames[f as usize])
    }

    /// The frame numbers of a stack, innermost first; empty for an unknown id.
    pub fn frame_numbers(&self, id: StackId) -> &[u32] {
        if (id.0 as usize) < self.ends.len() { slice(&self.numbers, &self.ends, id.0) } else { &[] }
    }

    /// All frames by number.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Number of stacks, the empty one included.
    pub fn stack_count(&self) -> usize {
        self.ends.len()
    }

    /// True if there is no stack but the empty one.
    pub fn is_empty(&self) -> bool {
        self.ends.len() == 1
    }
}

fn slice<'a>(numbers: &'a [u32], ends: &[usize], id: u32) -> &'a [u32] {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] };
    &numbers[start..ends[id]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(line: u32) -> Frame {
        Frame { name: "f".into(), file: "a.py".into(), line }
    }

    #[test]
    fn equal_frames_and_stacks_are_stored_once() {
        let mut table = StackTable::default();
        assert!(table.is_empty());
        assert_eq!(table.intern_stack(&[]), StackId::NONE);
        let (a, b) = (table.intern_frame(frame(1)), table.intern_frame(frame(2)));
        assert_eq!(table.intern_frame(frame(1)), a);
        let ab = table.intern_stack(&[a, b]);
        let ba = table.intern_stack(&[b, a]);
        assert_ne!(ab, ba);
        for _ in 0..1000 {
            assert_eq!(table.intern_stack(&[a, b]), ab);
        }
        assert_eq!(table.stack_count(), 3);
        assert_eq!(table.stack(ba).map(|f| f.line).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(table.frame_numbers(StackId(99)), &[] as &[u32]);
    }

    #[test]
    fn numbering_follows_first_occurrence() {
        let number = || {
            let mut table = StackTable::default();
            let frames: Vec<u32> = (0..500).map(|n| table.intern_frame(frame(n % 50))).collect();
            frames.chunks(3).map(|s| table.intern_stack(s)).collect::<Vec<_>>()
        };
        assert_eq!(number(), number());
    }
}
