//! What a snapshot's dicts become as they are read: rows of fixed size, for all devices together.

use crate::pickle::{TextId, Texts, Value};
use hashbrown::HashMap;
use poolsim_core::heap::BlockState;
use poolsim_core::recording::Entry;
use poolsim_core::stack::{Frame, StackId, StackTable};
use poolsim_core::{Bytes, DevAddr, Nanos};

/// [`Entry::at`] of an entry without a time.
pub const NO_TIME: Nanos = Nanos::MAX;

/// A segment.
#[derive(Clone, Copy, Debug)]
pub struct SegmentRow {
    pub device: u32,
    pub address: Option<DevAddr>,
    pub total_size: Option<Bytes>,
    pub stream: u64,
    pub small: bool,
    pub expandable: bool,
    /// Index into [`Rows::pools`].
    pub pool: u32,
    pub stack: StackId,
    /// A list of blocks.
    pub blocks: Value,
    /// Where in the file its dict ends.
    pub at: u64,
}

/// A block.
#[derive(Clone, Copy, Debug)]
pub struct BlockRow {
    pub address: Option<DevAddr>,
    pub size: Bytes,
    pub requested: Option<Bytes>,
    pub state: BlockState,
    pub stack: StackId,
}

/// One use of a block, in snapshots before PyTorch 2.1.
#[derive(Clone, Copy, Debug)]
pub struct HistoryRow {
    pub addr: Option<DevAddr>,
    pub real_size: Bytes,
    pub stack: StackId,
}

/// Start or end of an annotation.
#[derive(Clone, Copy, Debug)]
pub struct MarkRow {
    pub name: TextId,
    pub stage: Stage,
    pub device: Option<u32>,
    pub time: Nanos,
}

/// Which end of an annotation a mark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Start,
    End,
    Point,
}

/// What an entry is that [`Entry::action`] cannot say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// `free`: requested and completed in one.
    LegacyFree,
    /// An action without meaning for the allocator.
    Skipped,
}

/// A text that holds for entries from `from` on, until the next one.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    pub from: u32,
    pub text: Option<TextId>,
}

/// Numbers by first appearance, for values of which there are few.
#[derive(Debug)]
pub struct Numbering<T> {
    pub values: Vec<T>,
    ids: HashMap<T, u32>,
    last: u32,
}

impl<T> Default for Numbering<T> {
    fn default() -> Self {
        Numbering { values: Vec::new(), ids: HashMap::new(), last: 0 }
    }
}

impl<T: Copy + Eq + std::hash::Hash> Numbering<T> {
    /// The number of a value.
    #[inline]
    pub fn id(&mut self, value: T) -> u32 {
        if self.values.get(self.last as usize) == Some(&value) {
            return self.last;
        }
        let Numbering { values, ids, .. } = self;
        self.last = *ids.entry(value).or_insert_with(|| {
            values.push(value);
            values.len() as u32 - 1
        });
        self.last
    }
}

/// All rows of a file.
#[derive(Default)]
pub struct Rows {
    /// Entries of all devices in file order. Until a device is picked, `at` is nanoseconds since 1970 or
    /// [`NO_TIME`], and `stream` a number of [`Rows::streams`].
    pub entries: Vec<Entry>,
    /// One more than the index into [`Rows::pools`] per entry, 0 where it is not known; may be shorter.
    pub entry_pools: Vec<u32>,
    /// Entries that are more than they seem, by ascending index.
    pub specials: Vec<(u32, Special)>,
    /// User metadata of entries.
    pub user_metadata: Vec<Label>,
    /// Compile contexts of entries.
    pub compile_contexts: Vec<Label>,
    pub segments: Vec<SegmentRow>,
    pub blocks: Vec<BlockRow>,
    pub histories: Vec<HistoryRow>,
    pub marks: Vec<MarkRow>,
    /// Raw stream handles.
    pub streams: Numbering<u64>,
    pub pools: Numbering<(u64, u64)>,
    pub stacks: StackTable,
    /// Frame numbers by name, file and line.
    pub frames: HashMap<(TextId, TextId, u32), u32>,
    /// Stacks that are not lists of frames.
    pub odd_stacks: u64,
    /// Whether segments say their pool.
    pub segments_say_pool: bool,
}

impl Rows {
    /// The number of a frame.
    #[inline]
    pub fn frame(&mut self, key: (TextId, TextId, u32), texts: &Texts) -> u32 {
        let stacks = &mut self.stacks;
        *self.frames.entry(key).or_insert_with(|| {
            let (name, file) = (texts.get(key.0).into(), texts.get(key.1).into());
            stacks.intern_frame(Frame { name, file, line: key.2 })
        })
    }
}

/// Notes that from entry `index` on `text` holds.
pub fn label(labels: &mut Vec<Label>, index: u32, text: Option<TextId>) {
    if labels.last().and_then(|l| l.text) != text {
        labels.push(Label { from: index, text });
    }
}
