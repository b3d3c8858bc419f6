//! Nsight Systems exports (SQLite) with GPU memory events.

use super::gather::{At, Gather};
use super::nsys_phases::{gpu, phases, start_of_session};
use super::pst::storage;
use super::sqlite::{Database, MAGIC, Row, Table};
use super::{Imported, Importer};
use crate::open::{DeviceSummary, OpenOptions, Source};
use crate::storage::Storage;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::event::Knows;
use poolsim_core::{Nanos, Trace, TraceError, TraceHeader};
use std::collections::BTreeMap;

/// The row of [`super::IMPORTERS`].
pub static IMPORTER: Importer = Importer {
    name: "nsys-sqlite",
    summary: "Nsight Systems export (nsys export --type sqlite) of a profile with --cuda-memory-usage=true",
    extensions: &["sqlite", "db"],
    sniff: |head| head.starts_with(MAGIC),
    read: |input, options| read_storage(storage(input, false)?, options),
};

/// The table of allocations and frees.
const EVENTS: &str = "CUDA_GPU_MEMORY_USAGE_EVENTS";

/// `ENUM_CUDA_MEM_KIND`: memory of the device that a program asks for while it runs.
const DEVICE_KIND: u64 = 2;

/// A row of [`EVENTS`].
#[derive(Clone, Copy)]
struct Event {
    at: Nanos,
    index: u64,
    address: u64,
    bytes: u64,
    stream: Option<u64>,
    frees: bool,
}

/// What one process did on one device.
#[derive(Default)]
struct Group {
    events: Vec<Event>,
    other_kinds: u64,
    pooled: u64,
}

/// Reads an export that is held in memory.
///
/// # Errors
/// A damaged file, with the byte offset; an export without memory events; events that contradict each other.
pub fn read(bytes: Vec<u8>, options: &OpenOptions) -> Result<Imported, TraceError> {
    read_storage(Storage::Bytes(bytes), options)
}

fn read_storage(storage: Storage, options: &OpenOptions) -> Result<Imported, TraceError> {
    let database = Database::open(storage)?;
    let tables = database.tables()?;
    let Some(table) = tables.iter().find(|table| table.name == EVENTS) else {
        return Err(TraceError::new(TraceErrorKind::NoEvents, Place::Whole, without(&tables)));
    };
    let mut groups = groups(&database, table)?;
    let wanted = |key: &(u64, u32)| options.device.is_none_or(|device| device == key.1);
    let best = groups.iter().filter(|(key, _)| wanted(key)).rev();
    let best = best.max_by_key(|(_, group)| group.events.len()).map(|(key, _)| *key);
    let mut devices: BTreeMap<u32, u64> = BTreeMap::new();
    for ((_, device), group) in &groups {
        *devices.entry(*device).or_default() += group.events.len() as u64;
    }
    let devices: Vec<DeviceSummary> = devices
        .into_iter()
        .map(|(index, entries)| DeviceSummary { index, entries, segments: 0 })
        .collect();
    let Some(key) = best.filter(|key| !groups[key].events.is_empty()) else {
        if let (Some(device), false) = (options.device, devices.is_empty()) {
            let there: Vec<String> =
                devices.iter().map(|d| format!("{} ({} events)", d.index, d.entries)).collect();
            let what = format!("holds no device {device}; it holds {}", there.join(", "));
            return Err(TraceError::new(TraceErrorKind::Refused, Place::Whole, what));
        }
        let what = format!(
            "holds no allocation of device memory in {EVENTS}, so there is nothing to replay"
        );
        return Err(TraceError::new(TraceErrorKind::NoEvents, Place::Whole, what));
    };
    let processes = groups.keys().filter(|(_, device)| *device == key.1).count();
    let group = groups.remove(&key).expect("it was found there");
    let mut trace = trace(group, key.1)?;
    let first = trace.1;
    let trace_header = &mut trace.0.header;
    if processes > 1 {
        trace_header.notes.push(format!(
            "{processes} processes used this device; this is the one with the most events"
        ));
    }
    (trace_header.device_name, trace_header.device_memory) = gpu(&database, &tables, key.1)?;
    trace_header.start_unix_us =
        start_of_session(&database, &tables)?.map(|ns| (ns + first) / 1000);
    trace.0.annotations = phases(&database, &tables, key.0, first)?;
    Ok(Imported { devices, source: Source::Trace(Box::new(trace.0)) })
}

