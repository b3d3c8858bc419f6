//! Dicts, lists and tuples of a snapshot, told by their keys and turned into rows.

use super::rows::{
    BlockRow, HistoryRow, MarkRow, NO_TIME, Rows, SegmentRow, Special, Stage, label,
};
use super::values::{Reader, integer, truth};
use super::words::{self as w, Keys};
use crate::pickle::{Fold, Folded, TextId, Texts, Value};
use poolsim_core::TraceError;
use poolsim_core::heap::BlockState;
use poolsim_core::recording::{Action, Entry};
use poolsim_core::stack::StackId;
use poolsim_core::units::StreamId;

// Kinds of rows.
pub const ENTRY: u8 = 0;
pub const SEGMENT: u8 = 1;
pub const BLOCK: u8 = 2;
const FRAME: u8 = 3;
const STACK: u8 = 4;
const POOL: u8 = 5;
pub const MARK: u8 = 6;
const HISTORY: u8 = 7;
/// A list of histories, by its first row.
const HISTORIES: u8 = 8;

/// Collects the rows of a snapshot.
#[derive(Default)]
pub struct Snapshot {
    pub rows: Rows,
    scratch: Vec<u32>,
}

impl Fold for Snapshot {
    #[inline]
    fn dict(
        &mut self,
        pairs: &[Value],
        texts: &Texts,
        at: u64,
    ) -> Result<Option<Folded>, TraceError> {
        let keys = Keys::of(pairs);
        let reader = Reader { texts, at };
        if keys.has(w::ACTION) && keys.any(&[w::SIZE, w::ADDR, w::DEVICE_FREE]) {
            self.entry(pairs, reader).map(Some)
        } else if keys.has(w::FILENAME) && keys.has(w::NAME) {
            Ok(Some(self.frame(pairs, reader)))
        } else if keys.has(w::BLOCKS) && keys.any(&[w::TOTAL_SIZE, w::ADDRESS]) {
            self.segment(pairs, reader).map(Some)
        } else if keys.has(w::STATE) && keys.has(w::SIZE) {
            self.block(pairs, reader).map(Some)
        } else if keys.has(w::STAGE) && keys.has(w::NAME) {
            self.mark(pairs, reader).map(Some)
        } else if keys.has(w::REAL_SIZE) {
            self.history(pairs, reader).map(Some)
        } else {
            Ok(None)
        }
    }

    #[inline]
    fn list(&mut self, items: &[Value]) -> Option<Folded> {
        match items[0] {
            Value::Folded(Folded { kind: FRAME, .. }) => {
                self.scratch.clear();
                for item in items {
                    let Value::Folded(Folded { kind: FRAME, index }) = *item else { return None };
                    self.scratch.push(index);
                }
                let StackId(index) = self.rows.stacks.intern_stack(&self.scratch);
                Some(Folded { kind: STACK, index })
            }
            Value::Folded(Folded { kind: HISTORY, index }) => {
                Some(Folded { kind: HISTORIES, index })
            }
            _ => self.tuple(items),
        }
    }

    /// A pair of integers is a pool id; JSON writes it as a list.
    fn tuple(&mut self, items: &[Value]) -> Option<Folded> {
        let &[first, second] = items else { return None };
        let pair = (integer(first)?, integer(second)?);
        Some(Folded { kind: POOL, index: self.rows.pools.id(pair) })
    }

    fn in_runs(kind: u8) -> bool {
        matches!(kind, ENTRY | SEGMENT | BLOCK | MARK)
    }
}

