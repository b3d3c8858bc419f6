//! A hundred million events: written and read in little memory.

use poolsim_core::{Batch, Event, EventKind, EventSource, PoolId, Slot, StreamId, TraceHeader};
use poolsim_traces::{PstReader, PstWriter, Tables};
use std::io::BufWriter;
use std::time::Instant;

const EVENTS: u64 = 100_000_000;
const LIVE: u64 = 5_000;

/// Allocations and frees in turn over a few thousand live blocks, sizes from a small generator.
fn event(i: u64) -> Event {
    let turn = i / 2;
    let (slot, made) = ((turn % LIVE) as u32, turn / LIVE);
    let size_of = |made: u64| 512 * (1 + (made * 7 + u64::from(slot)) % 97);
    let (kind, size) = match (i % 2, made) {
        (0, 0) => (EventKind::Alloc, size_of(0)),
        (1, 0) => (EventKind::SyncDevice, 0),
        (0, _) => (EventKind::Free, size_of(made - 1)),
        _ => (EventKind::Alloc, size_of(made)),
    };
    let slot = if kind == EventKind::SyncDevice { 0 } else { slot };
    Event::new(kind, i * 1700, Slot(slot), size, StreamId(0), PoolId(0))
}

/// Highest resident memory of this process so far, in bytes; 0 where the system does not say.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

#[test]
#[ignore = "takes a minute: cargo test --release -p poolsim-traces --test scale -- --ignored --nocapture"]
fn a_hundred_million_events_fit_in_little_memory() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let started = Instant::now();
    let mut writer =
        PstWriter::new(BufWriter::new(file.as_file()), &TraceHeader::default()).unwrap();
    let mut events = Vec::new();
    for start in (0..EVENTS).step_by(4000) {
        events.clear();
        events.extend((start..EVENTS.min(start + 4000)).map(event));
        writer.write(&events, &[]).unwrap();
    }
    writer.finish(&Tables::default()).unwrap();
    let per_event = |t: Instant| t.elapsed().as_nanos() as f64 / EVENTS as f64;
    println!("write {:.1} ns/event", per_event(started));

    let started = Instant::now();
    let mut reader = PstReader::open(file.path()).unwrap();
    let mut batch = Batch::default();
    let mut count = 0;
    while reader.fill(&mut batch).unwrap() {
        count += batch.events.len() as u64;
    }
    println!(
        "read {:.1} ns/event, {} bytes",
        per_event(started),
        file.path().metadata().unwrap().len()
    );
    println!("peak memory {} MiB", peak_memory() >> 20);
    assert_eq!(count, EVENTS);
    assert!(peak_memory() < 64 << 20);
    reader.seek(EVENTS - 1).unwrap();
    reader.fill(&mut batch).unwrap();
    assert_eq!(batch.events, [event(EVENTS - 1)]);
}
