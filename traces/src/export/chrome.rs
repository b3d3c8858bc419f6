//! Timelines for Perfetto and chrome://tracing, to be laid beside a profiler's trace.

use super::names::Names;
use crate::open::Source;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::event::Annotation;
use poolsim_core::stack::StackTable;
use poolsim_core::{
    Action, Batch, Bytes, Entry, EventKind, EventSource, Nanos, Recording, TraceError, TraceHeader,
};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Calls of a stack that an event shows.
const SHOWN_CALLS: usize = 8;

/// One after the other, the rows of `traceEvents`.
struct Rows<'o> {
    out: &'o mut dyn Write,
    device: u32,
    first: bool,
    /// Nanoseconds from the file's time 0 to the trace's.
    shift: i128,
}

/// The attribute of a header that says which `baseTimeNanoseconds` to write; without it, the trace's own start.
pub const BASE_ATTRIBUTE: &str = "timeline_base_ns";

fn failed(error: &io::Error) -> TraceError {
    TraceError::new(TraceErrorKind::Io, Place::Whole, format!("cannot be written: {error}"))
}

impl<'o> Rows<'o> {
    /// Times are relative to `baseTimeNanoseconds`, as in the profiler's own traces.
    fn start(out: &'o mut dyn Write, header: &TraceHeader) -> Result<Self, TraceError> {
        let start = i128::from(header.start_unix_us.unwrap_or(0)) * 1000;
        let stated = header.attributes.get(BASE_ATTRIBUTE).and_then(|text| text.parse().ok());
        let base: i128 = stated.unwrap_or(start);
        let memory = header.device_memory.unwrap_or(0);
        let name = header.device_name.as_deref().unwrap_or("GPU");
        let device = json!({ "id": header.device, "name": name, "totalGlobalMem": memory });
        let head = format!(
            "{{\"schemaVersion\":1,\"otherData\":{},\"deviceProperties\":[{device}],\"displayTimeUnit\":\"ns\",\
             \"baseTimeNanoseconds\":{base},\"traceEvents\":[",
            json!({ "writer": "poolsim", "source": header.source }),
        );
        out.write_all(head.as_bytes()).map_err(|e| failed(&e))?;
        let mut rows = Rows { out, device: header.device, first: true, shift: start - base };
        let name = format!("GPU {} memory", header.device);
        rows.put(0, "M", "process_name", &[("args", json!({ "name": name }))])?;
        Ok(rows)
    }

    fn put(
        &mut self,
        at: Nanos,
        phase: &str,
        name: &str,
        fields: &[(&str, Value)],
    ) -> Result<(), TraceError> {
        let comma = if std::mem::take(&mut self.first) { "\n" } else { ",\n" };
        let at = i128::from(at) + self.shift;
        let sign = if at < 0 { "-" } else { "" };
        let (us, ns) = (at.abs() / 1000, at.abs() % 1000);
        let mut row = format!(
            "{comma}{{\"ph\":\"{phase}\",\"name\":{},\"pid\":1,\"tid\":{},\"ts\":{sign}{us}.{ns:03}",
            Value::from(name),
            self.device,
        );
        for (key, value) in fields {
            row.push_str(&format!(",\"{key}\":{value}"));
        }
        row.push('}');
        self.out.write_all(row.as_bytes()).map_err(|e| failed(&e))
    }

    /// A point in time, drawn across its thread.
    fn instant(&mut self, at: Nanos, name: &str, args: Value) -> Result<(), TraceError> {
        self.put(at, "i", name, &[("s", "t".into()), ("args", args)])
    }

    fn counter(&mut self, at: Nanos, args: Value) -> Result<(), TraceError> {
        self.put(at, "C", "memory", &[("args", args)])
    }

