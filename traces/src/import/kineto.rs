//! PyTorch profiler traces (Kineto, Chrome JSON) with `[memory]` events.

use super::gather::{At, BySize, Gather};
use super::json_stream::{Counted, json_error};
use super::kineto_rows::{Memory, Parsed, Top};
use super::{Imported, Importer, Input, top_level_keys};
use crate::open::{DeviceSummary, OpenOptions, Source};
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::event::{Annotation, Knows};
use poolsim_core::units::ShowBytes;
use poolsim_core::{Nanos, Trace, TraceError, TraceHeader};
use serde::de::DeserializeSeed;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Read;

/// The row of [`super::IMPORTERS`].
pub static IMPORTER: Importer = Importer {
    name: "kineto",
    summary: "PyTorch profiler trace (Chrome JSON) with [memory] events, of a profile with profile_memory=True",
    extensions: &["json"],
    sniff,
    read: |input: Input, options| read(input.reader, options),
};

/// How to record what a file lacks.
const RECORD: &str = "record with torch.profiler.profile(activities=[CPU, CUDA], profile_memory=True), or, better, a \
                      memory snapshot (torch.cuda.memory._record_memory_history), which has streams and exact sizes";

fn sniff(head: &[u8]) -> bool {
    let has = |needle: &str| memchr::memmem::find(head, needle.as_bytes()).is_some();
    match head.trim_ascii_start().first() {
        Some(b'{') => {
            let keys = top_level_keys(head).unwrap_or_default();
            let key = |name: &str| keys.iter().any(|k| k == name);
            key("traceEvents") || key("schemaVersion") && key("deviceProperties")
        }
        Some(b'[') => has("\"ph\"") && has("\"ts\"") && has("\"pid\""),
        _ => false,
    }
}

/// Reads a trace in one forward pass; of its events, only those of memory and the user's annotations are kept.
///
/// # Errors
/// Malformed or cut JSON, with the byte offset; a trace without `[memory]` events of a device; events that contradict
/// each other.
pub fn read(reader: impl Read, options: &OpenOptions) -> Result<Imported, TraceError> {
    let mut parsed = parse(reader)?;
    let groups = groups(&parsed);
    let Some((device, kind)) = pick(&groups, options)? else {
        return Err(TraceError::new(TraceErrorKind::NoEvents, Place::Whole, nothing(&parsed)));
    };
    let mut rows: Vec<Memory> = std::mem::take(&mut parsed.memory);
    rows.retain(|row| (row.device, row.device_type) == (device, kind));
    let trace = trace(rows, parsed, device)?;
    let devices = groups
        .iter()
        .map(|(&(index, _), &entries)| DeviceSummary { index, entries, segments: 0 })
        .collect();
    Ok(Imported { devices, source: Source::Trace(Box::new(trace)) })
}

fn parse(reader: impl Read) -> Result<Parsed, TraceError> {
    let offset = Cell::new(0);
    let mut parsed = Parsed::default();
    let mut json = serde_json::Deserializer::from_reader(Counted::new(reader, &offset));
    let read = Top(&mut parsed).deserialize(&mut json).and_then(|()| json.end());
    read.map_err(|e| json_error(e, offset.get(), "export the trace again"))?;
    Ok(parsed)
}

/// The clock of a profiler trace: what its times are relative to, in nanoseconds since 1970; 0 if it does not say.
///
/// # Errors
/// Not JSON, cut short, or no profiler trace.
pub fn base_time(reader: impl Read) -> Result<i128, TraceError> {
    parse(reader).map(|parsed| parsed.base_ns.unwrap_or(0))
}

fn nothing(parsed: &Parsed) -> String {
    let what = match parsed.memory.len() {
        0 => "has no [memory] events",
        _ => "has [memory] events of the host only",
    };
    format!("is a profiler trace, but {what}, so there is nothing to replay; {RECORD}")
}

/// Events by device index and type, those of the host aside.
fn groups(parsed: &Parsed) -> BTreeMap<(u32, i64), u64> {
    let mut groups = BTreeMap::new();
    for row in parsed.memory.iter().filter(|row| row.device_type != 0) {
        *groups.entry((row.device, row.device_type)).or_default() += 1;
    }
    groups
}

fn pick(
    groups: &BTreeMap<(u32, i64), u64>,
    options: &OpenOptions,
) -> Result<Option<(u32, i64)>, TraceError> {
    let wanted = |key: &(u32, i64)| options.device.is_none_or(|device| device == key.0);
    let best = groups.iter().filter(|(key, _)| wanted(key)).rev().max_by_key(|(_, n)| **n);
    if let (None, Some(device), false) = (best, options.device, groups.is_empty()) {
        let there: Vec<String> =
            groups.iter().map(|((index, _), n)| format!("{index} ({n} events)")).collect();
        let what = format!("holds no device {device}; it holds {}", there.join(", "));
        return Err(TraceError::new(TraceErrorKind::Refused, Place::Whole, what));
    }
    Ok(best.map(|(key, _)| *key))
}

