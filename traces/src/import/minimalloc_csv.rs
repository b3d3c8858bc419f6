//! minimalloc's CSV: a buffer a line, `id,lower,upper,size`, with half-open lifetimes. idealloc reads it too.
//!
//! Columns are named by the first line, in any order: `id` (`buffer`, `buffer_id`), `lower` (`start`, `begin`), `upper` (half open;
//! `end` in the old format includes its last moment), `size`; `alignment`, `hint`, `gaps` and `offset` may follow.

use super::{Imported, Importer, Input, read_error};
use crate::check::{Checker, Request};
use crate::open::OpenOptions;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{Bytes, EventKind, Nanos, Trace, TraceError, TraceHeader};
use std::io::{BufRead, Read};

/// The row of [`super::IMPORTERS`].
pub static IMPORTER: Importer = Importer {
    name: "minimalloc-csv",
    summary: "buffer lifetimes of minimalloc and idealloc: id,lower,upper,size",
    extensions: &["csv"],
    sniff: |head| {
        let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
        std::str::from_utf8(line).is_ok_and(|line| Columns::read(line).is_ok())
    },
    read,
};

/// The attribute of a trace that says to what its sizes are rounded when they are packed.
pub const ALIGNMENT: &str = "alignment";

/// Most bytes of a line.
const MAX_LINE: u64 = 1 << 20;

/// Which column is what.
struct Columns {
    id: usize,
    lower: usize,
    upper: usize,
    /// Whether the last moment belongs to the lifetime.
    inclusive: bool,
    size: usize,
    alignment: Option<usize>,
    gaps: Option<usize>,
}

impl Columns {
    fn read(line: &str) -> Result<Columns, String> {
        let names: Vec<&str> = line.trim().split(',').map(str::trim).collect();
        let find = |known: &[&str]| names.iter().position(|name| known.contains(name));
        let need = |known: &[&str]| {
            find(known).ok_or_else(|| format!("there is no column `{}`", known[0]))
        };
        let upper = find(&["upper"]);
        Ok(Columns {
            id: need(&["id", "buffer", "buffer_id"])?,
            lower: need(&["lower", "start", "begin"])?,
            upper: upper.map_or_else(|| need(&["end"]), Ok)?,
            inclusive: upper.is_none(),
            size: need(&["size"])?,
            alignment: find(&["alignment"]),
            gaps: find(&["gaps"]),
        })
    }
}

struct Buffer {
    id: String,
    lower: Nanos,
    upper: Nanos,
    size: Bytes,
}

/// What a file says beside its buffers.
#[derive(Default)]
struct Extra {
    alignment: Bytes,
    with_gaps: u64,
}

fn read(input: Input, _: &OpenOptions) -> Result<Imported, TraceError> {
    let mut reader = input.reader;
    let (mut columns, mut buffers, mut extra) = (None, Vec::new(), Extra::default());
    let (mut line, mut offset) = (Vec::new(), 0);
    for number in 1.. {
        line.clear();
        let length = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line);
        let length = length.map_err(|e| read_error(&e, offset))? as u64;
        if length == 0 {
            break;
        }
        offset += length;
        let fail =
            |what: String| TraceError::new(TraceErrorKind::Malformed, Place::Line(number), what);
        if length == MAX_LINE {
            return Err(fail(format!("the line is longer than {MAX_LINE} bytes")));
        }
        let text = std::str::from_utf8(&line).map_err(|e| fail(e.to_string()))?.trim();
        match &columns {
            _ if text.is_empty() => {}
            None => columns = Some(Columns::read(text).map_err(fail)?),
            Some(columns) => buffers.push(buffer(text, columns, &mut extra).map_err(fail)?),
        }
    }
    trace(&buffers, &extra).map(Imported::of_trace)
}

fn buffer(line: &str, columns: &Columns, extra: &mut Extra) -> Result<Buffer, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let text = |column: usize| fields.get(column).copied().unwrap_or_default();
    let number = |column: usize, name: &str| {
        let text = text(column);
        text.parse::<u64>().map_err(|_| format!("`{name}` is {text:?}, not a whole number"))
    };
    let (lower, upper) = (number(columns.lower, "lower")?, number(columns.upper, "upper")?);
    let upper = upper.saturating_add(u64::from(columns.inclusive));
    if lower >= upper {
        return Err(format!(
            "the lifetime {lower} to {upper} is empty; `upper` must be above `lower`"
        ));
    }
    if let Some(column) = columns.alignment.filter(|&column| !text(column).is_empty()) {
        let alignment = number(column, "alignment")?;
        if !alignment.is_power_of_two() {
            return Err(format!("an alignment of {alignment} is no power of two"));
        }
        extra.alignment = extra.alignment.max(alignment);
    }
    extra.with_gaps += u64::from(columns.gaps.is_some_and(|column| !text(column).is_empty()));
    let id = text(columns.id).to_string();
    Ok(Buffer { id, lower, upper, size: number(columns.size, "size")? })
}

fn trace(buffers: &[Buffer], extra: &Extra) -> Result<Trace, TraceError> {
    let mut moments: Vec<(Nanos, bool, usize)> = Vec::with_capacity(2 * buffers.len());
    for (i, buffer) in buffers.iter().enumerate() {
        moments.push((buffer.lower, true, i));
        moments.push((buffer.upper, false, i));
    }
    // At the same moment frees come first: lifetimes are half open.
    moments.sort_unstable();
    let mut checker: Checker<&str> = Checker::default();
    let mut events = Vec::with_capacity(moments.len());
    for (at, starts, i) in moments {
        let buffer = &buffers[i];
        let kind = if starts { EventKind::Alloc } else { EventKind::Free };
        let mut request = Request::new(kind);
        request.id = Some(buffer.id.as_str());
        request.size = Some(buffer.size);
        request.at = Some(at);
        let event = checker.admit(request).map_err(|what| {
            TraceError::new(TraceErrorKind::Illegal, Place::Whole, format!("buffer {i}: {what}"))
        })?;
        events.push(event);
    }
    let mut header = TraceHeader { source: IMPORTER.name.into(), ..TraceHeader::default() };
    header.knows.streams = false;
    header.knows.times = false;
    header.attributes.insert(ALIGNMENT.into(), extra.alignment.max(1).to_string());
    if extra.with_gaps > 0 {
        header.notes.push(format!(
            "{} buffers have gaps, which are not used: each is taken to need its memory for all of its lifetime",
            extra.with_gaps
        ));
    }
    Ok(Trace { header, events, ..Trace::default() })
}
