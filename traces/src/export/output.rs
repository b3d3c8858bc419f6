//! Files that appear whole or not at all.

use super::Exporter;
use crate::open::Source;
use crate::transform::Flow;
use crate::writer::write_pst;
use poolsim_core::TraceError;
use poolsim_core::error::{Place, TraceErrorKind};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// How to write a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputOptions {
    /// Replaces a file that is there already.
    pub overwrite: bool,
}

/// Writes `source` to `path`, compressed if the name ends with `.gz`, `.zst` or `.xz`. A regular file gets its
/// name only once it is complete; a pipe or a device is written as it comes.
///
/// # Errors
/// The file exists and may not be replaced, or reading or writing failed. Nothing is left behind then.
pub fn write_file(
    source: &Source,
    exporter: &Exporter,
    path: &Path,
    options: OutputOptions,
) -> Result<(), TraceError> {
    let mut write = |out: &mut dyn Write| (exporter.write)(source, out);
    write_unnamed(&mut write, path, options).map_err(|e| e.in_file(path))
}

/// As [`write_file`], of what a tool makes of a trace: streamed into a `.pst`, else gathered in memory first.
///
/// # Errors
/// As [`write_file`].
pub fn write_flow(
    flow: Flow,
    exporter: &Exporter,
    path: &Path,
    options: OutputOptions,
) -> Result<(), TraceError> {
    if exporter.name != "pst" {
        return write_file(&Source::Trace(Box::new(flow.collect()?)), exporter, path, options);
    }
    let Flow { mut source, tables } = flow;
    let mut write = |out: &mut dyn Write| write_pst(out, &mut *source, &tables.borrow()).map(drop);
    write_unnamed(&mut write, path, options).map_err(|e| e.in_file(path))
}

/// What writes the content.
type Writes<'a> = &'a mut dyn FnMut(&mut dyn Write) -> Result<(), TraceError>;

fn write_unnamed(write: Writes<'_>, path: &Path, options: OutputOptions) -> Result<(), TraceError> {
    let present = path.metadata().ok();
    if present.as_ref().is_some_and(|meta| !meta.is_file() && !meta.is_dir()) {
        let file = OpenOptions::new().write(true).open(path).map_err(|e| failed(&e))?;
        return write_to(write, path, &file);
    }
    if present.as_ref().is_some_and(std::fs::Metadata::is_dir) {
        return Err(refused("is a directory; name a file to write".into()));
    }
    if present.is_some() && !options.overwrite {
        return Err(exists());
    }
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".poolsim-").suffix(".part");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.tempfile_in(dir).map_err(|e| failed(&e))?;
    write_to(write, path, file.as_file())?;
    let kept = match options.overwrite {
        true => file.persist(path),
        false => file.persist_noclobber(path),
    };
    match kept {
        Ok(_) => Ok(()),
        Err(e) if e.error.kind() == io::ErrorKind::AlreadyExists => Err(exists()),
        Err(e) => Err(failed(&e.error)),
    }
}

fn write_to(write: Writes<'_>, path: &Path, file: &File) -> Result<(), TraceError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let out = BufWriter::with_capacity(1 << 18, file);
    match split_compression(&name).1 {
        None => {
            let mut out = out;
            write(&mut out)?;
            out.flush().map_err(|e| failed(&e))
        }
        Some(".gz") => {
            let mut out = flate2::write::GzEncoder::new(out, flate2::Compression::default());
            write(&mut out)?;
            out.finish().and_then(|mut out| out.flush()).map_err(|e| failed(&e))
        }
        Some(".zst") => {
            let mut out = zstd::Encoder::new(out, 9).map_err(|e| failed(&e))?;
            write(&mut out)?;
            out.finish().and_then(|mut out| out.flush()).map_err(|e| failed(&e))
        }
        Some(_) => {
            let mut out = liblzma::write::XzEncoder::new(out, 6);
            write(&mut out)?;
            out.finish().and_then(|mut out| out.flush()).map_err(|e| failed(&e))
        }
    }
}

/// A file name without the ending of its compression, and that ending.
pub(super) fn split_compression(name: &str) -> (&str, Option<&'static str>) {
    for ending in [".gz", ".zst", ".xz"] {
        if let Some(stem) = name.strip_suffix(ending) {
            return (stem, Some(ending));
        }
    }
    (name, None)
}

fn exists() -> TraceError {
    refused("exists already; name another file, or allow it to be overwritten".into())
}

fn refused(what: String) -> TraceError {
    TraceError::new(TraceErrorKind::Refused, Place::Whole, what)
}

fn failed(error: &io::Error) -> TraceError {
    TraceError::new(TraceErrorKind::Io, Place::Whole, format!("cannot be written: {error}"))
}