fn trace(mut rows: Vec<Memory>, parsed: Parsed, device: u32) -> Result<Trace, TraceError> {
    let in_order = rows.is_sorted_by_key(|row| row.at);
    rows.sort_by_key(|row| row.at);
    let first = rows[0].at;
    let mut gather = Gather::default();
    let mut by_size = BySize::default();
    let identity = rows.iter().all(|row| row.addr.is_some());
    for row in &rows {
        one(&mut gather, &mut by_size, row, first, identity).map_err(|what| {
            TraceError::new(
                TraceErrorKind::Illegal,
                Place::Event(row.index),
                format!("[memory] {what}"),
            )
        })?;
    }
    let breaks = breaks(&rows);
    let mut header = header(&parsed, device, first);
    header.knows = Knows {
        streams: rows.iter().all(|row| row.stream.is_some()),
        completions: false,
        order: breaks.map_or(in_order, |n| n == 0),
        identity,
        pools: false,
        from_start: rows[0].total.is_some(),
        ..Knows::default()
    };
    header.notes = notes(&rows, parsed.exact_sizes, identity, breaks);
    before(&mut gather, &rows, &mut header.notes)
        .and_then(|()| gather.finish(header))
        .map(|trace| Trace { annotations: annotations(&parsed, first), ..trace })
        .map_err(|what| TraceError::new(TraceErrorKind::Illegal, Place::Whole, what))
}

fn one(
    gather: &mut Gather,
    by_size: &mut BySize,
    row: &Memory,
    first: i128,
    identity: bool,
) -> Result<(), String> {
    let at = Nanos::try_from(row.at - first)
        .map_err(|_| "event is more than 500 years after the first one".to_string())?;
    let size = row.bytes.unsigned_abs();
    let place = At::Event(row.index);
    let stream = row.stream.unwrap_or(0);
    let addr = row.addr.filter(|_| identity);
    if row.bytes > 0 {
        let name = addr.unwrap_or_else(|| by_size.begin(size));
        gather.alloc(place, at, name, size, stream)
    } else if row.bytes < 0 {
        let name = addr.unwrap_or_else(|| by_size.end(size));
        gather.free(place, at, name, Some(size), row.stream).map(drop)
    } else {
        Ok(())
    }
}

/// How often the allocator's running total does not follow from the event before, where there is one.
fn breaks(rows: &[Memory]) -> Option<u64> {
    let totals: Option<Vec<(i128, i128)>> = rows
        .iter()
        .map(|row| row.total.map(|total| (i128::from(total) - i128::from(row.bytes), total.into())))
        .collect();
    let totals = totals?;
    Some(totals.windows(2).filter(|pair| pair[0].1 != pair[1].0).count() as u64)
}

/// What was allocated before the first event and is not freed by any: the running total says how much, not what.
fn before(gather: &mut Gather, rows: &[Memory], notes: &mut Vec<String>) -> Result<(), String> {
    let Some(first) = rows.first() else { return Ok(()) };
    let Some(total) = first.total else {
        notes.push("the events do not say how much was allocated before the first one".into());
        return Ok(());
    };
    let before = i128::from(total) - i128::from(first.bytes);
    let rest = before - gather.bytes_before() as i128;
    if let Some(rest) = u64::try_from(rest).ok().filter(|rest| *rest > 0) {
        gather.alive_before(rest)?;
        notes.push(format!(
            "{} were allocated before the first event and are not freed by any; they appear as one allocation",
            ShowBytes(rest)
        ));
    }
    Ok(())
}

fn notes(rows: &[Memory], exact: bool, identity: bool, breaks: Option<u64>) -> Vec<String> {
    let mut notes = Vec::new();
    if !exact {
        notes.push(

        "sizes are those of the recorded allocator's blocks (rounded up), not what the program asked for"
            .to_string(),
        );
    }
    if !identity {
        notes.push(
            "the events have no addresses: a free is taken as that of the youngest allocation of its size".into(),
        );
    }
    if let Some(n) = breaks.filter(|n| *n > 0) {
        notes.push(format!(
            "in {n} places the allocator's total does not follow from the event before: events are missing, or \
             those of one microsecond are in another order than they happened"
        ));
    }
    if let Some(peak) = rows.iter().filter_map(|row| row.reserved).max() {
        notes.push(format!("the recorded allocator reserved {} at most", ShowBytes(peak)));
    }
    notes
}

fn header(parsed: &Parsed, device: u32, first: i128) -> TraceHeader {
    let own = parsed.devices.iter().find(|d| d.id == u64::from(device));
    let unix_ns = first + parsed.base_ns.unwrap_or(0);
    // Older traces count from 1970 themselves; times of a clock that started at boot say nothing.
    let known = unix_ns > 1_000_000_000_000_000_000;
    let mut header = TraceHeader {
        source: "kineto".into(),
        device,
        device_name: own.and_then(|d| d.name.clone()),
        device_memory: own.and_then(|d| d.total_global_mem),
        start_unix_us: known.then(|| u64::try_from(unix_ns / 1000).ok()).flatten(),
        ..TraceHeader::default()
    };
    for (name, value) in [("rank", parsed.rank), ("world_size", parsed.world_size)] {
        if let Some(value) = value {
            header.attributes.insert(name.into(), value.to_string());
        }
    }
    header
}

/// The user's spans that do not end before the first event, on the trace's clock.
fn annotations(parsed: &Parsed, first: i128) -> Vec<Annotation> {
    let on_clock = |at: i128| Nanos::try_from((at - first).max(0)).unwrap_or(Nanos::MAX);
    let mut spans: Vec<Annotation> = parsed
        .spans
        .iter()
        .filter(|span| span.end >= first)
        .map(|span| Annotation {
            name: span.name.clone(),
            start: on_clock(span.start),
            end: Some(on_clock(span.end)),
        })
        .collect();
    spans.sort_by_key(|span| span.start);
    spans
}
