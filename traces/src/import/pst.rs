//! `.pst`, the format of [`crate::format`].

use super::{Imported, Importer, Input, read_error};
use crate::format::MAGIC;
use crate::open::{DeviceSummary, OpenOptions, Source};
use crate::reader::PstReader;
use crate::storage::Storage;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{EventSource, TraceError};
use std::fs::File;
use std::io::{self, BufRead, Write};

/// The row of [`super::IMPORTERS`].
pub static IMPORTER: Importer = Importer {
    name: "pst",
    summary: "poolsim's compact streaming format, written by `poolsim convert`",
    extensions: &["pst"],
    sniff,
    read,
};

fn sniff(head: &[u8]) -> bool {
    head.starts_with(&MAGIC[..4])
}

fn read(input: Input, options: &OpenOptions) -> Result<Imported, TraceError> {
    let path = Some(input.path.clone());
    let storage = storage(input, options.recover)?;
    let reader = match options.recover {
        true => PstReader::recover_storage(storage, path)?,
        false => PstReader::from_storage(storage, path)?,
    };
    let device = DeviceSummary {
        index: reader.header().device,
        entries: reader.trailer().events,
        segments: 0,
    };
    Ok(Imported { devices: vec![device], source: Source::Pst(reader) })
}

/// The content, to be read at any place. A pipe and a compressed file cannot seek; their content goes through a
/// file without a name. With `recover`, damaged compression ends the content instead of failing.
pub(super) fn storage(input: Input, recover: bool) -> Result<Storage, TraceError> {
    if input.compression.is_none() && input.len_hint.is_some() {
        let file = File::open(&input.path).map_err(|e| read_error(&e, 0))?;
        return Storage::of_file(file).map_err(|e| read_error(&e, 0));
    }
    spool(input.reader, recover)
}

fn spool(mut reader: impl BufRead, recover: bool) -> Result<Storage, TraceError> {
    let failed = |e: &io::Error| {
        let what = format!("cannot be unpacked into a temporary file: {e}");
        TraceError::new(TraceErrorKind::Io, Place::Whole, what)
    };
    let mut file = tempfile::tempfile().map_err(|e| failed(&e))?;
    let mut copied = 0;
    loop {
        let length = match reader.fill_buf() {
            Ok([]) => break,
            Ok(bytes) => {
                file.write_all(bytes).map_err(|e| failed(&e))?;
                bytes.len()
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if recover && e.kind() == io::ErrorKind::InvalidData => break,
            Err(e) => return Err(read_error(&e, copied)),
        };
        copied += length as u64;
        reader.consume(length);
    }
    Storage::of_file(file).map_err(|e| failed(&e))
}
