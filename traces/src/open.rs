//! Opening a trace of any known format.

use crate::compression::{Peeled, Stream, peel};
use crate::import::{IMPORTERS, Importer, Input, SNIFF_LEN, read_error};
use crate::reader::{PstReader, read_all};
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{Recording, Trace, TraceError};
use std::fmt::Write;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// How to open a trace.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Which device of a file that holds several.
    pub device: Option<u32>,
    /// Reads a damaged or unfinished `.pst` up to its last complete frame; a note in the header says what was lost.
    pub recover: bool,
}

/// A device of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSummary {
    /// Its index in the recorded process.
    pub index: u32,
    /// Entries or events recorded for it.
    pub entries: u64,
    /// Segments in its final heap, where the format holds one.
    pub segments: u64,
}

/// What a file held.
#[derive(Debug)]
pub enum Source {
    /// Requests and decisions.
    Recording(Box<Recording>),
    /// Requests.
    Trace(Box<Trace>),
    /// Requests, left in the file and streamed.
    Pst(PstReader),
}

impl Source {
    /// The requests, in memory.
    ///
    /// # Errors
    /// Those of reading a `.pst`; and for a recording, which must be turned into requests by inferring
    /// what its decisions answered.
    pub fn into_trace(self) -> Result<Trace, TraceError> {
        match self {
            Source::Trace(trace) => Ok(*trace),
            Source::Pst(reader) => read_all(reader),
            Source::Recording(_) => Err(TraceError::new(
                TraceErrorKind::Refused,
                Place::Whole,
                "a recording of an allocator is not yet a trace of requests; infer them first",
            )),
        }
    }
}

/// An opened trace.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub path: PathBuf,
    /// Name of its format, see [`IMPORTERS`].
    pub format: &'static str,
    /// Outermost compression, if any.
    pub compression: Option<&'static str>,
    /// The devices that it holds.
    pub devices: Vec<DeviceSummary>,
    /// What was read.
    pub source: Source,
}

/// Opens a trace. The format is told from the content, never from the name; gzip, zstd and xz are read
/// through, up to two layers deep.
///
/// # Errors
/// Names the file and the place in it, and says what to do next.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Opened, TraceError> {
    open_unnamed(path, options).map_err(|e| e.in_file(path))
}

fn open_unnamed(path: &Path, options: &OpenOptions) -> Result<Opened, TraceError> {
    let (stream, len) = open_file(path)?;
    let Peeled { stream, head, compression, damage } =
        peel(stream, SNIFF_LEN).map_err(|e| read_error(&e, 0))?;
    if let Some(damage) = damage.filter(|_| !options.recover || head.is_empty()) {
        return Err(read_error(&damage, head.len() as u64));
    }
    if head.is_empty() {
        return Err(empty(compression));
    }
    let importer = IMPORTERS
        .iter()
        .find(|i| (i.sniff)(&head))
        .ok_or_else(|| unknown(path, compression, &head))?;
    let len_hint = if compression.is_none() { len } else { None };
    let input = Input { path: path.into(), reader: stream, compression, len_hint };
    let imported = (importer.read)(input, options)?;
    if let Some(device) = options.device {
        require_device(device, &imported.devices)?;
    }
    Ok(Opened {
        path: path.into(),
        format: importer.name,
        compression,
        devices: imported.devices,
        source: imported.source,
    })
}

/// The content of a file that is no trace itself, compression read through.
///
/// # Errors
/// The file cannot be read.
pub fn content(path: &Path) -> Result<Stream, TraceError> {
    let read = || {
        let (stream, _) = open_file(path)?;
        peel(stream, SNIFF_LEN).map(|peeled| peeled.stream).map_err(|e| read_error(&e, 0))
    };
    read().map_err(|e: TraceError| e.in_file(path))
}

