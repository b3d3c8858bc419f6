//! JSON documents of any length, parsed as they come, with the byte where they go wrong.

use super::read_error;
use poolsim_core::TraceError;
use poolsim_core::error::{Place, TraceErrorKind};
use std::cell::Cell;
use std::io::{self, Read};

/// Counts what the parser took; it asks for single bytes.
pub(crate) struct Counted<'a, R> {
    reader: R,
    buffer: Vec<u8>,
    pos: usize,
    end: usize,
    offset: &'a Cell<u64>,
}

impl<'a, R: Read> Counted<'a, R> {
    /// Counts into `offset`.
    pub fn new(reader: R, offset: &'a Cell<u64>) -> Self {
        Counted { reader, buffer: vec![0; 1 << 16], pos: 0, end: 0, offset }
    }
}

impl<R: Read> Read for Counted<'_, R> {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.pos == self.end {
            self.pos = 0;
            self.end = self.reader.read(&mut self.buffer)?;
        }
        let n = into.len().min(self.end - self.pos);
        into[..n].copy_from_slice(&self.buffer[self.pos..self.pos + n]);
        self.pos += n;
        self.offset.set(self.offset.get() + n as u64);
        Ok(n)
    }
}

/// The parser's error as one of a file of which `at` bytes were read; `again` says how to write it anew.
pub(crate) fn json_error(error: serde_json::Error, at: u64, again: &str) -> TraceError {
    use serde_json::error::Category;
    let what = match error.classify() {
        Category::Io => return read_error(&io::Error::from(error), at),
        Category::Eof => format!(
            "the JSON ends here, in the middle: the file was cut short; copy it again, or {again}"
        ),
        Category::Syntax | Category::Data => format!("is no valid JSON ({error}); {again}"),
    };
    TraceError::new(TraceErrorKind::Malformed, Place::Byte(at), what)
}
