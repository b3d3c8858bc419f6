//! What PyTorch's profiler writes with `export_memory_timeline("….raw.json.gz")`.

use super::gather::{At, BySize, Gather};
use super::json_stream::{Counted, json_error};
use super::{Imported, Importer, Input};
use crate::open::OpenOptions;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::event::Knows;
use poolsim_core::{Nanos, Trace, TraceError, TraceHeader};
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;
use std::io::Read;

/// The row of [`super::IMPORTERS`].
pub static IMPORTER: Importer = Importer {
    name: "torch-timeline",
    summary: "PyTorch memory timeline, raw: torch.profiler's export_memory_timeline(\"x.raw.json.gz\")",
    extensions: &["raw", "json"],
    sniff,
    read: |input: Input, _: &OpenOptions| read(input.reader).map(Imported::of_trace),
};

/// A list whose first row is four whole numbers: time, action from 1 to 4, bytes, category.
fn sniff(head: &[u8]) -> bool {
    let text = head.trim_ascii_start();
    let Some(row) = text.strip_prefix(b"[").map(<[u8]>::trim_ascii_start) else { return false };
    let Some(row) = row.strip_prefix(b"[") else { return false };
    let Some(end) = memchr::memchr(b']', row) else { return false };
    let Ok(row) = std::str::from_utf8(&row[..end]) else { return false };
    let numbers: Option<Vec<i64>> = row.split(',').map(|n| n.trim().parse().ok()).collect();
    numbers.is_some_and(|n| n.len() == 4 && (1..=4).contains(&n[1]))
}

/// Of the profiler's actions: alive before, made, changed, gone.
const PREEXISTING: u8 = 1;
const CREATE: u8 = 2;
const INCREMENT_VERSION: u8 = 3;
const DESTROY: u8 = 4;

#[derive(Clone, Copy)]
struct Row {
    index: u64,
    at: Nanos,
    action: u8,
    size: u64,
}

/// Reads a timeline in one forward pass.
///
/// # Errors
/// Malformed or cut JSON, with the byte offset, and rows that contradict each other.
pub fn read(reader: impl Read) -> Result<Trace, TraceError> {
    let offset = Cell::new(0);
    let mut rows = Vec::new();
    let mut json = serde_json::Deserializer::from_reader(Counted::new(reader, &offset));
    let read = Rows(&mut rows).deserialize(&mut json).and_then(|()| json.end());
    read.map_err(|e| json_error(e, offset.get(), "export the timeline again"))?;
    let in_order = rows.is_sorted_by_key(|row| (row.action != PREEXISTING, row.at));
    rows.sort_by_key(|row| (row.action != PREEXISTING, row.at));
    let (mut gather, mut by_size) = (Gather::default(), BySize::default());
    let mut count = 0;
    for row in &rows {
        let place = At::Event(row.index);
        let taken = match row.action {
            PREEXISTING => gather.preexisting(place, by_size.begin(row.size), row.size),
            CREATE => gather.alloc(place, row.at, by_size.begin(row.size), row.size, 0),
            DESTROY => {
                gather.free(place, row.at, by_size.end(row.size), Some(row.size), None).map(drop)
            }
            _ => continue,
        };
        count += 1;
        taken.map_err(|what| {
            TraceError::new(TraceErrorKind::Illegal, Place::Event(row.index), what)
        })?;
    }
    if count == 0 {
        let what = "is a memory timeline in which nothing is allocated; profile at least one step";
        return Err(TraceError::new(TraceErrorKind::NoEvents, Place::Whole, what));
    }
    let start = gather.origin() / 1000;
    let header = TraceHeader {
        source: "torch-timeline".into(),
        start_unix_us: (start > 1_000_000_000_000_000).then_some(start),
        knows: Knows {
            streams: false,
            completions: false,
            order: in_order,
            identity: false,
            pools: false,
            ..Knows::default()
        },
        notes: vec![
            "sizes are those of the recorded allocator's blocks (rounded up), not what the program asked for".into(),
            "the rows have no addresses: a tensor's end is taken as that of the youngest one of its size".into(),
        ],
        ..TraceHeader::default()
    };
    gather
        .finish(header)
        .map_err(|what| TraceError::new(TraceErrorKind::Illegal, Place::Whole, what))
}

struct Rows<'a>(&'a mut Vec<Row>);

impl<'de> DeserializeSeed<'de> for Rows<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Rows<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of [time, action, bytes, category]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0;
        while let Some((at, action, bytes, _)) = seq.next_element::<(i64, u8, i64, i64)>()? {
            let wrong = |what: String| A::Error::custom(format!("row {index}: {what}"));
            if !(PREEXISTING..=DESTROY).contains(&action) {
                return Err(wrong(format!("action {action} is none of 1 to 4")));
            }
            let at = Nanos::try_from(at).unwrap_or(0);
            let frees = action == DESTROY;
            if action != INCREMENT_VERSION && (bytes < 0) != frees && bytes != 0 {
                return Err(wrong(format!("action {action} with {bytes} bytes")));
            }
            self.0.push(Row { index, at, action, size: bytes.unsigned_abs() });
            index += 1;
        }
        Ok(())
    }
}
