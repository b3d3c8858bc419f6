//! `cuda-async` against logs of a real pool: every pointer and every reserved byte, call by call.

#[path = "cuda_async/mod.rs"]
mod support;

use poolsim_core::{AllocRequest, BlockId, Device, Policy, PoolId, ReplayTarget, Slot, StreamId};
use poolsim_core::{DeviceOp, SyncScope};
use poolsim_sim::SimDevice;
use std::collections::BTreeMap;
use std::path::Path;
use support::{attributes, corpus, h200, pool, shared};

/// How a log was made: its release threshold, and every how many calls the device was synchronised.
struct How {
    threshold: Option<u64>,
    sync_every: Option<usize>,
}

fn how(name: &str) -> How {
    match name {
        name if name.ends_with("-thr0") => How { threshold: Some(0), sync_every: Some(1000) },
        name if name.ends_with("-sync") => How { threshold: None, sync_every: Some(500) },
        _ => How { threshold: None, sync_every: None },
    }
}

struct Row {
    alloc: bool,
    id: u32,
    bytes: u64,
    stream: StreamId,
    pointer: u64,
    reserved: u64,
}

fn rows(path: &Path) -> Vec<Row> {
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let text = String::from_utf8(zstd::decode_all(file).expect("zstd")).expect("text");
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        Row {
            alloc: fields[0] == "alloc",
            id: fields[1].parse().expect("an id"),
            bytes: fields[2].parse().unwrap_or(0),
            stream: StreamId(fields[3].parse().expect("a stream")),
            pointer: u64::from_str_radix(&fields[4][2..], 16).expect("a pointer"),
            reserved: fields[5].parse().expect("bytes"),
        }
    };
    text.lines().skip(1).map(row).collect()
}

/// Replays a log; returns how many pointers and how many reserved bytes were exact, and the device.
fn replay(rows: &[Row], how: &How) -> (usize, usize, SimDevice) {
    let mut dev = h200(None);
    let mut pool = pool(attributes(how.threshold));
    let mut live: BTreeMap<u32, (BlockId, u64)> = BTreeMap::new();
    let (mut pointers, mut reserved) = (0, 0);
    let mut base = None;
    for (i, row) in rows.iter().enumerate() {
        let addr = if row.alloc {
            let (size, slot) = (row.bytes, Slot(row.id));
            let request = AllocRequest { size, stream: row.stream, pool: PoolId::DEFAULT, slot };
            let grant = pool.malloc(&mut dev, request).expect("the device has room");
            live.insert(row.id, (grant.block, grant.addr));
            grant.addr
        } else {
            let (block, addr) = live.remove(&row.id).expect("it was allocated");
            pool.free_on(&mut dev, block, row.stream);
            addr
        };
        let (ours, real) = *base.get_or_insert((addr, row.pointer));
        pointers += usize::from(addr - ours == row.pointer - real);
        reserved += usize::from(pool.stats().reserved.current == row.reserved);
        assert_eq!(dev.used_bytes(), pool.stats().reserved.current);
        if how.sync_every.is_some_and(|n| (i + 1).is_multiple_of(n)) {
            dev.synchronize(SyncScope::Device).unwrap();
            pool.synchronized(&mut dev, None);
        }
    }
    (pointers, reserved, dev)
}

fn exact(path: &Path) {
    let name = path.file_name().unwrap().to_str().unwrap().trim_end_matches(".csv.zst");
    let rows = rows(path);
    let (pointers, reserved, dev) = replay(&rows, &how(name));
    println!("{name}: {pointers} pointers and {reserved} reserved of {} calls exact", rows.len());
    assert_eq!((pointers, reserved), (rows.len(), rows.len()), "{name} is not exact");
    let calls = |op: DeviceOp| dev.ledger().calls[op as usize];
    assert_eq!(calls(DeviceOp::PoolMalloc) + calls(DeviceOp::PoolFree), rows.len() as u64);
    let pages = calls(DeviceOp::PoolGrow) - calls(DeviceOp::PoolShrink);
    assert_eq!(pages << 25, dev.used_bytes());
    assert_eq!(calls(DeviceOp::Create) + calls(DeviceOp::Map) + calls(DeviceOp::Record), 0);
}

#[test]
fn the_committed_log_is_reproduced() {
    exact(&corpus().join("unet_multires.csv.zst"));
}

#[test]
fn every_recorded_log_is_reproduced() {
    let Some(dir) = shared("traces/cuda-async") else { return };
    let mut logs = 0;
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.to_string_lossy().ends_with(".csv.zst") {
            exact(&path);
            logs += 1;
        }
    }
    assert!(logs > 0, "the folder has no logs");
}
