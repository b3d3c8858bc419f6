//! A snapshot dumped as JSON: `json.dump(torch.cuda.memory._snapshot(), file)`.

use super::assemble::{Parsed, assemble};
use super::fold::Snapshot;
use super::words::WORDS;
use crate::import::json_stream::{Counted, json_error};
use crate::import::{Imported, Importer, Input};
use crate::open::OpenOptions;
use crate::pickle::{Objects, Value};
use poolsim_core::TraceError;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;
use std::io::Read;

/// PyTorch snapshots as JSON.
pub static IMPORTER: Importer = Importer {
    name: "torch-json",
    summary: "PyTorch memory snapshot as JSON, written by json.dump(torch.cuda.memory._snapshot(), FILE)",
    extensions: &["json"],
    sniff,
    read: |input: Input, options| read(input.reader, options),
};

/// What to do about a damaged dump.
const AGAIN: &str = "dump the snapshot again with json.dump";

/// A JSON object whose first key is one of a snapshot's, or that shows one early; or a list of segments.
fn sniff(head: &[u8]) -> bool {
    let has = |needle: &str| memchr::memmem::find(head, needle.as_bytes()).is_some();
    let text = head.trim_ascii_start();
    match text.first() {
        Some(b'{') => {
            let inner = text[1..].trim_ascii_start();
            let first = |key: &str| inner.starts_with(key.as_bytes());
            first("\"segments\"")
                || first("\"device_traces\"")
                || first("\"allocator_settings\"")
                || first("\"external_annotations\"")
                || has("\"device_traces\"") && has("\"segments\"")
        }
        Some(b'[') => has("\"total_size\"") && has("\"blocks\"") && has("\"address\""),
        _ => false,
    }
}

/// Reads the snapshot that a stream holds, in one forward pass.
///
/// # Errors
/// Malformed or cut JSON, with the byte offset; JSON that is no snapshot; a device that is not there.
pub fn read(reader: impl Read, options: &OpenOptions) -> Result<Imported, TraceError> {
    let offset = Cell::new(0);
    let mut builder = Builder {
        objects: Objects::new(WORDS),
        fold: Snapshot::default(),
        scratch: Vec::new(),
        failed: None,
        offset: &offset,
    };
    let counted = Counted::new(reader, &offset);
    let mut json = serde_json::Deserializer::from_reader(counted);
    let root = Node(&mut builder).deserialize(&mut json).and_then(|root| json.end().map(|()| root));
    let root = match (root, builder.failed) {
        (_, Some(error)) => return Err(error),
        (Err(error), None) => return Err(json_error(error, offset.get(), AGAIN)),
        (Ok(root), None) => root,
    };
    let Builder { objects, fold, .. } = builder;
    let parsed = Parsed { root, objects, snapshot: fold, length: offset.get(), notes: Vec::new() };
    assemble(parsed, options)
}

struct Builder<'a> {
    objects: Objects,
    fold: Snapshot,
    /// Values of the containers that are open.
    scratch: Vec<Value>,
    /// The error that serde's own error type cannot carry.
    failed: Option<TraceError>,
    offset: &'a Cell<u64>,
}

impl Builder<'_> {
    /// Keeps the error and stops the parser.
    fn checked<T, E: Error>(&mut self, result: Result<T, TraceError>) -> Result<T, E> {
        result.map_err(|error| {
            self.failed = Some(error);
            E::custom("stopped")
        })
    }
}

/// Reads one JSON value. serde_json bounds the depth.
struct Node<'b, 'a>(&'b mut Builder<'a>);

impl<'de> DeserializeSeed<'de> for Node<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::None)
    }

    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(Value::Int(n))
    }

    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        Ok(i64::try_from(n).map_or(Value::Big(n), Value::Int))
    }

    fn visit_f64<E>(self, f: f64) -> Result<Value, E> {
        Ok(Value::Float(f))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(self.0.objects.texts.intern(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let builder = self.0;
        let Value::List(list) = builder.objects.list() else { unreachable!("a list was made") };
        let start = builder.scratch.len();
        while let Some(item) = seq.next_element_seed(Node(builder))? {
            builder.scratch.push(item);
            // Long lists go into the objects piece by piece, so that rows replace their items.
            if builder.scratch.len() - start == 1024 {
                builder.append(list, start)?;
            }
        }
        builder.append(list, start)?;
        let at = builder.offset.get();
        let settled = builder.objects.settle(Value::List(list), &mut builder.fold, at);
        builder.checked(settled)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let builder = self.0;
        let start = builder.scratch.len();
        while let Some(key) = map.next_key_seed(Node(builder))? {
            builder.scratch.push(key);
            let value = map.next_value_seed(Node(builder))?;
            builder.scratch.push(value);
        }
        let Value::Dict(dict) = builder.objects.dict() else { unreachable!("a dict was made") };
        let at = builder.offset.get();
        let pairs = &mut builder.scratch[start..];
        let inserted = builder.objects.insert(dict, pairs, &mut builder.fold, at);
        builder.checked(inserted)?;
        builder.scratch.truncate(start);
        let settled = builder.objects.settle(Value::Dict(dict), &mut builder.fold, at);
        builder.checked(settled)
    }
}

impl Builder<'_> {
    fn append<E: Error>(&mut self, list: u32, start: usize) -> Result<(), E> {
        let at = self.offset.get();
        let items = &mut self.scratch[start..];
        let extended = self.objects.extend(list, items, &mut self.fold, at);
        self.checked(extended)?;
        self.scratch.truncate(start);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_told_by_their_keys() {
        assert!(sniff(b" {\"segments\": []"));
        assert!(sniff(b"{ \"device_traces\": [[{\"action\""));
        assert!(sniff(b"{\"v\": 1, \"segments\": [], \"device_traces\""));
        assert!(sniff(b"[{\"device\": 0, \"address\": 1, \"total_size\": 2, \"blocks\": []"));
        assert!(!sniff(b"{\"traceEvents\": []"));
        assert!(!sniff(b"{\"format\": \"poolsim\", \"segments\""));
        assert!(!sniff(b"[1, 2]"));
        assert!(!sniff(b""));
    }
}