    fn spans(&mut self, spans: &[Annotation], end: Nanos) -> Result<(), TraceError> {
        for span in spans {
            let duration = span.end.unwrap_or(end).saturating_sub(span.start);
            let duration: f64 = duration as f64 / 1000.0;
            let fields = [("cat", "user_annotation".into()), ("dur", json!(duration))];
            self.put(span.start, "X", &span.name, &fields)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), TraceError> {
        let end = self.out.write_all(b"\n]}\n").and_then(|()| self.out.flush());
        end.map_err(|e| failed(&e))
    }
}

/// Writes counters of memory over time, every allocation and free as a `[memory]` event like the profiler's, and
/// named spans. Of a recording also what the allocator took from the device and gave back.
///
/// # Errors
/// Those of the source and of `out`.
pub fn write_chrome(source: &Source, out: &mut dyn Write) -> Result<(), TraceError> {
    match source {
        Source::Recording(recording) => write_recording(recording, out),
        _ => super::with_events(source, |events, tables| {
            write_events(events, tables.annotations, out)
        }),
    }
}

fn write_events(
    source: &mut dyn EventSource,
    spans: &[Annotation],
    out: &mut dyn Write,
) -> Result<(), TraceError> {
    let mut names = Names::new(source.header());
    let mut rows = Rows::start(out, source.header())?;
    let mut batch = Batch::default();
    let (mut index, mut live, mut end) = (0, 0 as Bytes, 0);
    while source.fill(&mut batch)? {
        for event in &batch.events {
            let place = Place::Event(index);
            index += 1;
            end = event.at;
            let stream = names.stream(event.stream);
            let (name, bytes) = match event.kind() {
                EventKind::Alloc | EventKind::Preexisting => {
                    live = live.saturating_add(event.size);
                    (names.begin(event), i128::from(event.size))
                }
                EventKind::Free | EventKind::FreeLater => {
                    live = live.saturating_sub(event.size);
                    (names.end(event, place)?, -i128::from(event.size))
                }
                EventKind::AllocRefused => {
                    let args = json!({ "Bytes": event.size, "Stream": stream });
                    rows.instant(event.at, "out of memory", args)?;
                    continue;
                }
                EventKind::FreeDone => continue,
                kind => {
                    rows.instant(event.at, kind.name(), json!({ "Stream": stream }))?;
                    continue;
                }
            };
            let memory = Memory { name, bytes, stream, live, reserved: None };
            rows.memory(event.at, &memory, Value::Null)?;
        }
    }
    rows.spans(spans, end)?;
    rows.finish()
}

/// A `[memory]` event.
struct Memory {
    name: u64,
    bytes: i128,
    stream: u64,
    live: Bytes,
    reserved: Option<Bytes>,
}

impl Rows<'_> {
    fn memory(&mut self, at: Nanos, memory: &Memory, stack: Value) -> Result<(), TraceError> {
        // serde_json has no 128-bit numbers without a feature; sizes that do not fit are none of a real job.
        let bytes = i64::try_from(memory.bytes).unwrap_or(if memory.bytes < 0 {
            i64::MIN
        } else {
            i64::MAX
        });
        let mut args = json!({
            "Device Type": 1,
            "Device Id": self.device,
            "Addr": memory.name,
            "Bytes": bytes,
            "Stream": memory.stream,
            "Total Allocated": memory.live,
        });
        let mut counts = json!({ "allocated": memory.live });
        if let Some(reserved) = memory.reserved {
            args["Total Reserved"] = reserved.into();
            counts["reserved"] = reserved.into();
        }
        if !stack.is_null() {
            args["Stack"] = stack;
        }
        self.instant(at, "[memory]", args)?;
        self.counter(at, counts)
    }
}

fn write_recording(recording: &Recording, out: &mut dyn Write) -> Result<(), TraceError> {
    let mut rows = Rows::start(out, &recording.header)?;
    let mut end = 0;
    let mut gauge = Gauge::at_start(recording);
    for entry in &recording.entries {
        end = entry.at;
        gauge.take(entry);
        let stream = recording.header.streams.get(entry.stream.index()).copied();
        let stream = stream.unwrap_or(u64::from(entry.stream.0));
        let stack = calls(&recording.stacks, entry);
        let size = i128::from(entry.size);
        let bytes = match entry.action {
            Action::Alloc => size,
            Action::FreeRequested => -size,
            Action::FreeCompleted if !recording.header.knows.completions => -size,
            Action::FreeCompleted => continue,
            action => {
                let mut args = json!({ "Addr": entry.addr, "Bytes": entry.size, "Stream": stream });
                if !stack.is_null() {
                    args["Stack"] = stack;
                }
                rows.instant(entry.at, action.name(), args)?;
                rows.counter(
                    entry.at,
                    json!({ "allocated": gauge.allocated(), "reserved": gauge.reserved() }),
                )?;
                continue;
            }
        };
        let (live, reserved) = (gauge.allocated(), Some(gauge.reserved()));
        rows.memory(entry.at, &Memory { name: entry.addr, bytes, stream, live, reserved }, stack)?;
    }
    rows.spans(&recording.annotations, end)?;
    rows.finish()
}

/// The innermost calls of an entry's stack; `null` without one.
fn calls(stacks: &StackTable, entry: &Entry) -> Value {
    let calls: Vec<String> = stacks
        .stack(entry.stack)
        .take(SHOWN_CALLS)
        .map(|f| format!("{} ({}:{})", f.name, f.file, f.line))
        .collect();
    if calls.is_empty() { Value::Null } else { json!(calls) }
}

/// Bytes over the entries of a recording, such that they end at what the final heap holds.
struct Gauge {
    allocated: i128,
    reserved: i128,
    completions: bool,
}

impl Gauge {
    fn at_start(recording: &Recording) -> Gauge {
        let mut net =
            Gauge { allocated: 0, reserved: 0, completions: recording.header.knows.completions };
        recording.entries.iter().for_each(|entry| net.take(entry));
        let blocks = recording.heap.blocks().map(|(_, b)| b);
        let allocated = blocks.filter(|b| b.state == poolsim_core::BlockState::Allocated);
        let requested: i128 = allocated.map(|b| i128::from(b.requested)).sum();
        let reserved: i128 = recording.heap.ranges.iter().map(|(r, _)| i128::from(r.size)).sum();
        Gauge { allocated: requested - net.allocated, reserved: reserved - net.reserved, ..net }
    }

    fn take(&mut self, entry: &Entry) {
        let size = i128::from(entry.size);
        match entry.action {
            Action::Alloc => self.allocated += size,
            Action::FreeRequested => self.allocated -= size,
            Action::FreeCompleted if !self.completions => self.allocated -= size,
            Action::SegmentAlloc | Action::SegmentMap => self.reserved += size,
            Action::SegmentFree | Action::SegmentUnmap => self.reserved -= size,
            _ => {}
        }
    }

    fn allocated(&self) -> Bytes {
        Bytes::try_from(self.allocated.max(0)).unwrap_or(Bytes::MAX)
    }

    fn reserved(&self) -> Bytes {
        Bytes::try_from(self.reserved.max(0)).unwrap_or(Bytes::MAX)
    }
}
