//! JSON lines of the native schema. See [`crate::native`].

use super::{Imported, Importer, Input, top_level_keys};
use crate::native::{is_event_kind, read_jsonl};
use crate::open::OpenOptions;
use poolsim_core::TraceError;

/// The row of [`super::IMPORTERS`].
pub static IMPORTER: Importer = Importer {
    name: "native-jsonl",
    summary: "the same as JSON lines, an event a line: {\"alloc\": \"a\", \"size\": \"2MiB\"}",
    extensions: &["jsonl", "ndjson"],
    sniff,
    read,
};

/// The first line is a whole object: an event, or a header without events.
fn sniff(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or(head).trim_ascii_end();
    if line.last() != Some(&b'}') {
        return false;
    }
    let keys = top_level_keys(line).unwrap_or_default();
    let has = |name: &str| keys.iter().any(|key| key == name);
    keys.iter().any(|key| is_event_kind(key)) || (has("poolsim_trace") && !has("events"))
}

fn read(input: Input, _: &OpenOptions) -> Result<Imported, TraceError> {
    read_jsonl(input.reader).map(Imported::of_trace)
}
