//! Bytes that many readers can read at once, each at its own place.

use crate::import::read_error;
use poolsim_core::TraceError;
use std::fs::File;
use std::io;

/// A file or a buffer.
pub(crate) enum Storage {
    /// Read with positioned reads, which leave no shared cursor behind.
    File(File, u64),
    Bytes(Vec<u8>),
}

impl Storage {
    pub fn of_file(file: File) -> io::Result<Storage> {
        let len = file.metadata()?.len();
        Ok(Storage::File(file, len))
    }

    pub fn len(&self) -> u64 {
        match self {
            Storage::File(_, len) => *len,
            Storage::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Replaces `out` by `[at, at + len)`, which the caller has checked against [`Storage::len`].
    pub fn read(&self, at: u64, len: usize, out: &mut Vec<u8>) -> Result<(), TraceError> {
        out.clear();
        match self {
            Storage::File(file, _) => {
                out.resize(len, 0);
                read_exact_at(file, out, at).map_err(|e| read_error(&e, at))
            }
            Storage::Bytes(bytes) => {
                let at = at as usize;
                out.extend_from_slice(&bytes[at..at + len]);
                Ok(())
            }
        }
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut out: &mut [u8], mut at: u64) -> io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                out = &mut out[n..];
                at += n as u64;
            }
        }
    }
    Ok(())
}
