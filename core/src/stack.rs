//! Call stacks, interned: a frame and a stack cost memory once, however often they occur.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;

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
    frame_ids: HashMap<Frame, u32>,
    stacks: Vec<Box<[u32]>>,
    stack_ids: HashMap<Box<[u32]>, StackId>,
}

impl Default for StackTable {
    fn default() -> Self {
        let empty: Box<[u32]> = Box::default();
        StackTable {
            frames: Vec::new(),
            frame_ids: HashMap::new(),
            stacks: vec![empty.clone()],
            stack_ids: HashMap::from([(empty, StackId::NONE)]),
        }
    }
}

impl StackTable {
    /// The number of a frame, the same for equal frames.
    pub fn intern_frame(&mut self, frame: Frame) -> u32 {
        if let Some(&id) = self.frame_ids.get(&frame) {
            return id;
        }
        let id = u32::try_from(self.frames.len()).expect("fewer than 2^32 distinct frames");
        self.frames.push(frame.clone());
        self.frame_ids.insert(frame, id);
        id
    }

    /// The id of a stack given by frame numbers, innermost first.
    ///
    /// # Panics
    /// If a number was not handed out by [`StackTable::intern_frame`].
    pub fn intern_stack(&mut self, frames: &[u32]) -> StackId {
        if let Some(&id) = self.stack_ids.get(frames) {
            return id;
        }
        assert!(
            frames.iter().all(|&f| (f as usize) < self.frames.len()),
            "frame number out of range"
        );
        let id =
            StackId(u32::try_from(self.stacks.len()).expect("fewer than 2^32 distinct stacks"));
        self.stacks.push(frames.into());
        self.stack_ids.insert(frames.into(), id);
        id
    }

    /// The frames of a stack, innermost first; empty for an unknown id.
    pub fn stack(&self, id: StackId) -> impl Iterator<Item = &Frame> {
        self.frame_numbers(id).iter().map(|&f| &self.frames[f as usize])
    }

    /// The frame numbers of a stack, innermost first; empty for an unknown id.
    pub fn frame_numbers(&self, id: StackId) -> &[u32] {
        self.stacks.get(id.0 as usize).map_or(&[], |s| s)
    }

    /// All frames by number.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Number of stacks, the empty one included.
    pub fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// True if there is no stack but the empty one.
    pub fn is_empty(&self) -> bool {
        self.stacks.len() == 1
    }
}