impl Snapshot {
    fn entry(&mut self, pairs: &[Value], reader: Reader) -> Result<Folded, TraceError> {
        let index = reader.row(self.rows.entries.len())?;
        let mut entry = Entry {
            at: NO_TIME,
            addr: 0,
            size: 0,
            stack: StackId::NONE,
            stream: StreamId(0),
            action: Action::Snapshot,
        };
        let (mut stream, mut has_addr, mut has_size) = (0, false, false);
        let (mut metadata, mut context) = (None, None);
        for pair in pairs.chunks_exact(2) {
            let (Value::Text(key), value) = (pair[0], pair[1]) else { continue };
            match key {
                w::ACTION => entry.action = self.action(value, index, reader)?,
                w::ADDR | w::DEVICE_FREE => {
                    entry.addr = reader.address(key, value)?;
                    has_addr = true;
                }
                w::SIZE => {
                    entry.size = reader.size(key, value)?;
                    has_size = true;
                }
                w::STREAM => stream = reader.address(key, value)?,
                w::TIME_US => entry.at = reader.time(value)?,
                w::FRAMES => entry.stack = self.stack(value),
                w::USER_METADATA => metadata = label_of(value),
                w::COMPILE_CONTEXT => context = label_of(value),
                w::POOL_ID => self.entry_pool(index, value),
                _ => {}
            }
        }
        if !has_addr || !has_size {
            let key = if has_addr { w::SIZE } else { w::ADDR };
            return Err(reader.wrong(format!("a trace entry has no `{}`", reader.texts.get(key))));
        }
        let stream = self.rows.streams.id(stream);
        entry.stream =
            StreamId(u16::try_from(stream).ok().filter(|&n| n < u16::MAX).ok_or_else(|| {
                reader.wrong("the snapshot names more than 65,535 streams, which no job has".into())
            })?);
        label(&mut self.rows.user_metadata, index, metadata);
        label(&mut self.rows.compile_contexts, index, context);
        self.rows.entries.push(entry);
        Ok(Folded { kind: ENTRY, index })
    }

    fn action(&mut self, value: Value, index: u32, reader: Reader) -> Result<Action, TraceError> {
        let Value::Text(name) = value else {
            return Err(reader.wrong("an entry's `action` is no string".into()));
        };
        let mut special = |special, action| {
            self.rows.specials.push((index, special));
            action
        };
        Ok(match name {
            w::ALLOC => Action::Alloc,
            w::FREE_REQUESTED => Action::FreeRequested,
            w::FREE_COMPLETED => Action::FreeCompleted,
            w::SEGMENT_ALLOC => Action::SegmentAlloc,
            w::SEGMENT_FREE => Action::SegmentFree,
            w::SEGMENT_MAP => Action::SegmentMap,
            w::SEGMENT_UNMAP => Action::SegmentUnmap,
            w::OOM => Action::Oom,
            w::SNAPSHOT => Action::Snapshot,
            w::FREE => special(Special::LegacyFree, Action::FreeRequested),
            w::USER_DEFINED | w::WORKSPACE_SNAPSHOT => special(Special::Skipped, Action::Snapshot),
            other => {
                return Err(reader.wrong(format!(
                    "an entry has the unknown action `{}`; known are alloc, free_requested, \
                     free_completed, segment_alloc, segment_free, segment_map, segment_unmap, oom, \
                     snapshot, and free of old snapshots",
                    reader.texts.get(other).escape_debug()
                )));
            }
        })
    }

    fn entry_pool(&mut self, index: u32, value: Value) {
        if let Some(pool) = pool_of(value) {
            self.rows.entry_pools.resize(index as usize, 0);
            self.rows.entry_pools.push(pool + 1);
        }
    }

    fn stack(&mut self, value: Value) -> StackId {
        match value {
            Value::Folded(Folded { kind: STACK, index }) => StackId(index),
            Value::EmptyList | Value::None => StackId::NONE,
            // An empty tuple is as good as an empty list; it is not worth a look.
            _ => {
                self.rows.odd_stacks += 1;
                StackId::NONE
            }
        }
    }

    fn frame(&mut self, pairs: &[Value], reader: Reader) -> Folded {
        let (mut name, mut file, mut line) = (w::EMPTY, w::EMPTY, 0);
        for pair in pairs.chunks_exact(2) {
            match (pair[0], pair[1]) {
                (Value::Text(w::NAME), Value::Text(text)) => name = text,
                (Value::Text(w::FILENAME), Value::Text(text)) => file = text,
                (Value::Text(w::LINE), Value::Int(n)) => line = u32::try_from(n).unwrap_or(0),
                _ => {}
            }
        }
        let index = self.rows.frame((name, file, line), reader.texts);
        Folded { kind: FRAME, index }
    }

