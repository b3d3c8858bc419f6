//! A hundred million events: replayed by the program in little memory.

mod common;

use poolsim_core::{Event, EventKind, PoolId, Slot, StreamId, TraceHeader};
use poolsim_traces::{PstWriter, Tables};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ITERATIONS: u64 = 25_000;
const BLOCKS: u64 = 2_000;

/// Every iteration asks for the same few thousand blocks in other sizes, and frees them in another order.
fn write_trace(path: &Path) -> u64 {
    let out = BufWriter::new(File::create(path).unwrap());
    let mut writer = PstWriter::new(out, &TraceHeader::default()).unwrap();
    let mut at = 0;
    let mut event = |kind, slot: u64, iteration: u64| {
        at += 1_700;
        let size = 512 * (1 + (slot * 7 + iteration * 13) % 9_973);
        Event::new(kind, at, Slot(slot as u32), size, StreamId(0), PoolId(0))
    };
    let mut events = Vec::new();
    for iteration in 0..ITERATIONS {
        events.clear();
        events.extend((0..BLOCKS).map(|slot| event(EventKind::Alloc, slot, iteration)));
        events.extend(
            (0..BLOCKS)
                .map(|n| event(EventKind::Free, (n * 1_237 + iteration) % BLOCKS, iteration)),
        );
        writer.write(&events, &[]).unwrap();
    }
    writer.finish(&Tables::default()).unwrap();
    2 * ITERATIONS * BLOCKS
}

/// Highest resident memory that a running process has had so far, in bytes, if the system says.
fn peak_memory(child: &Child) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
}

/// Waits for a process and says how much memory it had at most.
fn watched(child: &mut Child) -> u64 {
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = peak_memory(child).unwrap_or(0).max(peak);
        std::thread::sleep(Duration::from_millis(20));
    }
    peak
}

#[test]
#[ignore = "takes a minute: cargo test --release -p poolsim --test scale -- --ignored --nocapture"]
fn a_hundred_million_events_replay_in_under_200_mib() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.pst");
    let events = write_trace(&path);
    let bytes = path.metadata().unwrap().len();
    println!("{events} events, {:.2} bytes each", bytes as f64 / events as f64);

    let started = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_poolsim"))
        .args(["replay", path.to_str().unwrap(), "--policy", "pytorch", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let peak = watched(&mut child);
    println!("{:.1} s, peak memory {} MiB", started.elapsed().as_secs_f64(), peak >> 20);
    let document: serde_json::Value = serde_json::from_reader(child.stdout.unwrap()).unwrap();
    assert_eq!(document["runs"][0]["metrics"]["events"], events);
    assert!(peak < 200 << 20);
}

#[test]
#[ignore = "takes minutes: cargo test --release -p poolsim --test scale -- --ignored --nocapture"]
fn a_hundred_million_events_make_a_page_in_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.pst");
    let events = write_trace(&path);
    let page = folder.path().join("report.html");
    let started = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_poolsim"))
        .args(["replay", path.to_str().unwrap(), "--policy", "pytorch", "--policy", "expandable"])
        .args(["-o", page.to_str().unwrap()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let peak = watched(&mut child);
    let seconds = started.elapsed().as_secs_f64();
    let bytes = page.metadata().unwrap().len();
    println!("{events} events: {seconds:.1} s, peak memory {} MiB, page {bytes} bytes", peak >> 20);
    assert!(child.wait().unwrap().success());
    assert!(bytes < 8_000_000);
    assert!(peak < 600 << 20);
}
