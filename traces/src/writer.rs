//! Writing `.pst`, in constant memory.

use crate::format::{
    self, END, EVTS, FrameIndex, HEAD, HEADER_DICTIONARY, MAGIC, MAX_FRAME_EVENTS, MAX_TABLE_RAW,
    PREFIX_LEN, TAIL, TableSection, Tag, Trailer, VERSION,
};
use crate::frame::FrameEncoder;
use crate::tables::Tables;
use crate::tally::Tally;
use crate::varint;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::stack::StackId;
use poolsim_core::{Batch, Event, EventSource, TraceError, TraceHeader};
use serde_json::{Map, Value};
use std::io::{self, Write};

/// zstd level of events: level 19 would save another tenth and take twenty times as long.
const EVENT_LEVEL: i32 = 6;
/// zstd level of what is short, where a byte counts and time does not.
const SHORT_LEVEL: i32 = 19;
/// Uncompressed bytes of a side table that count as short: a hundred kilobytes take 50 ms at that level.
const SHORT_TABLE: usize = 128 << 10;
/// Uncompressed bytes of events that count as short, about 3,000 events.
const SHORT_FRAME: usize = 16 << 10;

/// Writes a `.pst` file front to back. Memory does not grow with the number of events but for 20 bytes
/// per 16,384 of them.
///
/// A file that was not finished with [`PstWriter::finish`] can be read up to its last complete frame with
/// [`crate::PstReader::recover`].
pub struct PstWriter<W: Write> {
    out: W,
    offset: u64,
    promised: (Option<u64>, Option<u32>),
    pending: Vec<Event>,
    pending_stacks: Vec<StackId>,
    encoder: FrameEncoder,
    compressor: zstd::bulk::Compressor<'static>,
    level: i32,
    raw: Vec<u8>,
    payload: Vec<u8>,
    tally: Tally,
    largest_stack: Option<StackId>,
}