    fn segment(&mut self, pairs: &[Value], reader: Reader) -> Result<Folded, TraceError> {
        let index = reader.row(self.rows.segments.len())?;
        let default_pool = self.rows.pools.id((0, 0));
        let mut row = SegmentRow {
            device: 0,
            address: None,
            total_size: None,
            stream: 0,
            small: false,
            expandable: false,
            pool: default_pool,
            stack: StackId::NONE,
            blocks: Value::EmptyList,
            at: reader.at,
        };
        for pair in pairs.chunks_exact(2) {
            let (Value::Text(key), value) = (pair[0], pair[1]) else { continue };
            match key {
                w::DEVICE => row.device = reader.device(value)?,
                w::ADDRESS if value != Value::None => {
                    row.address = Some(reader.address(key, value)?);
                }
                w::TOTAL_SIZE => row.total_size = Some(reader.size(key, value)?),
                w::STREAM => row.stream = reader.address(key, value)?,
                w::SEGMENT_TYPE => row.small = value == Value::Text(w::SMALL),
                w::SEGMENT_POOL_ID => {
                    self.rows.segments_say_pool = true;
                    row.pool = pool_of(value).ok_or_else(|| {
                        reader.wrong("a `segment_pool_id` is no pair of integers".into())
                    })?;
                }
                w::IS_EXPANDABLE => row.expandable = truth(value),
                w::FRAMES => row.stack = self.stack(value),
                w::BLOCKS => row.blocks = value,
                _ => {}
            }
        }
        self.rows.segments.push(row);
        Ok(Folded { kind: SEGMENT, index })
    }

    fn block(&mut self, pairs: &[Value], reader: Reader) -> Result<Folded, TraceError> {
        let index = reader.row(self.rows.blocks.len())?;
        let mut row = BlockRow {
            address: None,
            size: 0,
            requested: None,
            state: BlockState::Free,
            stack: StackId::NONE,
        };
        let mut history = None;
        for pair in pairs.chunks_exact(2) {
            let (Value::Text(key), value) = (pair[0], pair[1]) else { continue };
            match key {
                w::ADDRESS if value != Value::None => {
                    row.address = Some(reader.address(key, value)?);
                }
                w::SIZE => row.size = reader.size(key, value)?,
                w::REQUESTED_SIZE => row.requested = Some(reader.size(key, value)?),
                w::STATE => row.state = reader.state(value)?,
                w::FRAMES => row.stack = self.stack(value),
                w::HISTORY => history = Some(value),
                _ => {}
            }
        }
        if let Some(Value::Folded(Folded { kind: HISTORIES, index })) = history {
            let past = self.rows.histories[index as usize];
            row.requested = row.requested.or(Some(past.real_size));
            row.address = row.address.or(past.addr);
            if row.stack == StackId::NONE {
                row.stack = past.stack;
            }
        }
        self.rows.blocks.push(row);
        Ok(Folded { kind: BLOCK, index })
    }

    fn history(&mut self, pairs: &[Value], reader: Reader) -> Result<Folded, TraceError> {
        let index = reader.row(self.rows.histories.len())?;
        let mut row = HistoryRow { addr: None, real_size: 0, stack: StackId::NONE };
        for pair in pairs.chunks_exact(2) {
            let (Value::Text(key), value) = (pair[0], pair[1]) else { continue };
            match key {
                w::ADDR => row.addr = Some(reader.address(key, value)?),
                w::REAL_SIZE => row.real_size = reader.size(key, value)?,
                w::FRAMES => row.stack = self.stack(value),
                _ => {}
            }
        }
        self.rows.histories.push(row);
        Ok(Folded { kind: HISTORY, index })
    }

    fn mark(&mut self, pairs: &[Value], reader: Reader) -> Result<Folded, TraceError> {
        let index = reader.row(self.rows.marks.len())?;
        let mut row = MarkRow { name: w::EMPTY, stage: Stage::Point, device: None, time: NO_TIME };
        for pair in pairs.chunks_exact(2) {
            match (pair[0], pair[1]) {
                (Value::Text(w::NAME), Value::Text(name)) => row.name = name,
                (Value::Text(w::STAGE), Value::Text(w::START)) => row.stage = Stage::Start,
                (Value::Text(w::STAGE), Value::Text(w::END)) => row.stage = Stage::End,
                (Value::Text(w::DEVICE), value) => row.device = Some(reader.device(value)?),
                (Value::Text(w::TIME_US), value) => row.time = reader.time(value)?,
                _ => {}
            }
        }
        self.rows.marks.push(row);
        Ok(Folded { kind: MARK, index })
    }
}

fn pool_of(value: Value) -> Option<u32> {
    match value {
        Value::Folded(Folded { kind: POOL, index }) => Some(index),
        _ => None,
    }
}

/// A text worth keeping.
fn label_of(value: Value) -> Option<TextId> {
    match value {
        Value::Text(w::EMPTY | w::NOT_AVAILABLE) => None,
        Value::Text(text) => Some(text),
        _ => None,
    }
}
