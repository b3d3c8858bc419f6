//! What else an Nsight Systems export says of a device and a process: NVTX ranges, the GPU, the clock.

use super::sqlite::{Database, Row, Table};
use poolsim_core::event::Annotation;
use poolsim_core::{Bytes, Nanos, TraceError};
use std::collections::HashMap;

/// `ENUM_NSYS_EVENT_TYPE`: marks, push/pop ranges, start/end ranges.
const MARK: u64 = 34;
const RANGES: [u64; 2] = [59, 60];

/// The part of a `globalTid` that names the process.
const PROCESS: u64 = !0xff_ffff;

fn table<'t>(tables: &'t [Table], name: &str) -> Option<&'t Table> {
    tables.iter().find(|table| table.name == name)
}

/// The NVTX ranges and marks of a process that do not end before `first`, in order of time.
///
/// # Errors
/// A damaged file.
pub(super) fn phases(
    database: &Database,
    tables: &[Table],
    process: u64,
    first: Nanos,
) -> Result<Vec<Annotation>, TraceError> {
    let Some(events) = table(tables, "NVTX_EVENTS") else { return Ok(Vec::new()) };
    let (Some(start), Some(kind)) = (events.column("start"), events.column("eventType")) else {
        return Ok(Vec::new());
    };
    let (end, text) = (events.column("end"), events.column("text"));
    let (text_id, thread) = (events.column("textId"), events.column("globalTid"));
    let mut spans: Vec<Annotation> = Vec::new();
    // Names that stand in another table, by the span that waits for them.
    let mut waiting: HashMap<u64, Vec<usize>> = HashMap::new();
    database.rows(events, &mut |row: Row<'_>| {
        let number =
            |column: Option<super::sqlite::Column>| column.and_then(|c| c.of(&row).unsigned());
        let own = number(thread).is_none_or(|thread| thread & PROCESS == process & PROCESS);
        let kind = kind.of(&row).unsigned().unwrap_or(0);
        let Some(from) = start.of(&row).unsigned().filter(|_| own) else { return Ok(()) };
        let to = match kind {
            MARK => Some(from),
            kind if RANGES.contains(&kind) => number(end),
            _ => return Ok(()),
        };
        if to.is_some_and(|to| to < first) {
            return Ok(());
        }
        let name = text.and_then(|text| text.of(&row).text()).unwrap_or_default();
        if name.is_empty()
            && let Some(id) = number(text_id)
        {
            waiting.entry(id).or_default().push(spans.len());
        }
        spans.push(Annotation {
            name: name.into(),
            start: from.saturating_sub(first),
            end: to.map(|to| to - first),
        });
        Ok(())
    })?;
    names(database, tables, &waiting, &mut spans)?;
    spans.retain(|span| !span.name.is_empty());
    spans.sort_by_key(|span| span.start);
    Ok(spans)
}

fn names(
    database: &Database,
    tables: &[Table],
    waiting: &HashMap<u64, Vec<usize>>,
    spans: &mut [Annotation],
) -> Result<(), TraceError> {
    let Some(strings) = table(tables, "StringIds") else { return Ok(()) };
    let (Some(id), Some(value)) = (strings.column("id"), strings.column("value")) else {
        return Ok(());
    };
    database.rows(strings, &mut |row: Row<'_>| {
        let known = id.of(&row).unsigned().and_then(|id| waiting.get(&id));
        if let (Some(known), Some(text)) = (known, value.of(&row).text()) {
            known.iter().for_each(|&span| spans[span].name = text.into());
        }
        Ok(())
    })
}

/// Name and memory of a device, by its number in CUDA.
///
/// # Errors
/// A damaged file.
pub(super) fn gpu(
    database: &Database,
    tables: &[Table],
    device: u32,
) -> Result<(Option<String>, Option<Bytes>), TraceError> {
    let mut found = (None, None);
    let Some(gpus) = table(tables, "TARGET_INFO_GPU") else { return Ok(found) };
    let number = gpus.column("cuDevice").or_else(|| gpus.column("id"));
    let (name, memory) = (gpus.column("name"), gpus.column("totalMemory"));
    database.rows(gpus, &mut |row: Row<'_>| {
        if number.and_then(|n| n.of(&row).unsigned()) == Some(u64::from(device)) {
            found.0 = name.and_then(|name| name.of(&row).text()).map(str::to_string);
            found.1 = memory.and_then(|memory| memory.of(&row).unsigned());
        }
        Ok(())
    })?;
    Ok(found)
}

/// When the profile's clock was 0, in nanoseconds since 1970.
///
/// # Errors
/// A damaged file.
pub(super) fn start_of_session(
    database: &Database,
    tables: &[Table],
) -> Result<Option<u64>, TraceError> {
    let mut start = None;
    if let Some(times) = table(tables, "TARGET_INFO_SESSION_START_TIME")
        && let Some(column) = times.column("utcEpochNs")
    {
        database.rows(times, &mut |row: Row<'_>| {
            start = column.of(&row).unsigned().filter(|ns| *ns < 1 << 62);
            Ok(())
        })?;
    }
    Ok(start)
}
