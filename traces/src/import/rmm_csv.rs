//! RMM's event log: what `logging_resource_adaptor` writes.

use super::gather::{At, Gather};
use super::lines::{Lines, illegal, malformed, number, shown};
use super::{Imported, Importer, Input};
use crate::open::OpenOptions;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::event::Knows;
use poolsim_core::{Nanos, TraceError, TraceHeader};
use std::collections::BTreeSet;
use std::io::BufRead;

/// The row of [`super::IMPORTERS`].
pub static IMPORTER: Importer = Importer {
    name: "rmm-csv",
    summary: "RMM event log (CSV), written by rmm.mr.LoggingResourceAdaptor",
    extensions: &["csv"],
    sniff,
    read: |input: Input, _: &OpenOptions| read(input.reader).map(Imported::of_trace),
};

/// The first line of a log.
pub const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

const SECOND: Nanos = 1_000_000_000;
const DAY: Nanos = 24 * 3600 * SECOND;

/// Threads write their lines a moment after they took the time, so lines may be this much out of order.
const JITTER: Nanos = SECOND;

/// The header line, or the first event of a part of a log that was split.
fn sniff(head: &[u8]) -> bool {
    let line = head.split(|&b| b == b'\n').next().unwrap_or(head);
    let Ok(line) = std::str::from_utf8(line) else { return false };
    line.trim() == HEADER || row(line.trim()).is_ok()
}

/// A line of a log.
#[derive(Clone, Copy)]
struct Row<'a> {
    thread: &'a str,
    time: Nanos,
    action: Action,
    pointer: u64,
    size: u64,
    stream: u64,
}

#[derive(Clone, Copy)]
enum Action {
    Allocate,
    Failure,
    Free,
}

fn row(line: &str) -> Result<Row<'_>, String> {
    let fields: [&str; 6] = line.split(',').map(str::trim).collect::<Vec<_>>().try_into().map_err(
        |fields: Vec<&str>| {
            format!("the line has {} fields, and should have the 6 of `{HEADER}`", fields.len())
        },
    )?;
    let [thread, when, action, pointer, size, stream] = fields;
    let wrong = |name: &str, text: &str, should: &str| {
        format!("{name} is `{}`, and should be {should}", shown(text))
    };
    if number(thread).is_none() {
        return Err(wrong("Thread", thread, "a number"));
    }
    let time = time_of_day(when).ok_or_else(|| wrong("Time", when, "as 20:41:09.841030"))?;
    let action = match action {
        "allocate" => Action::Allocate,
        "allocate failure" => Action::Failure,
        "free" => Action::Free,
        _ => return Err(wrong("Action", action, "allocate, allocate failure or free")),
    };
    let size = number(size).ok_or_else(|| wrong("Size", size, "a number of bytes"))?;
    let stream = handle(stream).ok_or_else(|| wrong("Stream", stream, "a handle as 0x1"))?;
    let pointer =
        handle(pointer).ok_or_else(|| wrong("Pointer", pointer, "an address as 0x7f10"))?;
    Ok(Row { thread, time, action, pointer, size, stream })
}

/// A pointer or a stream handle as the C library prints it.
fn handle(text: &str) -> Option<u64> {
    match text {
        "(nil)" | "nil" | "nullptr" | "(null)" => Some(0),
        _ => number(text),
    }
}

/// `HH:MM:SS.ffffff`, or with a colon before the fraction, as older logs have it.
fn time_of_day(text: &str) -> Option<Nanos> {
    let (clock, fraction) = match text.split_once('.') {
        Some(parts) => parts,
        None => text.rsplit_once(':').filter(|(clock, _)| clock.matches(':').count() == 2)?,
    };
    let parts: Vec<&str> = clock.split(':').collect();
    let [hours, minutes, seconds] = parts.try_into().ok()?;
    let part = |text: &str, limit: u64| {
        let all_digits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u64>().ok().filter(|n| all_digits && *n < limit)
    };
    let (hours, minutes, seconds) = (part(hours, 24)?, part(minutes, 60)?, part(seconds, 61)?);
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanos = fraction.parse::<u64>().ok()? * 10u64.pow(9 - fraction.len() as u32);
    Some(((hours * 60 + minutes) * 60 + seconds) * SECOND + nanos)
}

/// A step back by more than this is the midnight that the clock, which has no date, passed in between.
const NIGHT: Nanos = 3600 * SECOND;

/// The log's clock.
#[derive(Default)]
struct Clock {
    days: u64,
    /// The latest time so far, with the days that have passed.
    latest: Nanos,
    late_lines: u64,
}

impl Clock {
    fn at(&mut self, time: Nanos) -> Result<Nanos, String> {
        let mut at = self.days * DAY + time;
        if at + NIGHT < self.latest {
            self.days += 1;
            at += DAY;
        } else if self.days > 0 && at + JITTER >= self.latest + DAY {
            // Written a moment late, with a time from before midnight.
            at -= DAY;
        }
        if at + JITTER < self.latest {
            return Err(format!(
                "time runs backwards, by {:.3} s; lines of two logs are mixed, or the log is not in order",
                (self.latest - at) as f64 / SECOND as f64
            ));
        }
        if at < self.latest {
            self.late_lines += 1;
        }
        self.latest = self.latest.max(at);
        Ok(self.latest)
    }
}

/// Reads a log in one forward pass.
///
/// # Errors
/// The line and what was wrong with it.
pub fn read(reader: impl BufRead) -> Result<poolsim_core::Trace, TraceError> {
    let mut lines = Lines::new(reader);
    let mut gather = Gather::default();
    let mut clock = Clock::default();
    let mut threads = BTreeSet::new();
    while let Some((n, text)) = lines.next()? {
        if text.is_empty() || text == HEADER {
            continue;
        }
        let row = row(text).map_err(|what| malformed(n, what))?;
        if !threads.contains(row.thread) {
            threads.insert(row.thread.to_string());
        }
        let at = clock.at(row.time).map_err(|what| illegal(n, what))?;
        let Row { pointer, size, stream, .. } = row;
        let taken = match row.action {
            Action::Failure => gather.refused(at, size, stream),
            Action::Allocate => gather.alloc(At::Line(n), at, pointer, size, stream),
            Action::Free => {
                gather.free(At::Line(n), at, pointer, Some(size), Some(stream)).map(drop)
            }
        };
        taken.map_err(|what| illegal(n, what))?;
    }
    if gather.count() == 0 {
        let what = "is an RMM event log without events; flush it before the program ends \
                    (rmm.mr.LoggingResourceAdaptor.flush), or log a run that allocates";
        return Err(TraceError::new(TraceErrorKind::NoEvents, Place::Whole, what));
    }
    let mut header = header(&gather, threads.len());
    header.notes.extend(lines.note());
    if clock.late_lines > 0 {
        header.notes.push(format!(
            "{} lines have a time before that of the line above them (threads write their lines late); the order \
             of the lines was kept",
            clock.late_lines
        ));
    }
    gather
        .finish(header)
        .map_err(|what| TraceError::new(TraceErrorKind::Illegal, Place::Whole, what))
}

fn header(gather: &Gather, threads: usize) -> TraceHeader {
    let knows = Knows { completions: gather.stream_count() <= 1, ..Knows::default() };
    let mut header = TraceHeader { source: "rmm-csv".into(), knows, ..TraceHeader::default() };
    header.attributes.insert("threads".into(), threads.to_string());
    let before = gather.count_before();
    if before > 0 {
        header.notes.push(format!(
            "{before} frees are of allocations that the log does not show; they are taken as made before it starts"
        ));
    }
    header
}
