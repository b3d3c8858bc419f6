//! Formats that poolsim writes: one file (or function), and one row of [`EXPORTERS`] each.

mod chrome;
mod minimalloc;
mod names;
mod output;
mod pickler;
mod rmm_csv;
mod torch;

pub use chrome::{BASE_ATTRIBUTE, write_chrome};
pub use output::{OutputOptions, write_file, write_flow};
pub use rmm_csv::write_rmm_csv;
pub use torch::write_torch_snapshot;

use crate::native::{write_json, write_jsonl};
use crate::open::Source;
use crate::reader::PstReader;
use crate::suggest;
use crate::tables::Tables;
use crate::writer::write_pst;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::trace::Trace;
use poolsim_core::{ConfigError, EventSource, TraceError};
use std::io::Write;
use std::path::Path;

/// A format that can be written.
pub struct Exporter {
    /// Stable name, for `--format`.
    pub name: &'static str,
    /// Endings of file names that mean this format, without the dot.
    pub extensions: &'static [&'static str],
    /// One line: what reads such files.
    pub summary: &'static str,
    /// What of a trace it cannot hold, as the end of a sentence; empty if it holds everything.
    pub loses: &'static str,
    /// Whether it shows decisions, and so takes recordings as they are, before requests are inferred from them.
    pub takes_recordings: bool,
    /// Writes a source, from its first event on.
    pub write: fn(&Source, &mut dyn Write) -> Result<(), TraceError>,
}

/// Every format that can be written.
pub static EXPORTERS: &[&Exporter] = &[
    &Exporter {
        name: "pst",
        extensions: &["pst"],
        summary: "poolsim's compact streaming format",
        loses: "",
        takes_recordings: false,
        write: |source, out| with_events(source, |s, tables| write_pst(out, s, tables).map(drop)),
    },
    &Exporter {
        name: "native-json",
        extensions: &["json"],
        summary: "poolsim's own JSON, for people and other programs",
        loses: "",
        takes_recordings: false,
        write: |source, out| with_events(source, |s, tables| write_json(out, s, tables)),
    },
    &Exporter {
        name: "native-jsonl",
        extensions: &["jsonl", "ndjson"],
        summary: "the same as JSON lines, an event a line",
        loses: "",
        takes_recordings: false,
        write: |source, out| with_events(source, |s, tables| write_jsonl(out, s, tables)),
    },
    &Exporter {
        name: "torch-pickle",
        extensions: &["pickle", "pkl"],
        summary: "PyTorch memory snapshot, for torch.cuda._memory_viz and pytorch.org/memory_viz",
        loses: "",
        takes_recordings: true,
        write: write_recording,
    },
    &Exporter {
        name: "minimalloc-csv",
        extensions: &["csv"],
        summary: "buffer lifetimes in event indices, for minimalloc, idealloc and other packers",
        loses: "streams, pools, times, waits of frees, refused requests, stacks and annotations",
        takes_recordings: false,
        write: |source, out| with_events(source, |s, _| minimalloc::write(s, out)),
    },
    &Exporter {
        name: "rmm-csv",
        extensions: &["rmm.csv"],
        summary: "RMM event log, for RMM's replay benchmark",
        loses: "stacks, annotations, pools, uses on other streams, waits of frees, calls that give memory back, and times \
                below a microsecond",
        takes_recordings: false,
        write: |source, out| with_events(source, |s, _| write_rmm_csv(out, s)),
    },
    &Exporter {
        name: "chrome",
        extensions: &["trace.json", "chrome.json"],
        summary: "timeline for Perfetto and chrome://tracing: counters and [memory] events",
        loses: "pools, waits of frees, and which memory was alive before the trace",
        takes_recordings: true,
        write: write_chrome,
    },
];

/// The format with this name, or the one that the file's ending means (below `.gz`, `.zst` or `.xz`).
///
/// # Errors
/// No such format; lists those there are.
pub fn find(name: Option<&str>, path: &Path) -> Result<&'static Exporter, ConfigError> {
    if let Some(name) = name {
        let known: Vec<&str> = EXPORTERS.iter().map(|e| e.name).collect();
        let found = EXPORTERS.iter().copied().find(|e| e.name == name);
        return found.ok_or_else(|| ConfigError(suggest::unknown("output format", name, &known)));
    }
    let file = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let (file, _) = output::split_compression(&file);
    let ends = |ending: &&str| file.strip_suffix(ending).is_some_and(|stem| stem.ends_with('.'));
    // `.trace.json` says more than `.json`.
    let longest = |e: &Exporter| e.extensions.iter().filter(|&e| ends(e)).map(|e| e.len()).max();
    let found =
        EXPORTERS.iter().copied().filter(|e| longest(e).is_some()).max_by_key(|e| longest(e));
    found.ok_or_else(|| {
        let known: Vec<String> =
            EXPORTERS.iter().map(|e| format!(".{} ({})", e.extensions[0], e.name)).collect();
        let known = known.join(", ");
        ConfigError(format!(
            "cannot tell the output format from `{}`; name a format, or end the file with {known}",
            path.display()
        ))
    })
}

fn write_recording(source: &Source, out: &mut dyn Write) -> Result<(), TraceError> {
    match source {
        Source::Recording(recording) => write_torch_snapshot(out, recording)
            .map_err(|e| TraceError::new(TraceErrorKind::Io, Place::Whole, e.to_string())),
        Source::Trace(_) | Source::Pst(_) => Err(TraceError::new(
            TraceErrorKind::Refused,
            Place::Whole,
            "a trace of requests says nothing of an allocator's decisions, which a snapshot is made of; \
             replay it and write the simulated run with --snapshot-out",
        )),
    }
}

/// Runs `write` on the events of a source.
pub(crate) fn with_events(
    source: &Source,
    write: impl FnOnce(&mut dyn EventSource, &Tables<'_>) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    match source {
        Source::Trace(trace) => write(&mut Borrowed { trace, next: 0 }, &Tables::of(trace)),
        Source::Pst(reader) => {
            let mut reader: PstReader = reader.reopen();
            let owned = reader.tables()?;
            write(&mut reader, &owned.borrow())
        }
        Source::Recording(_) => Err(TraceError::new(
            TraceErrorKind::Refused,
            Place::Whole,
            "a recording of an allocator is not yet a trace of requests; infer them first",
        )),
    }
}

/// Streams a trace that is only borrowed.
struct Borrowed<'a> {
    trace: &'a Trace,
    next: usize,
}

impl EventSource for Borrowed<'_> {
    fn header(&self) -> &poolsim_core::TraceHeader {
        &self.trace.header
    }

    fn fill(&mut self, batch: &mut poolsim_core::Batch) -> Result<bool, TraceError> {
        batch.clear();
        let end = (self.next + poolsim_core::trace::BATCH).min(self.trace.events.len());
        batch.events.extend_from_slice(&self.trace.events[self.next..end]);
        let stacks = self.trace.event_stacks.get(self.next..end).unwrap_or_default();
        batch.stacks.extend_from_slice(stacks);
        let any = end > self.next;
        self.next = end;
        Ok(any)
    }
}
