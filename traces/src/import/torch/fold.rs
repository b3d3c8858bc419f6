//! Dicts, lists and tuples of a snapshot, told by their keys and turned into rows.

use super::rows::{
    BlockRow, HistoryRow, MarkRow, NO_TIME, Rows, SegmentRow, Special, Stage, label,
};
use super::words::{self as w, Keys};
use crate::pickle::{Fold, Folded, TextId, Texts, Value};
use poolsim_core::TraceError;
use poolsim_core::error::{Place, TraceErrorKind};
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

/// PyTorch refuses requests from here on (`kMaxAllocSize`), and no device has as much memory.
const SIZE_LIMIT: u64 = 1 << 60;

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
        let (name_text, file_text) = (reader.texts.get(name), reader.texts.get(file));
        let index = self.rows.frame((name, file, line), name_text, file_text);
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

/// Reads values, with errors at the end of the dict at hand.
#[derive(Clone, Copy)]
struct Reader<'a> {
    texts: &'a Texts,
    at: u64,
}

impl Reader<'_> {
    #[cold]
    fn wrong(self, what: String) -> TraceError {
        TraceError::new(TraceErrorKind::Malformed, Place::Byte(self.at), what)
    }

    fn row(self, rows: usize) -> Result<u32, TraceError> {
        u32::try_from(rows)
            .ok()
            .filter(|&n| n < u32::MAX)
            .ok_or_else(|| self.wrong("the snapshot holds more than 2^32 of one kind".into()))
    }

    /// Addresses and stream handles: 64 bits, whichever sign the recorder gave them.
    #[inline]
    fn address(self, key: TextId, value: Value) -> Result<u64, TraceError> {
        match value {
            Value::Int(n) => Ok(n as u64),
            _ => integer(value).ok_or_else(|| self.no_number(key)),
        }
    }

    #[inline]
    fn size(self, key: TextId, value: Value) -> Result<u64, TraceError> {
        let size = integer(value).ok_or_else(|| self.no_number(key))?;
        if size < SIZE_LIMIT {
            return Ok(size);
        }
        Err(self.wrong(format!(
            "`{}` is {size} bytes; PyTorch refuses requests of 2^60 bytes and more, so the file is \
             damaged",
            self.texts.get(key)
        )))
    }

    #[cold]
    fn no_number(self, key: TextId) -> TraceError {
        self.wrong(format!(
            "`{}` is no integer between 0 and 2^64",
            self.texts.get(key).escape_debug()
        ))
    }

    fn device(self, value: Value) -> Result<u32, TraceError> {
        integer(value)
            .and_then(|n| u32::try_from(n).ok())
            .ok_or_else(|| self.wrong("a `device` is no device index".into()))
    }

    /// Microseconds since 1970, whole or with a fraction, in nanoseconds.
    #[inline]
    fn time(self, value: Value) -> Result<u64, TraceError> {
        let nanos = match value {
            Value::None => return Ok(NO_TIME),
            Value::Int(us) => u64::try_from(us).ok().and_then(|us| us.checked_mul(1000)),
            Value::Float(us) if (0.0..1.8e16).contains(&us) => Some((us * 1e3).round() as u64),
            _ => None,
        };
        nanos
            .filter(|&n| n < NO_TIME)
            .ok_or_else(|| self.wrong("a `time_us` is no time in microseconds since 1970".into()))
    }

    fn state(self, value: Value) -> Result<BlockState, TraceError> {
        match value {
            Value::Text(w::ACTIVE_ALLOCATED) => Ok(BlockState::Allocated),
            Value::Text(w::ACTIVE_PENDING_FREE | w::ACTIVE_AWAITING_FREE) => {
                Ok(BlockState::Pending)
            }
            Value::Text(w::INACTIVE) => Ok(BlockState::Free),
            Value::Text(other) => Err(self.wrong(format!(
                "a block has the unknown state `{}`; known are active_allocated, \
                 active_pending_free, active_awaiting_free and inactive",
                self.texts.get(other).escape_debug()
            ))),
            _ => Err(self.wrong("a block's `state` is no string".into())),
        }
    }
}

/// A whole number from 0 up; floats that are whole count, since some tools write all numbers so.
#[inline]
fn integer(value: Value) -> Option<u64> {
    match value {
        Value::Int(n) => u64::try_from(n).ok(),
        Value::Big(n) => Some(n),
        Value::Bool(b) => Some(u64::from(b)),
        Value::Float(f) if f.fract() == 0.0 && (0.0..9e15).contains(&f) => Some(f as u64),
        _ => None,
    }
}

fn truth(value: Value) -> bool {
    matches!(value, Value::Bool(true)) || integer(value).is_some_and(|n| n != 0)
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
