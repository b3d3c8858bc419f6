//! Formats of other programs: what each says and lacks, hostile files of each, and the recorded ones.

mod formats;
mod hostile;
mod public;
mod rmm;
mod written;

use poolsim_core::{EventKind, Trace, TraceError, TraceReader};
use poolsim_traces::{OpenOptions, check, open};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of the repository's corpus.
fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

/// Opens bytes as a file of which nothing is known but its content.
fn opened(bytes: &[u8]) -> Result<poolsim_traces::Opened, TraceError> {
    let mut file = tempfile::NamedTempFile::new().expect("the temporary directory takes a file");
    std::io::Write::write_all(&mut file, bytes).expect("and its content");
    open(file.path(), &OpenOptions::default())
}

/// The format that bytes are taken for, and the legal trace that they hold.
fn trace_of(bytes: &[u8]) -> Result<(&'static str, Trace), TraceError> {
    let opened = opened(bytes)?;
    let format = opened.format;
    let trace = Arc::new(opened.source.into_trace()?);
    check::check(&mut TraceReader::new(trace.clone())).expect("only legal traces are read");
    Ok((format, Arc::unwrap_or_clone(trace)))
}

/// Events of a kind.
fn count(trace: &Trace, kind: EventKind) -> usize {
    trace.events.iter().filter(|e| e.kind() == kind).count()
}
