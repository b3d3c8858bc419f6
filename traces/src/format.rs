//! The `.pst` layout. Normative together with `docs/trace-format.md`, which has worked bytes.
//!
//! ```text
//! file    := MAGIC version:u16 reserved:u16 section* footer
//! section := tag:[u8; 4] length:u32 crc:u32 payload:[u8; length]     crc32 over tag, length and payload
//! footer  := length of the TAIL section with its 12 bytes of head:u32 "pEND"
//! ```
//!
//! Numbers are little-endian; `varint` is LEB128. Sections come in the order `HEAD`, `EVTS`*, side tables,
//! `TAIL`. A reader that does not know a tag skips it if its first letter is lower case, and refuses the
//! file otherwise. Payloads but that of `TAIL` are `raw length:varint`, then one zstd frame; that of `HEAD`
//! is compressed with [`HEADER_DICTIONARY`].

use crate::digest::Digest;
use crate::varint;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{Bytes, EventKind, Nanos, TraceError};

/// First bytes of a file. As in PNG, they show a transfer that changed line ends or cut the eighth bit.
pub const MAGIC: [u8; 8] = *b"\x89PST\r\n\x1a\n";
/// The version that this code writes, and the newest that it reads.
pub const VERSION: u16 = 1;
/// Last bytes of a file.
pub const END: [u8; 4] = *b"pEND";
/// Bytes before the first section.
pub const PREFIX_LEN: u64 = 12;
/// Bytes of a section before its payload.
pub const SECTION_HEAD: u64 = 12;
/// Bytes of the footer.
pub const FOOTER_LEN: u64 = 8;

/// The zstd dictionary (of raw content) of the `HEAD` section. It never changes within a version: without
/// it, a recording of a hundred events is mostly header.
pub const HEADER_DICTIONARY: &[u8] = include_bytes!("header.dict");

/// Most events in one `EVTS` section.
pub const MAX_FRAME_EVENTS: usize = 16_384;
/// Most bytes of an uncompressed `EVTS` payload: 16,384 events with the longest numbers need 0.6 MiB.
pub const MAX_FRAME_RAW: u64 = 1 << 20;
/// Most bytes of any other uncompressed payload.
pub const MAX_TABLE_RAW: u64 = 64 << 20;

/// What a section holds.
pub type Tag = [u8; 4];
/// The trace header: JSON of `TraceHeader` without fields that have their default value.
pub const HEAD: Tag = *b"HEAD";
/// Up to [`MAX_FRAME_EVENTS`] events, decodable without any other section. See `frame.rs`.
pub const EVTS: Tag = *b"EVTS";
/// Calls: a JSON array of `[name, file, line]`. Numbered through all `fram` sections from 0.
pub const FRAM: Tag = *b"fram";
/// Stacks: a JSON array of arrays of call numbers, innermost first. Numbered from 1; 0 is the empty stack.
pub const STAC: Tag = *b"stac";
/// Annotations: a JSON array of `[name, start, end or null]`.
pub const ANNO: Tag = *b"anno";
/// The heap before the first event: a JSON array of `[range, [block, …]]`.
pub const HEAP: Tag = *b"heap";
/// Counts, digest and where everything is.
pub const TAIL: Tag = *b"TAIL";

/// Where a side table section is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSection {
    /// What it holds.
    pub tag: Tag,
    /// Offset of the section in the file.
    pub offset: u64,
    /// Rows of its array.
    pub rows: u64,
}

/// Where a run of events is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameIndex {
    /// Offset of the `EVTS` section in the file.
    pub offset: u64,
    /// Index of its first event.
    pub first_event: u64,
    /// Number of its events.
    pub events: u32,
    /// Time of its first event.
    pub first_time: Nanos,
}

/// What the `TAIL` section says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Number of events.
    pub events: u64,
    /// One more than the largest slot.
    pub slots: u32,
    /// Highest sum of requested bytes of allocations that were not completely freed.
    pub peak_live: Bytes,
    /// Time of the last event.
    pub end: Nanos,
    /// Events by kind number.
    pub kinds: [u64; EventKind::ALL.len()],
    /// Digest of the events; zeros in a recovered file.
    pub digest: Digest,
    /// Side tables, in file order.
    pub tables: Vec<TableSection>,
    /// Runs of events, in order.
    pub frames: Vec<FrameIndex>,
}

