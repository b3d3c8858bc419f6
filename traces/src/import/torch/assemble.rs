//! From rows to a recording of one device.

use super::annotations;
use super::entries::{self, Picked};
use super::fold::{ENTRY, SEGMENT, Snapshot};
use super::gaps::history_gaps;
use super::heap;
use super::rows::Rows;
use super::settings::Settings;
use super::words as w;
use crate::import::Imported;
use crate::open::{DeviceSummary, OpenOptions, Source};
use crate::pickle::{Folded, Items, Objects, Value};
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::event::{Knows, PoolInfo};
use poolsim_core::recording::{Action, Recording};
use poolsim_core::stack::StackId;
use poolsim_core::units::{PoolId, StreamId};
use poolsim_core::{Event, TraceError, TraceHeader};
use std::collections::{BTreeMap, BTreeSet};

/// A snapshot as it was read.
pub struct Parsed {
    pub root: Value,
    pub objects: Objects,
    pub snapshot: Snapshot,
    /// Bytes read.
    pub length: u64,
    /// Notes of the container, to be passed on.
    pub notes: Vec<String>,
}

/// The parts of a snapshot's top level.
#[derive(Clone, Copy)]
struct Top {
    segments: Value,
    traces: Value,
    settings: Value,
    annotations: Value,
}

/// Makes the recording of the device that the options ask for, or of the one with most entries.
pub fn assemble(parsed: Parsed, options: &OpenOptions) -> Result<Imported, TraceError> {
    let Parsed { root, objects, snapshot, length, notes } = parsed;
    let top = top_level(root, &objects)?;
    let mut rows = snapshot.rows;
    let devices = devices(&top, &objects, &rows)?;
    let device = pick(&devices, options)?;
    let recording = record(&top, &objects, &mut rows, device, length, notes)?;
    Ok(Imported {
        devices: devices.into_values().collect(),
        source: Source::Recording(Box::new(recording)),
    })
}

fn top_level(root: Value, objects: &Objects) -> Result<Top, TraceError> {
    let mut top = Top {
        segments: Value::EmptyList,
        traces: Value::EmptyList,
        settings: Value::None,
        annotations: Value::EmptyList,
    };
    if let Some(pairs) = objects.pairs(root) {
        let mut known = false;
        for pair in pairs.chunks_exact(2) {
            match pair[0] {
                Value::Text(w::SEGMENTS) => top.segments = pair[1],
                Value::Text(w::DEVICE_TRACES) => top.traces = pair[1],
                Value::Text(w::ALLOCATOR_SETTINGS) => top.settings = pair[1],
                Value::Text(w::EXTERNAL_ANNOTATIONS) => top.annotations = pair[1],
                _ => continue,
            }
            known |= matches!(pair[0], Value::Text(w::SEGMENTS | w::DEVICE_TRACES));
        }
        if known {
            return Ok(top);
        }
        return Err(no_snapshot(&format!("a dict with {}", some_keys(pairs, objects))));
    }
    match objects.items(root) {
        Some(items) if items.len() == 0 || is_row(items.get(0), SEGMENT) => {
            top.segments = root;
            Ok(top)
        }
        Some(items) => Err(no_snapshot(&format!("a list of {} things", items.len()))),
        None => Err(no_snapshot("a single value")),
    }
}

fn no_snapshot(what: &str) -> TraceError {
    TraceError::new(
        TraceErrorKind::Malformed,
        Place::Whole,
        format!(
            "is no PyTorch memory snapshot: its top level is {what}, and should be a dict with \
             `segments` and `device_traces`. Write one with torch.cuda.memory._dump_snapshot(FILE) \
             after torch.cuda.memory._record_memory_history()"
        ),
    )
}

fn some_keys(pairs: &[Value], objects: &Objects) -> String {
    let keys: Vec<String> = pairs
        .chunks_exact(2)
        .filter_map(|p| match p[0] {
            Value::Text(id) => {
                let key: String = objects.texts.get(id).chars().take(40).collect();
                Some(format!("`{}`", key.escape_debug()))
            }
            _ => None,
        })
        .take(5)
        .collect();
    if keys.is_empty() { "no named keys".into() } else { format!("the keys {}", keys.join(", ")) }
}

fn is_row(value: Value, kind: u8) -> bool {
    matches!(value, Value::Folded(f) if f.kind == kind)
}

fn not_a(what: &str, of: &str) -> TraceError {
    TraceError::new(
        TraceErrorKind::Malformed,
        Place::Whole,
        format!("`{what}` is no list of {of}; the snapshot is damaged or of an unknown kind"),
    )
}

