//! Formats that poolsim reads: one file, one `mod` line and one row in `importers!` each.
//!
//! A format that is recognised but holds nothing to replay is a row too: its `read` returns a
//! [`TraceErrorKind::NoEvents`] error that says what the file is and what to record instead.

pub mod driver_calls;
mod gather;
pub mod jax_pprof;
mod json_keys;
mod json_stream;
pub mod kineto;
mod kineto_rows;
mod lines;
pub mod minimalloc_csv;
mod native_json;
mod native_jsonl;
mod nsys_phases;
pub mod nsys_sqlite;
mod pprof;
mod protobuf;
mod pst;
pub mod rmm_csv;
mod rmm_debug_log;
mod sqlite;
pub mod stalloc;
pub mod torch;
pub mod torch_timeline;
pub mod vma_replay;

pub use json_keys::top_level_keys;

use crate::compression::Stream;
use crate::open::{DeviceSummary, OpenOptions, Source};
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{Trace, TraceError};
use std::io;
use std::path::PathBuf;
use torch::{torch_html, torch_json, torch_pickle};

/// Bytes of (decompressed) content that a sniffer sees.
pub const SNIFF_LEN: usize = 64 << 10;

/// A format that can be read.
pub struct Importer {
    /// Stable name, as `info` prints it: `torch-pickle`, `native-json`, `pst`, …
    pub name: &'static str,
    /// One line: what writes such files.
    pub summary: &'static str,
    /// Endings that such files usually have, without the dot. Used in messages, never to choose a format.
    pub extensions: &'static [&'static str],
    /// Whether content that starts with these bytes (up to [`SNIFF_LEN`]) is of this format. Must be
    /// strict: the first row that says yes reads the file.
    pub sniff: fn(&[u8]) -> bool,
    /// Reads one file. The file name is added to errors by the caller.
    pub read: fn(Input, &OpenOptions) -> Result<Imported, TraceError>,
}

/// What an importer reads from.
pub struct Input {
    /// The file, as given. For messages, and for formats that seek in uncompressed files.
    pub path: PathBuf,
    /// The decompressed content from its start.
    pub reader: Stream,
    /// The outermost compression of the file, if any; `reader` is past it.
    pub compression: Option<&'static str>,
    /// Length of the content where it is known (an uncompressed regular file).
    pub len_hint: Option<u64>,
}

/// What an importer read.
pub struct Imported {
    /// The devices that the file holds; `source` is of one of them.
    pub devices: Vec<DeviceSummary>,
    /// What was read.
    pub source: Source,
}

impl Imported {
    /// A trace of one device.
    pub fn of_trace(trace: Trace) -> Imported {
        let device = DeviceSummary {
            index: trace.header.device,
            entries: trace.events.len() as u64,
            segments: trace.initial_heap.as_ref().map_or(0, |heap| heap.ranges.len() as u64),
        };
        Imported { devices: vec![device], source: Source::Trace(Box::new(trace)) }
    }
}

macro_rules! importers {
    ($($module:ident),* $(,)?) => {
        /// Every format that can be read, in the order in which they are asked.
        pub static IMPORTERS: &[&Importer] = &[$(&$module::IMPORTER),*];
    };
}

importers! {
    pst, driver_calls, native_jsonl, native_json, torch_pickle, torch_json, torch_html, rmm_csv, rmm_debug_log,
    kineto, torch_timeline, jax_pprof, stalloc, vma_replay, nsys_sqlite, minimalloc_csv,
}

/// The error for a failed read `at` bytes into the content.
pub fn read_error(error: &io::Error, at: u64) -> TraceError {
    let kind = match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => TraceErrorKind::Malformed,
        _ => TraceErrorKind::Io,
    };
    TraceError::new(kind, Place::Byte(at), error.to_string())
}
