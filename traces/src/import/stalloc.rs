//! STAlloc's trace of a Megatron job: `mem_log_devN.txt`.

use super::gather::{At, Gather};
use super::lines::{Lines, illegal, malformed, number, shown};
use super::{Imported, Importer, Input};
use crate::open::OpenOptions;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::event::{Annotation, Knows};
use poolsim_core::{Trace, TraceError, TraceHeader};
use std::io::BufRead;

/// The row of [`super::IMPORTERS`].
pub static IMPORTER: Importer = Importer {
    name: "stalloc",
    summary: "STAlloc memory log (mem_log_devN.txt): `1 address bytes stream` and `0 …`, with iterations",
    extensions: &["txt"],
    sniff,
    read: |input: Input, _: &OpenOptions| read(input.reader).map(Imported::of_trace),
};

/// Some line of the head is an event with a hexadecimal address, and all before it are marks.
fn sniff(head: &[u8]) -> bool {
    for line in head.split(|&b| b == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else { return false };
        let line = line.trim();
        if event(line).is_some_and(|_| line[2..].starts_with("0x")) {
            return true;
        }
        if !line.is_empty() && !is_mark(line) {
            return false;
        }
    }
    false
}

fn is_mark(line: &str) -> bool {
    ["Iteration Index", "micro-batch", "Layer"].iter().any(|word| line.contains(word))
}

/// Whether it allocates, the address, the size and the stream.
fn event(line: &str) -> Option<(bool, u64, u64, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let allocates = match fields.next()? {
        "1" => true,
        "0" => false,
        _ => return None,
    };
    let (address, size, stream) =
        (number(fields.next()?)?, number(fields.next()?)?, number(fields.next()?)?);
    fields.next().is_none().then_some((allocates, address, size, stream))
}

/// Reads a log in one forward pass. It has no times; an event is given its number, in nanoseconds.
///
/// # Errors
/// The line and what was wrong with it.
pub fn read(reader: impl BufRead) -> Result<Trace, TraceError> {
    let mut lines = Lines::new(reader);
    let mut gather = Gather::default();
    let mut spans = Spans::default();
    while let Some((n, text)) = lines.next()? {
        if text.is_empty() {
            continue;
        }
        let at = gather.count() as u64;
        if is_mark(text) {
            spans.mark(text, at);
            continue;
        }
        let Some((allocates, address, size, stream)) = event(text) else {
            let what = format!(
                "`{}` is neither `1 address bytes stream`, `0 address bytes stream` nor a mark of an iteration, a \
                 micro-batch or a layer",
                shown(text)
            );
            return Err(malformed(n, what));
        };
        if address == 0 {
            continue;
        }
        let taken = match allocates {
            true => gather.alloc(At::Line(n), at, address, size, stream),
            false => gather.free(At::Line(n), at, address, Some(size), Some(stream)).map(drop),
        };
        taken.map_err(|what| illegal(n, what))?;
    }
    if gather.count() == 0 {
        let what = "is an STAlloc log without events; run STAlloc in its mode `Trace`";
        return Err(TraceError::new(TraceErrorKind::NoEvents, Place::Whole, what));
    }
    let mut header = TraceHeader {
        source: "stalloc".into(),
        knows: Knows {
            completions: gather.stream_count() <= 1,
            times: false,
            pools: false,
            ..Knows::default()
        },
        ..TraceHeader::default()
    };
    header.notes.extend(lines.note());
    let annotations = spans.finish(gather.count() as u64);
    gather
        .finish(header)
        .map(|trace| Trace { annotations, ..trace })
        .map_err(|what| TraceError::new(TraceErrorKind::Illegal, Place::Whole, what))
}

/// Iterations and micro-batches: each lasts until the next one.
#[derive(Default)]
struct Spans {
    done: Vec<Annotation>,
    iteration: Option<(String, u64)>,
    batch: Option<(String, u64)>,
}

impl Spans {
    fn mark(&mut self, text: &str, at: u64) {
        let name = |text: &str| text.rsplit(':').next().unwrap_or(text).trim().to_string();
        if text.contains("Iteration Index") {
            self.close(at);
            self.iteration = Some((format!("iteration {}", name(text)), at));
        } else if text.contains("micro-batch") {
            let batch = self.batch.replace((format!("micro-batch {}", name(text)), at));
            self.end(batch, at);
        }
    }

    fn close(&mut self, at: u64) {
        for span in [self.batch.take(), self.iteration.take()] {
            self.end(span, at);
        }
    }

    fn end(&mut self, span: Option<(String, u64)>, at: u64) {
        if let Some((name, start)) = span {
            self.done.push(Annotation { name, start, end: Some(at) });
        }
    }

    fn finish(mut self, at: u64) -> Vec<Annotation> {
        self.close(at);
        self.done.sort_by_key(|span| span.start);
        self.done
    }
}