impl<W: Write> PstWriter<W> {
    /// Starts a file. `header.events` and `header.slots`, where given, are promises that
    /// [`PstWriter::finish`] checks.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, header: &TraceHeader) -> Result<Self, TraceError> {
        let mut writer = PstWriter {
            out,
            offset: 0,
            promised: (header.events, header.slots),
            pending: Vec::with_capacity(MAX_FRAME_EVENTS),
            pending_stacks: Vec::new(),
            encoder: FrameEncoder::default(),
            compressor: zstd::bulk::Compressor::new(EVENT_LEVEL).map_err(write_error)?,
            level: EVENT_LEVEL,
            raw: Vec::new(),
            payload: Vec::new(),
            tally: Tally::default(),
            largest_stack: None,
        };
        let mut prefix = [0; PREFIX_LEN as usize];
        prefix[..8].copy_from_slice(&MAGIC);
        prefix[8..10].copy_from_slice(&VERSION.to_le_bytes());
        writer.put(&prefix)?;
        writer.raw = serde_json::to_vec(&sparse(header)).expect("a header has string keys only");
        let compressed = zstd::bulk::Compressor::with_dictionary(SHORT_LEVEL, HEADER_DICTIONARY)
            .and_then(|mut compressor| compressor.compress(&writer.raw))
            .map_err(write_error)?;
        writer.section(HEAD, &compressed)?;
        Ok(writer)
    }

    /// Appends events. `stacks` is as long as `events`, or empty.
    ///
    /// # Errors
    /// A time that runs backwards, a slot above the event's index (slots must be dense), live bytes above
    /// 2^64 - 1, or the output's own.
    ///
    /// # Panics
    /// If `stacks` has another length.
    pub fn write(&mut self, events: &[Event], stacks: &[StackId]) -> Result<(), TraceError> {
        assert!(stacks.is_empty() || stacks.len() == events.len(), "one stack for each event");
        for start in (0..events.len()).step_by(MAX_FRAME_EVENTS) {
            let end = events.len().min(start + MAX_FRAME_EVENTS);
            self.append(&events[start..end], stacks.get(start..end).unwrap_or(&[]))?;
        }
        Ok(())
    }

    fn append(&mut self, events: &[Event], stacks: &[StackId]) -> Result<(), TraceError> {
        self.tally.add(events)?;
        if !stacks.is_empty() {
            self.largest_stack = stacks.iter().copied().max().max(self.largest_stack);
            self.pending_stacks.resize(self.pending.len(), StackId::NONE);
            self.pending_stacks.extend_from_slice(stacks);
        }
        self.pending.extend_from_slice(events);
        if !self.pending_stacks.is_empty() {
            self.pending_stacks.resize(self.pending.len(), StackId::NONE);
        }
        while self.pending.len() >= MAX_FRAME_EVENTS {
            self.write_frame()?;
        }
        Ok(())
    }

    /// Writes what is left, the side tables and the trailer, and flushes.
    ///
    /// # Errors
    /// A promise of the header that was not kept, a stack id that the table does not have, or the
    /// output's own.
    pub fn finish(mut self, tables: &Tables<'_>) -> Result<(W, Trailer), TraceError> {
        while !self.pending.is_empty() {
            self.write_frame()?;
        }
        check_promises(self.promised, &self.tally.trailer)?;
        check_stacks(self.largest_stack, tables)?;
        tables.write(|tag, rows, raw| {
            if raw.len() as u64 > MAX_TABLE_RAW {
                return Err(TraceError::new(
                    TraceErrorKind::Refused,
                    Place::Whole,
                    format!(
                        "one row of the {} table takes {} bytes; at most {MAX_TABLE_RAW} can be written",
                        format::show_tag(tag),
                        raw.len()
                    ),
                ));
            }
            self.tally.trailer.tables.push(TableSection { tag, offset: self.offset, rows });
            self.raw.clear();
            self.raw.extend_from_slice(raw);
            self.compressed_section(tag)
        })?;
        let trailer = self.tally.finish();
        let payload = trailer.encode();
        let head = format::section_head(TAIL, &payload);
        let length = (head.len() + payload.len()) as u32;
        for part in [&head[..], &payload, &length.to_le_bytes(), &END] {
            self.out.write_all(part).map_err(write_error)?;
        }
        self.out.flush().map_err(write_error)?;
        Ok((self.out, trailer))
    }

    fn write_frame(&mut self) -> Result<(), TraceError> {
        let first = self.pending[0];
        let count = self.encoder.encode(&self.pending, &self.pending_stacks, &mut self.raw);
        let written: u64 =
            self.tally.trailer.frames.last().map_or(0, |f| f.first_event + u64::from(f.events));
        self.tally.trailer.frames.push(FrameIndex {
            offset: self.offset,
            first_event: written,
            events: count as u32,
            first_time: first.at,
        });
        self.compressed_section(EVTS)?;
        self.pending.drain(..count);
        self.pending_stacks.drain(..count.min(self.pending_stacks.len()));
        Ok(())
    }

    fn compressed_section(&mut self, tag: Tag) -> Result<(), TraceError> {
        let short = self.raw.len() <= if tag == EVTS { SHORT_FRAME } else { SHORT_TABLE };
        let level = if short { SHORT_LEVEL } else { EVENT_LEVEL };
        if self.level != level {
            self.compressor.set_compression_level(level).map_err(write_error)?;
            self.level = level;
        }
        let compressed = self.compressor.compress(&self.raw).map_err(write_error)?;
        self.section(tag, &compressed)
    }

    /// Writes the section of the payload `raw`, compressed.
    fn section(&mut self, tag: Tag, compressed: &[u8]) -> Result<(), TraceError> {
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        varint::put(&mut payload, self.raw.len() as u64);
        payload.extend_from_slice(compressed);
        self.put(&format::section_head(tag, &payload))?;
        self.put(&payload)?;
        self.payload = payload;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        self.out.write_all(bytes).map_err(write_error)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

/// Streams `source` into `out` as `.pst`.
///
/// # Errors
/// Those of the source and of [`PstWriter`].
pub fn write_pst<W: Write>(
    out: W,
    source: &mut dyn EventSource,
    tables: &Tables<'_>,
) -> Result<(W, Trailer), TraceError> {
    let mut writer = PstWriter::new(out, source.header())?;
    let mut batch = Batch::default();
    while source.fill(&mut batch)? {
        writer.write(&batch.events, &batch.stacks)?;
    }
    writer.finish(tables)
}

/// What the header promised against what came.
pub(crate) fn check_promises(
    (events, slots): (Option<u64>, Option<u32>),
    trailer: &Trailer,
) -> Result<(), TraceError> {
    let broken = match (events, slots) {
        (Some(n), _) if n != trailer.events => ("events", n, trailer.events),
        (_, Some(n)) if n != trailer.slots => ("slots", u64::from(n), u64::from(trailer.slots)),
        _ => return Ok(()),
    };
    let (what, promised, found) = broken;
    Err(TraceError::new(
        TraceErrorKind::Illegal,
        Place::Whole,
        format!(
            "the header promises {promised} {what}, the trailer counts {found}; write it again"
        ),
    ))
}

fn check_stacks(largest: Option<StackId>, tables: &Tables<'_>) -> Result<(), TraceError> {
    let count = tables.stacks.map_or(1, |stacks| stacks.stack_count());
    match largest {
        Some(stack) if stack.0 as usize >= count => Err(TraceError::new(
            TraceErrorKind::Illegal,
            Place::Whole,
            format!("an event has stack {}, but the table holds {count} stacks", stack.0),
        )),
        _ => Ok(()),
    }
}

/// The header's fields that differ from the default: a short trace is not to be mostly header.
fn sparse(header: &TraceHeader) -> Value {
    let to_value =
        |h: &TraceHeader| serde_json::to_value(h).expect("a header has string keys only");
    let Value::Object(defaults) = to_value(&TraceHeader::default()) else {
        unreachable!("a struct")
    };
    let mut value = to_value(header);
    prune(&mut value, &defaults);
    value
}

fn prune(value: &mut Value, defaults: &Map<String, Value>) {
    let Value::Object(fields) = value else { return };
    fields.retain(|name, field| defaults.get(name) != Some(field));
    if let (Some(knows), Some(Value::Object(defaults))) =
        (fields.get_mut("knows"), defaults.get("knows"))
    {
        prune(knows, defaults);
    }
}

fn write_error(error: io::Error) -> TraceError {
    TraceError::new(TraceErrorKind::Io, Place::Whole, format!("cannot be written: {error}"))
}
