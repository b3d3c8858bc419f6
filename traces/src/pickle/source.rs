//! A byte stream with offsets.

use crate::import::read_error;
use poolsim_core::TraceError;
use poolsim_core::error::{Place, TraceErrorKind};
use std::io::Read;

/// Twice that of the file's own buffer, which a read past half of this one goes around.
const BUFFER: usize = 512 << 10;

/// Bytes of a stream, in order, with the offset of the next one.
pub struct Source<R> {
    reader: R,
    buffer: Box<[u8]>,
    pos: usize,
    end: usize,
    /// Offset of `buffer[0]` in the stream.
    base: u64,
    /// Holds what is longer than the buffer.
    long: Vec<u8>,
}

impl<R: Read> Source<R> {
    pub fn new(reader: R) -> Self {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Source { reader, buffer, pos: 0, end: 0, base: 0, long: Vec::new() }
    }

    /// Offset of the next byte.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.base + self.pos as u64
    }

    /// The reader, of which more may have been taken than was read from here.
    pub fn into_reader(self) -> R {
        self.reader
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, TraceError> {
        if self.pos == self.end {
            self.need(1)?;
        }
        let byte = self.buffer[self.pos];
        self.pos += 1;
        Ok(byte)
    }

    /// Whether the next byte is at hand and is this one.
    #[inline]
    pub fn next_is(&self, byte: u8) -> bool {
        self.pos < self.end && self.buffer[self.pos] == byte
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], TraceError> {
        if self.end - self.pos < N {
            self.need(N)?;
        }
        let mut array = [0; N];
        array.copy_from_slice(&self.buffer[self.pos..self.pos + N]);
        self.pos += N;
        Ok(array)
    }

    /// The next `n` bytes. Memory is taken only for bytes that are there, whatever `n` claims.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&[u8], TraceError> {
        if n > self.end - self.pos {
            if n > self.buffer.len() {
                return self.long_bytes(n);
            }
            self.need(n)?;
        }
        let start = self.pos;
        self.pos += n;
        Ok(&self.buffer[start..start + n])
    }

    fn long_bytes(&mut self, n: usize) -> Result<&[u8], TraceError> {
        self.long.clear();
        while self.long.len() < n {
            if self.pos == self.end {
                self.need(1)?;
            }
            let take = (n - self.long.len()).min(self.end - self.pos);
            self.long.extend_from_slice(&self.buffer[self.pos..self.pos + take]);
            self.pos += take;
        }
        Ok(&self.long)
    }

    /// Passes over `n` bytes.
    pub fn skip(&mut self, mut n: u64) -> Result<(), TraceError> {
        while n > 0 {
            if self.pos == self.end {
                self.need(1)?;
            }
            let take = n.min((self.end - self.pos) as u64);
            self.pos += take as usize;
            n -= take;
        }
        Ok(())
    }

    /// The bytes up to the next newline, which is passed over. `Ok(None)` if it is not within the buffer.
    pub fn line(&mut self) -> Result<Option<&[u8]>, TraceError> {
        let mut known = 0;
        loop {
            let rest = &self.buffer[self.pos..self.end];
            if let Some(at) = memchr::memchr(b'\n', &rest[known..]) {
                let start = self.pos;
                let len = known + at;
                self.pos += len + 1;
                return Ok(Some(&self.buffer[start..start + len]));
            }
            known = rest.len();
            if known == self.buffer.len() {
                return Ok(None);
            }
            self.need(known + 1)?;
        }
    }

    /// Fills the buffer until it holds the next `n` bytes; `n` is at most its length.
    #[cold]
    fn need(&mut self, n: usize) -> Result<(), TraceError> {
        self.buffer.copy_within(self.pos..self.end, 0);
        self.base += self.pos as u64;
        self.end -= self.pos;
        self.pos = 0;
        while self.end < n {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(self.cut_short()),
                Ok(got) => self.end += got,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(read_error(&e, self.base + self.end as u64)),
            }
        }
        Ok(())
    }

    fn cut_short(&self) -> TraceError {
        TraceError::new(
            TraceErrorKind::Malformed,
            Place::Byte(self.base + self.end as u64),
            "the file ends here, in the middle of the pickle: it was cut short; copy it again, or \
             record again",
        )
    }
}
