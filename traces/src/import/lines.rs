//! Logs that are lines of text.

use super::read_error;
use poolsim_core::TraceError;
use poolsim_core::error::{Place, TraceErrorKind};
use std::io::{BufRead, Read};

/// Most bytes of a line; the longest that the known loggers write is a tenth of this.
const MAX_LINE: u64 = 64 << 10;

/// The lines of a log, one at a time. A last line without an end was cut while it was written, and is left out.
pub(crate) struct Lines<R> {
    reader: R,
    line: Vec<u8>,
    number: u64,
    offset: u64,
    cut: bool,
}

impl<R: BufRead> Lines<R> {
    pub fn new(reader: R) -> Self {
        Lines { reader, line: Vec::new(), number: 0, offset: 0, cut: false }
    }

    /// The next line, without its end and blanks around it, and its number, counted from 1.
    ///
    /// # Errors
    /// Reading failed, the line is too long, or is no text.
    pub fn next(&mut self) -> Result<Option<(u64, &str)>, TraceError> {
        self.line.clear();
        let read = (&mut self.reader).take(MAX_LINE).read_until(b'\n', &mut self.line);
        let read = read.map_err(|e| read_error(&e, self.offset))? as u64;
        self.offset += read;
        self.number += 1;
        if read == MAX_LINE && self.line.last() != Some(&b'\n') {
            let what = format!("the line is longer than {MAX_LINE} bytes; this is no such log");
            return Err(malformed(self.number, what));
        }
        if self.line.last() != Some(&b'\n') {
            self.cut = read > 0;
            return Ok(None);
        }
        match std::str::from_utf8(&self.line) {
            Ok(text) => Ok(Some((self.number, text.trim()))),
            Err(_) => Err(malformed(self.number, "the line is no text (UTF-8)".into())),
        }
    }

    /// A note if the last line was cut.
    pub fn note(&self) -> Option<String> {
        self.cut.then(|| {
            format!(
                "line {}, the last one, has no line end: it was cut while it was written and is left out",
                self.number
            )
        })
    }
}

/// An error in the form of a line.
pub(crate) fn malformed(line: u64, what: String) -> TraceError {
    TraceError::new(TraceErrorKind::Malformed, Place::Line(line), what)
}

/// An error in what a line says happened.
pub(crate) fn illegal(line: u64, what: String) -> TraceError {
    TraceError::new(TraceErrorKind::Illegal, Place::Line(line), what)
}

/// A field of untrusted text, for a message.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(40).collect::<String>().escape_debug().to_string()
}

/// A whole number: decimal, or hexadecimal after `0x`.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
        None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}