fn devices(
    top: &Top,
    objects: &Objects,
    rows: &Rows,
) -> Result<BTreeMap<u32, DeviceSummary>, TraceError> {
    let mut devices = BTreeMap::new();
    let summary = |index| DeviceSummary { index, entries: 0, segments: 0 };
    let traces = objects.items(top.traces).ok_or_else(|| not_a("device_traces", "traces"))?;
    for n in 0..traces.len() {
        let index = u32::try_from(n).unwrap_or(u32::MAX);
        let trace = objects
            .items(traces.get(n))
            .ok_or_else(|| not_a("device_traces", "lists of trace entries"))?;
        devices.entry(index).or_insert_with(|| summary(index)).entries = trace.len() as u64;
    }
    for segment in segments(top, objects)? {
        let index = rows.segments[segment? as usize].device;
        devices.entry(index).or_insert_with(|| summary(index)).segments += 1;
    }
    Ok(devices)
}

/// The rows of the listed segments.
fn segments<'a>(
    top: &Top,
    objects: &'a Objects,
) -> Result<impl Iterator<Item = Result<u32, TraceError>> + use<'a>, TraceError> {
    let items = objects.items(top.segments).ok_or_else(|| not_a("segments", "segments"))?;
    Ok((0..items.len()).map(move |n| match items.get(n) {
        Value::Folded(Folded { kind: SEGMENT, index }) => Ok(index),
        _ => Err(not_a("segments", "segments with address, total_size and blocks")),
    }))
}

fn pick(devices: &BTreeMap<u32, DeviceSummary>, options: &OpenOptions) -> Result<u32, TraceError> {
    if let Some(device) = options.device {
        if devices.contains_key(&device) {
            return Ok(device);
        }
        let there: Vec<String> = devices
            .values()
            .map(|d| format!("{} ({} entries, {} segments)", d.index, d.entries, d.segments))
            .collect();
        let there = if there.is_empty() { "none".into() } else { there.join(", ") };
        return Err(TraceError::new(
            TraceErrorKind::Refused,
            Place::Whole,
            format!("holds no device {device}; it holds {there}"),
        ));
    }
    // The first one wins a tie.
    let best = devices.values().rev().max_by_key(|d| (d.entries, d.segments));
    Ok(best.map_or(0, |d| d.index))
}

fn record(
    top: &Top,
    objects: &Objects,
    rows: &mut Rows,
    device: u32,
    length: u64,
    mut notes: Vec<String>,
) -> Result<Recording, TraceError> {
    let traces = objects.items(top.traces).expect("checked when the devices were listed");
    let trace = match traces.len() > device as usize {
        true => objects.items(traces.get(device as usize)).expect("checked as well"),
        false => Items::Values(&[]),
    };
    let Picked { mut entries, mut pools, origin, .. } = entries::pick(rows, trace, &mut notes)?;
    let times = entries::settle_times(&mut entries, &mut notes)?;
    entries::check_sizes(&entries)?;
    let own: Vec<u32> = segments(top, objects)?
        .filter(|s| !s.as_ref().is_ok_and(|&s| rows.segments[s as usize].device != device))
        .collect::<Result<_, _>>()?;

    let streams = number_streams(&mut entries, &own, rows)?;
    let pool_ids = number_pools(&mut pools, &own, rows)?;
    let heap = heap::build(&own, objects, rows, &streams, &pool_ids, length, &mut notes)?;
    let mut annotations =
        annotations::external(top.annotations, objects, rows, device, &times, &mut notes)?;
    annotations.extend(annotations::labels(&entries, &origin, rows, objects, &mut notes));
    annotations.sort_by_key(|a| a.start);

    let settings = Settings::read(top.settings, objects);
    let mut header = TraceHeader {
        source: if settings.npu { "torch-npu-snapshot" } else { "pytorch-snapshot" }.into(),
        device,
        settings: settings.in_force(&mut notes),
        streams: streams.raw.clone(),
        pools: pool_ids.iter().map(|&id| PoolInfo { id, ..PoolInfo::default() }).collect(),
        start_unix_us: times.first.map(|first| first / 1000),
        attributes: settings.attributes(),
        ..TraceHeader::default()
    };
    if settings.npu {
        notes.push(
            "recorded by torch_npu on an Ascend device, whose allocator descends from PyTorch's; `pytorch` stands in for \
             it"
                .into(),
        );
    }
    if rows.odd_stacks > 0 {
        notes.push(format!("{} stacks are no lists of frames and were dropped", rows.odd_stacks));
    }
    header.notes = notes;
    let mut recording = Recording {
        header,
        entries,
        entry_pools: pools.into_iter().map(|p| PoolId(p as u16)).collect(),
        heap,
        stacks: std::mem::take(&mut rows.stacks),
        annotations,
    };
    recording.header.knows = knows(&recording, rows, times.first.is_some());
    Ok(recording)
}

