//! Writing the native JSON formats.

use crate::tables::Tables;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::event::{Knows, PoolInfo};
use poolsim_core::stack::{StackId, StackTable};
use poolsim_core::{Batch, Bytes, Event, EventKind, EventSource, Nanos, PoolId, StreamId};
use poolsim_core::{TraceError, TraceHeader};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Writes a trace as one JSON document. Ids are the slots, so that reading it gives the same events.
///
/// # Errors
/// Those of the source and of `out`.
pub fn write_json(
    out: &mut dyn Write,
    source: &mut dyn EventSource,
    tables: &Tables<'_>,
) -> Result<(), TraceError> {
    let mut text = String::from("{\n");
    for (name, value) in fields(source.header()).into_iter().chain(table_fields(tables)) {
        text.push_str(&format!("  {}: {value},\n", Value::from(name)));
    }
    put(out, &format!("{text}  \"events\": ["))?;
    let mut before = "\n    ";
    write_events(source, |row| {
        let row = format!("{before}{row}");
        before = ",\n    ";
        put(out, &row)
    })?;
    put(out, "\n  ]\n}\n")?;
    out.flush().map_err(|e| failed(&e))
}

/// Writes a trace as JSON lines.
///
/// # Errors
/// Those of the source and of `out`.
pub fn write_jsonl(
    out: &mut dyn Write,
    source: &mut dyn EventSource,
    tables: &Tables<'_>,
) -> Result<(), TraceError> {
    let header: Vec<String> = fields(source.header())
        .into_iter()
        .map(|(name, value)| format!("{}:{value}", Value::from(name)))
        .collect();
    put(out, &format!("{{{}}}\n", header.join(",")))?;
    for (name, value) in table_fields(tables) {
        put(out, &format!("{}\n", json!({ name: value })))?;
    }
    write_events(source, |row| put(out, &format!("{row}\n")))?;
    out.flush().map_err(|e| failed(&e))
}

fn put(out: &mut dyn Write, text: &str) -> Result<(), TraceError> {
    out.write_all(text.as_bytes()).map_err(|e| failed(&e))
}

fn failed(error: &io::Error) -> TraceError {
    TraceError::new(TraceErrorKind::Io, Place::Whole, format!("cannot be written: {error}"))
}

/// The header's fields in the order of the schema, without those that have nothing to say.
fn fields(header: &TraceHeader) -> Vec<(String, Value)> {
    let mut fields: Vec<(String, Value)> = vec![("poolsim_trace".into(), super::VERSION.into())];
    let mut put = |name: &str, value: Value| {
        let empty = match &value {
            Value::Null => true,
            Value::Array(rows) => rows.is_empty(),
            Value::Object(rows) => rows.is_empty() && name != "knows",
            _ => false,
        };
        if !empty {
            fields.push((name.into(), value));
        }
    };
    put("source", header.source.clone().into());
    put("device", header.device.into());
    put("device_name", json!(header.device_name));
    put("device_memory", json!(header.device_memory));
    put("memory_fraction", json!(header.memory_fraction));
    put("settings", json!(header.settings));
    put("framework", json!(header.framework));
    put("streams", json!(header.streams));
    put("pools", header.pools.iter().map(pool).collect());
    put("start_unix_us", json!(header.start_unix_us));
    put("knows", knows(header.knows));
    put("notes", json!(header.notes));
    put("attributes", json!(header.attributes));
    put("ids", "slots".into());
    fields
}

fn pool(info: &PoolInfo) -> Value {
    let mut row = Map::from_iter([("id".to_string(), json!(info.id))]);
    for (name, set) in [("no_split", info.flags.no_split), ("use_on_oom", info.flags.use_on_oom)] {
        if set {
            row.insert(name.into(), true.into());
        }
    }
    row.into()
}

/// What is known otherwise than by default; `{}` still says that nothing is to be inferred.
fn knows(knows: Knows) -> Value {
    let object = |k: Knows| match serde_json::to_value(k) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("Knows is a struct of booleans"),
    };
    let defaults = object(Knows::default());
    let mut fields = object(knows);
    fields.retain(|name, value| defaults.get(name) != Some(value));
    fields.into()
}

fn table_fields(tables: &Tables<'_>) -> Vec<(String, Value)> {
    let mut fields = Vec::new();
    if let Some(stacks) = tables.stacks.filter(|stacks| !stacks.is_empty()) {
        fields.push(("frames".into(), frames(stacks)));
        let count = stacks.stack_count() as u32;
        let rows = (1..count).map(|id| json!(stacks.frame_numbers(StackId(id))));
        fields.push(("stacks".into(), rows.collect()));
    }
    if !tables.annotations.is_empty() {
        fields.push(("annotations".into(), json!(tables.annotations)));
    }
    if let Some(heap) = tables.initial_heap {
        fields.push(("initial_heap".into(), json!(heap)));
    }
    fields
}

fn frames(stacks: &StackTable) -> Value {
    stacks.frames().iter().map(|f| json!([f.name, f.file, f.line])).collect()
}

fn write_events(
    source: &mut dyn EventSource,
    mut row: impl FnMut(&str) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut batch = Batch::default();
    let mut rows = Rows::default();
    while source.fill(&mut batch)? {
        for (i, event) in batch.events.iter().enumerate() {
            let stack = batch.stacks.get(i).copied().unwrap_or(StackId::NONE);
            row(&rows.row(event, stack))?;
        }
    }
    Ok(())
}

/// Knows what a reader will take for granted, so that it can be left out.
#[derive(Default)]
struct Rows {
    at: Nanos,
    live: FxHashMap<u32, (Bytes, StreamId, PoolId)>,
}

impl Rows {
    fn row(&mut self, event: &Event, stack: StackId) -> String {
        use EventKind::*;
        let kind = event.kind();
        let (slot, stream, pool) = (event.slot.0, event.stream, event.pool());
        let frees = matches!(kind, Free | FreeLater | FreeDone);
        let granted = if frees { self.live.get(&slot).copied() } else { None };
        let (size, on, of) = granted.unwrap_or_default();
        if kind.makes_live() {
            self.live.insert(slot, (event.size, stream, pool));
        }
        let subject = match kind {
            EmptyCache | SyncDevice => "true".into(),
            PoolOpen | PoolClose | PoolDrop | PoolDestroy => pool.to_string(),
            SyncStream => stream_text(stream),
            _ => slot.to_string(),
        };
        let mut row = format!("{{\"{}\":{subject}", kind.name());
        let asks = kind.makes_live() || kind == AllocRefused;
        if asks || event.size != size {
            row.push_str(&format!(",\"size\":{}", event.size));
        }
        if kind != SyncStream && (kind == Use || stream != on) {
            row.push_str(&format!(",\"stream\":{}", stream_text(stream)));
        }
        if subject_is_slot(kind) && pool != of {
            row.push_str(&format!(",\"pool\":{pool}"));
        }
        if event.at != self.at {
            row.push_str(&format!(",\"t\":{}", event.at));
            self.at = event.at;
        }
        if stack != StackId::NONE {
            row.push_str(&format!(",\"stack\":{}", stack.0));
        }
        row.push('}');
        row
    }
}

fn subject_is_slot(kind: EventKind) -> bool {
    use EventKind::*;
    matches!(kind, Alloc | AllocRefused | Free | FreeLater | FreeDone | Use | Preexisting)
}

fn stream_text(stream: StreamId) -> String {
    if stream == StreamId::FOREIGN { "\"foreign\"".into() } else { stream.to_string() }
}