impl Default for Trailer {
    fn default() -> Self {
        Trailer {
            events: 0,
            slots: 0,
            peak_live: 0,
            end: 0,
            kinds: [0; EventKind::ALL.len()],
            digest: Digest([0; 32]),
            tables: Vec::new(),
            frames: Vec::new(),
        }
    }
}

impl Trailer {
    /// The payload of the `TAIL` section.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + 8 * self.frames.len());
        let put = varint::put;
        for number in [self.events, u64::from(self.slots), self.peak_live, self.end] {
            put(&mut out, number);
        }
        put(&mut out, self.kinds.len() as u64);
        self.kinds.iter().for_each(|&count| put(&mut out, count));
        out.extend_from_slice(&self.digest.0);
        put(&mut out, self.tables.len() as u64);
        for table in &self.tables {
            out.extend_from_slice(&table.tag);
            put(&mut out, table.offset);
            put(&mut out, table.rows);
        }
        put(&mut out, self.frames.len() as u64);
        let (mut offset, mut time) = (0, 0);
        for frame in &self.frames {
            put(&mut out, frame.offset - offset);
            put(&mut out, u64::from(frame.events));
            put(&mut out, frame.first_time - time);
            (offset, time) = (frame.offset, frame.first_time);
        }
        out
    }

    /// Reads the payload back. Bytes after the last known field are left to later versions.
    pub fn decode(mut input: &[u8]) -> Option<Trailer> {
        let input = &mut input;
        let mut trailer = Trailer {
            events: varint::take(input)?,
            slots: varint::take_as(input)?,
            peak_live: varint::take(input)?,
            end: varint::take(input)?,
            ..Trailer::default()
        };
        for i in 0..varint::take_as::<u16>(input)? {
            let count = varint::take(input)?;
            if let Some(kind) = trailer.kinds.get_mut(usize::from(i)) {
                *kind = count;
            }
        }
        trailer.digest = Digest(*take_array(input)?);
        for _ in 0..varint::take(input)? {
            let tag = *take_array(input)?;
            let (offset, rows) = (varint::take(input)?, varint::take(input)?);
            trailer.tables.push(TableSection { tag, offset, rows });
        }
        let (mut offset, mut first_event, mut first_time) = (0u64, 0u64, 0u64);
        for _ in 0..varint::take(input)? {
            let step = varint::take(input)?;
            if step == 0 {
                return None; // One frame listed many times would be an endless trace in a short file.
            }
            offset = offset.checked_add(step)?;
            let events: u32 = varint::take_as(input)?;
            first_time = first_time.checked_add(varint::take(input)?)?;
            trailer.frames.push(FrameIndex { offset, first_event, events, first_time });
            first_event = first_event.checked_add(u64::from(events))?;
        }
        Some(trailer)
    }
}

fn take_array<'a, const N: usize>(input: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (head, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(head)
}

/// The 12 bytes before a payload.
pub(crate) fn section_head(tag: Tag, payload: &[u8]) -> [u8; SECTION_HEAD as usize] {
    let length =
        u32::try_from(payload.len()).expect("a section is shorter than 4 GiB").to_le_bytes();
    let mut head = [0; SECTION_HEAD as usize];
    head[..4].copy_from_slice(&tag);
    head[4..8].copy_from_slice(&length);
    head[8..].copy_from_slice(&checksum(tag, length, payload).to_le_bytes());
    head
}

/// The crc of a section.
pub(crate) fn checksum(tag: Tag, length: [u8; 4], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&tag);
    crc.update(&length);
    crc.update(payload);
    crc.finalize()
}

/// A tag as text for messages.
pub(crate) fn show_tag(tag: Tag) -> String {
    tag.escape_ascii().to_string()
}

/// Bytes that do not follow the layout, at a file offset.
pub(crate) fn malformed(at: u64, what: impl Into<String>) -> TraceError {
    TraceError::new(TraceErrorKind::Malformed, Place::Byte(at), what)
}