fn without(tables: &[Table]) -> String {
    let named = |name: &str| tables.iter().any(|table| table.name.starts_with(name));
    if !named("META_DATA_EXPORT") && !named("CUPTI_ACTIVITY") {
        let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).take(5).collect();
        return format!(
            "is an SQLite database, but no Nsight Systems export (its tables: {}); known is what `nsys export --type \
             sqlite` writes",
            super::lines::shown(&names.join(", "))
        );
    }
    format!(
        "is an Nsight Systems export without GPU memory events (no table {EVENTS}): API calls alone do not say which \
         memory a free gives back, so there is nothing to replay. Record with `nsys profile --cuda-memory-usage=true \
         …`, then `nsys export --type sqlite`; or, for a PyTorch job, a memory snapshot \
         (torch.cuda.memory._record_memory_history)"
    )
}

fn groups(database: &Database, table: &Table) -> Result<BTreeMap<(u64, u32), Group>, TraceError> {
    let column = |name: &str| {
        table.column(name).ok_or_else(|| {
            let what = format!(
                "the table {EVENTS} has no column `{name}`; export with a known version of nsys"
            );
            TraceError::new(TraceErrorKind::Malformed, Place::Whole, what)
        })
    };
    let start = column("start")?;
    let (pid, device) = (column("globalPid")?, column("deviceId")?);
    let (address, bytes) = (column("address")?, column("bytes")?);
    let (kind, operation) = (column("memKind")?, column("memoryOperationType")?);
    let stream = table.column("streamId");
    let pool = table.column("localMemoryPoolAddress");
    let mut groups: BTreeMap<(u64, u32), Group> = BTreeMap::new();
    let mut index = 0;
    database.rows(table, &mut |row: Row<'_>| {
        let wrong = |name: &str| {
            let what = format!(
                "`{name}` of a row of {EVENTS} is no number that it can be; export it again"
            );
            TraceError::new(TraceErrorKind::Malformed, Place::Event(index), what)
        };
        let number = |column: super::sqlite::Column, name: &str| {
            column.of(&row).unsigned().ok_or_else(|| wrong(name))
        };
        let device = u32::try_from(number(device, "deviceId")?).map_err(|_| wrong("deviceId"))?;
        let pid = pid.of(&row).int().ok_or_else(|| wrong("globalPid"))? as u64;
        let group = groups.entry((pid, device)).or_default();
        if number(kind, "memKind")? != DEVICE_KIND {
            group.other_kinds += 1;
        } else {
            let in_pool = pool.and_then(|pool| pool.of(&row).int()).is_some_and(|pool| pool != 0);
            group.pooled += u64::from(in_pool);
            group.events.push(Event {
                at: number(start, "start")?,
                index,
                address: address.of(&row).int().ok_or_else(|| wrong("address"))? as u64,
                bytes: number(bytes, "bytes")?,
                stream: stream.and_then(|stream| stream.of(&row).unsigned()),
                frees: number(operation, "memoryOperationType")? == 1,
            });
        }
        index += 1;
        Ok(())
    })?;
    Ok(groups)
}

/// The trace, and the time of its first event.
fn trace(mut group: Group, device: u32) -> Result<(Trace, Nanos), TraceError> {
    group.events.sort_by_key(|event| event.at);
    let mut gather = Gather::default();
    for event in &group.events {
        let (place, stream) = (At::Event(event.index), event.stream.unwrap_or(0));
        let taken = match event.frees {
            false => gather.alloc(place, event.at, event.address, event.bytes, stream),
            true => {
                let size = Some(event.bytes).filter(|bytes| *bytes > 0);
                gather.free(place, event.at, event.address, size, event.stream).map(drop)
            }
        };
        taken.map_err(|what| {
            TraceError::new(TraceErrorKind::Illegal, Place::Event(event.index), what)
        })?;
    }
    let mut header = TraceHeader {
        source: "nsys-sqlite".into(),
        device,
        knows: Knows {
            streams: group.events.iter().any(|event| event.stream.is_some()),
            completions: gather.stream_count() <= 1,
            pools: group.pooled == 0,
            ..Knows::default()
        },
        ..TraceHeader::default()
    };
    header.notes.push(
        "these are calls of the driver (cudaMalloc, cudaMallocAsync), not requests to an allocator above it: of a \
         PyTorch job they are its segments"
            .into(),
    );
    if group.other_kinds > 0 {
        header.notes.push(format!(
            "{} events of pinned, managed and static memory are left out",
            group.other_kinds
        ));
    }
    let first = gather.origin();
    let trace = gather.finish(header);
    trace
        .map(|trace| (trace, first))
        .map_err(|what| TraceError::new(TraceErrorKind::Illegal, Place::Whole, what))
}
