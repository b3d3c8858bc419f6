//! The HTML page of `torch.cuda._memory_viz` (`trace_plot`, `segment_plot`), which carries its snapshot.
//!
//! The page holds `const local_files = [{"name": "snapshot.pickle", "base64": "..."}]`: the pickle in
//! base64, padded with zero bytes (`_format_viz` in torch/cuda/_memory_viz.py).

use super::assemble::assemble;
use super::fold::Snapshot;
use super::torch_pickle::parsed;
use super::words::WORDS;
use crate::import::{Imported, Importer, Input, read_error};
use crate::open::OpenOptions;
use crate::pickle::Machine;
use poolsim_core::TraceError;
use poolsim_core::error::{Place, TraceErrorKind};
use std::io::{self, BufRead, Read};

/// Pages of `_memory_viz`.
pub static IMPORTER: Importer = Importer {
    name: "torch-html",
    summary: "page of torch.cuda._memory_viz (trace_plot, segment_plot) with its embedded snapshot",
    extensions: &["html", "htm"],
    sniff,
    read: |input: Input, options| read(input.reader, options),
};

const KEY: &[u8] = b"\"base64\"";

/// HTML that names the viewer, or what its pages hold.
fn sniff(head: &[u8]) -> bool {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let starts =
        |tag: &str| text.get(..tag.len()).is_some_and(|t| t.eq_ignore_ascii_case(tag.as_bytes()));
    let has = |needle: &str| memchr::memmem::find(head, needle.as_bytes()).is_some();
    (starts("<!doctype html") || starts("<html"))
        && (has("MemoryViz") || has("local_files") || has("\"elements_info\"") || has("memory_viz"))
}

/// Reads the snapshot that a page carries.
///
/// # Errors
/// Pages without a snapshot; else as [`super::torch_pickle::read`], with offsets in the decoded pickle.
pub fn read(mut reader: impl BufRead, options: &OpenOptions) -> Result<Imported, TraceError> {
    let mut at = 0;
    if !skip_past(&mut reader, KEY, &mut at)? {
        return Err(TraceError::new(
            TraceErrorKind::NoEvents,
            Place::Whole,
            "is a page without a snapshot in it: pages of old versions hold only the finished plot. \
             Read the snapshot file that the page was made from, or write one with \
             torch.cuda.memory._dump_snapshot(FILE)",
        ));
    }
    if !skip_past(&mut reader, b"\"", &mut at)? {
        let what = "the page ends before its snapshot: it was cut short; save it again";
        return Err(TraceError::new(TraceErrorKind::Malformed, Place::Byte(at), what));
    }
    let decoder = Base64 { reader, bits: 0, have: 0, ended: false };
    let loaded = Machine::new(decoder, Snapshot::default(), WORDS).run().map_err(|mut error| {
        error.what = format!("in the page's embedded snapshot: {}", error.what);
        error
    })?;
    let (mut parsed, decoder) = parsed(loaded);
    let mut rest = decoder.reader;
    if skip_past(&mut rest, KEY, &mut at)? {
        parsed.notes.push("the page carries several snapshots; the first one was read".into());
    }
    assemble(parsed, options)
}

/// Reads on until `needle` was passed; false if it is not there. The needle's first byte occurs in it only
/// there and at its end.
fn skip_past(reader: &mut impl BufRead, needle: &[u8], at: &mut u64) -> Result<bool, TraceError> {
    let mut matched = 0;
    loop {
        let bytes = match reader.fill_buf() {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(read_error(&e, *at)),
        };
        if bytes.is_empty() {
            return Ok(false);
        }
        let len = bytes.len();
        let end = bytes.iter().position(|&b| {
            matched = match b == needle[matched] {
                true => matched + 1,
                false => usize::from(b == needle[0]),
            };
            matched == needle.len()
        });
        let used = end.map_or(len, |n| n + 1);
        reader.consume(used);
        *at += used as u64;
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// Decodes base64 up to the closing quote.
struct Base64<R> {
    reader: R,
    bits: u32,
    /// How many of `bits` are not yet given out.
    have: u32,
    ended: bool,
}

impl<R: BufRead> Read for Base64<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < into.len() && !self.ended {
            let bytes = self.reader.fill_buf()?;
            if bytes.is_empty() {
                break;
            }
            let mut used = 0;
            while used < bytes.len() && written < into.len() && !self.ended {
                let byte = bytes[used];
                used += 1;
                let digit = match byte {
                    b'A'..=b'Z' => byte - b'A',
                    b'a'..=b'z' => byte - b'a' + 26,
                    b'0'..=b'9' => byte - b'0' + 52,
                    b'+' => 62,
                    b'/' => 63,
                    b'"' => {
                        self.ended = true;
                        continue;
                    }
                    b'=' | b'\\' | b' ' | b'\r' | b'\n' => continue,
                    other => {
                        return Err(io::Error::new(
                            io::ErrorKind::InvalidData,
                            format!(
                                "the page's snapshot holds the byte {other:#04x}, which is no base64"
                            ),
                        ));
                    }
                };
                self.bits = self.bits << 6 | u32::from(digit);
                self.have += 6;
                if self.have >= 8 {
                    self.have -= 8;
                    into[written] = (self.bits >> self.have) as u8;
                    written += 1;
                }
            }
            self.reader.consume(used);
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &str) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Base64 { reader: text.as_bytes(), bits: 0, have: 0, ended: false }.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn base64_stops_at_the_quote() {
        assert_eq!(decode("aGVsbG8gd29ybGQ=\", \"x\": 1").expect("valid"), b"hello world");
        assert_eq!(decode("\\/+8\"").expect("valid"), [0xff, 0xef]);
        assert!(decode("aGV%").is_err());
    }

    #[test]
    fn the_viewer_pages_are_told_from_other_pages() {
        let page =
            b"\n<!DOCTYPE html>\n<html>\n<script>import \"x/MemoryViz.js\"\nconst local_files";
        assert!(sniff(page));
        assert!(!sniff(b"<!DOCTYPE html><html><body>404</body>"));
    }
}