/// The file as a stream, and its length where it has one (a pipe has none).
fn open_file(path: &Path) -> Result<(Stream, Option<u64>), TraceError> {
    let io = |what: String| TraceError::new(TraceErrorKind::Io, Place::Whole, what);
    let meta = fs::metadata(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => io(not_found(path)),
        _ => io(format!("cannot be opened: {e}")),
    })?;
    if meta.is_dir() {
        return Err(io(directory(path)));
    }
    let file = File::open(path).map_err(|e| io(format!("cannot be opened: {e}")))?;
    let len = meta.is_file().then_some(meta.len());
    Ok((Box::new(BufReader::with_capacity(1 << 18, file)), len))
}

fn not_found(path: &Path) -> String {
    let wanted = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let nearest = list(parent)
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&name, &wanted), name))
        .filter(|(distance, name)| *distance <= 3 && name.len() > *distance)
        .min();
    match nearest {
        Some((_, name)) => format!("there is no such file; did you mean `{name}`?"),
        None => "there is no such file".into(),
    }
}

fn directory(path: &Path) -> String {
    let names: Vec<String> =
        list(path).into_iter().filter(|n| expected_format(Path::new(n)).is_some()).collect();
    let mut text = String::from("is a directory; name a trace file");
    match names.as_slice() {
        [] => text.push_str(" (this directory holds none by name)"),
        [first] => write!(text, " in it, such as `{first}`").expect("writing to a string"),
        [first, ..] => {
            write!(text, " in it, such as `{first}` ({} files look like one)", names.len())
                .expect("writing to a string");
        }
    }
    text
}

/// Names in a directory, sorted; none if it cannot be read.
fn list(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn empty(compression: Option<&'static str>) -> TraceError {
    let what = match compression {
        None => "the file is empty (0 bytes): its writer failed or has not finished; record again"
            .into(),
        Some(name) => format!("the {name} stream holds 0 bytes: its writer failed; record again"),
    };
    TraceError::new(TraceErrorKind::Malformed, Place::Whole, what)
}

/// The format that a name promises, compression endings aside.
fn expected_format(path: &Path) -> Option<&'static Importer> {
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    let name =
        [".gz", ".zst", ".xz"].iter().fold(name.as_str(), |n, e| n.strip_suffix(e).unwrap_or(n));
    IMPORTERS.iter().copied().find(|i| {
        i.extensions.iter().any(|e| name.strip_suffix(e).is_some_and(|n| n.ends_with('.')))
    })
}

fn unknown(path: &Path, compression: Option<&'static str>, head: &[u8]) -> TraceError {
    let shown: String =
        head.iter().take(16).flat_map(|&b| std::ascii::escape_default(b)).map(char::from).collect();
    let mut what = String::new();
    if let Some(importer) = expected_format(path) {
        write!(what, "is named like {} but is not one; ", importer.name)
            .expect("writing to a string");
    }
    let below = compression.map(|c| format!(" (below {c})")).unwrap_or_default();
    write!(what, "the content{below} starts with `{shown}`, which is no known format. Known are:")
        .expect("writing to a string");
    for importer in IMPORTERS {
        write!(what, "\n  {:<14} {}", importer.name, importer.summary)
            .expect("writing to a string");
    }
    what.push_str(
        "\nRecord with torch.cuda.memory._record_memory_history() and _dump_snapshot(), or write a \
         native JSON trace by hand (docs/trace-format.md).",
    );
    TraceError::new(TraceErrorKind::Malformed, Place::Byte(0), what)
}

fn require_device(device: u32, devices: &[DeviceSummary]) -> Result<(), TraceError> {
    if devices.iter().any(|d| d.index == device) {
        return Ok(());
    }
    let present: Vec<String> = devices
        .iter()
        .map(|d| format!("{} ({} entries, {} segments)", d.index, d.entries, d.segments))
        .collect();
    Err(TraceError::new(
        TraceErrorKind::Refused,
        Place::Whole,
        format!("holds no device {device}; it holds {}", present.join(", ")),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn content_is_read_through_every_compression() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"words").unwrap();
        let zstd = zstd::encode_all(&b"words"[..], 1).unwrap();
        for bytes in [b"words".to_vec(), gzip.finish().unwrap(), zstd] {
            fs::write(&path, bytes).unwrap();
            let mut text = String::new();
            content(&path).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "words");
        }
    }
}