/// What the snapshot shows of this device, not what the recorder could have shown.
fn knows(recording: &Recording, rows: &Rows, times: bool) -> Knows {
    let has = |action| recording.entries.iter().any(|e| e.action == action);
    let ranges = &recording.heap.ranges;
    let only_default_pool =
        rows.segments_say_pool && !ranges.is_empty() && recording.header.pools.len() == 1;
    let stacks = recording.entries.iter().map(|e| e.stack);
    let heap_stacks = ranges.iter().map(|(r, _)| r.stack);
    let block_stacks = recording.heap.blocks().map(|(_, b)| b.stack);
    Knows {
        completions: has(Action::FreeRequested) || !has(Action::FreeCompleted),
        times: times || recording.entries.is_empty(),
        pools: !recording.entry_pools.is_empty() || only_default_pool,
        stacks: stacks.chain(heap_stacks).chain(block_stacks).any(|s| s != StackId::NONE),
        from_start: history_gaps(recording).starts_empty,
        ..Knows::default()
    }
}

/// Streams of one device.
pub struct Streams {
    /// Raw handles by [`StreamId`], ascending.
    pub raw: Vec<u64>,
}

impl Streams {
    /// The id of a raw handle that is among [`Streams::raw`].
    pub fn id(&self, raw: u64) -> StreamId {
        let n = self.raw.binary_search(&raw).expect("every stream of the device is listed");
        StreamId(n as u16)
    }
}

fn number_streams(
    entries: &mut [poolsim_core::Entry],
    segments: &[u32],
    rows: &Rows,
) -> Result<Streams, TraceError> {
    let mut used = vec![false; rows.streams.values.len()];
    for entry in entries.iter() {
        used[entry.stream.index()] = true;
    }
    let of_entries = rows.streams.values.iter().zip(&used).filter(|(_, used)| **used);
    let raw: BTreeSet<u64> = of_entries
        .map(|(&raw, _)| raw)
        .chain(segments.iter().map(|&s| rows.segments[s as usize].stream))
        .collect();
    if raw.len() >= usize::from(StreamId::FOREIGN.0) {
        return Err(TraceError::new(
            TraceErrorKind::Refused,
            Place::Whole,
            format!("the snapshot names {} streams; no job has that many", raw.len()),
        ));
    }
    let streams = Streams { raw: raw.into_iter().collect() };
    let ids: Vec<StreamId> = rows
        .streams
        .values
        .iter()
        .map(|raw| StreamId(streams.raw.binary_search(raw).unwrap_or(0) as u16))
        .collect();
    for entry in entries {
        entry.stream = ids[entry.stream.index()];
    }
    Ok(streams)
}

/// Pool ids by [`PoolId`], and `pools` numbered by them.
fn number_pools(
    pools: &mut [u32],
    segments: &[u32],
    rows: &Rows,
) -> Result<Vec<(u64, u64)>, TraceError> {
    let of_entries = pools.iter().filter(|&&p| p > 0).map(|&p| rows.pools.values[p as usize - 1]);
    let of_segments =
        segments.iter().map(|&s| rows.pools.values[rows.segments[s as usize].pool as usize]);
    let mut ids: BTreeSet<(u64, u64)> = of_entries.chain(of_segments).collect();
    ids.insert((0, 0));
    let ids: Vec<(u64, u64)> = ids.into_iter().collect();
    if ids.len() > usize::from(Event::MAX_POOL) + 1 {
        return Err(TraceError::new(
            TraceErrorKind::Refused,
            Place::Whole,
            format!(
                "the snapshot names {} memory pools; up to {} are read",
                ids.len(),
                u32::from(Event::MAX_POOL) + 1
            ),
        ));
    }
    for pool in pools {
        let id = match *pool {
            0 => (0, 0),
            p => rows.pools.values[p as usize - 1],
        };
        *pool = pool_number(&ids, id);
    }
    Ok(ids)
}

/// The number of a pool that is among `ids`.
pub fn pool_number(ids: &[(u64, u64)], id: (u64, u64)) -> u32 {
    ids.binary_search(&id).expect("every pool of the device is listed") as u32
}

/// The text of a value that is one.
pub fn text_of(value: Value, objects: &Objects) -> Option<&str> {
    match value {
        Value::Text(id) => Some(objects.texts.get(id)),
        _ => None,
    }
}

/// Whether a value is an entry, and which.
pub fn entry_of(value: Value) -> Option<u32> {
    match value {
        Value::Folded(Folded { kind: ENTRY, index }) => Some(index),
        _ => None,
    }
}
