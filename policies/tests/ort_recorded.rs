//! Does `ort-arena` return the pointers that ONNX Runtime's arena returned, and hold and refuse what it did?
//! `scripts/record-ort-arena.py` made the recordings, of the arena that serves the host.

mod logs;

use logs::{build, corpus, device, request, text};
use poolsim_core::{
    AllocError, Backing, BlockId, Bytes, DevAddr, Device, DeviceError, DriverAnswer, OomCause,
    Range, StreamId,
};
use poolsim_sim::SimDevice;
use std::collections::BTreeMap;

/// What one row says: an operation, its allocation's number, bytes and pointer, and the bytes held after it.
struct Row {
    op: String,
    id: u32,
    bytes: Bytes,
    pointer: DevAddr,
    held: Bytes,
}

struct Log {
    spec: String,
    rows: Vec<Row>,
    stats: Vec<(String, i64)>,
}

fn read(text: &str) -> Log {
    let lines: Vec<&str> = text.lines().collect();
    let [head, _, rows @ .., tail] = &lines[..] else { panic!("a head, rows and statistics") };
    let (_, spec) = head.split_once("; ").expect("the settings");
    let number = |text: &str| text.parse().unwrap_or(0);
    let row = |line: &&str| {
        let f: Vec<&str> = line.split(',').collect();
        Row {
            op: f[0].into(),
            id: number(f[1]) as u32,
            bytes: number(f[2]),
            pointer: u64::from_str_radix(f[3].trim_start_matches("0x"), 16).unwrap_or(0),
            held: f[4].parse().expect("the bytes held"),
        }
    };
    let stat = |text: &str| {
        let (key, value) = text.split_once(':').expect("a statistic");
        (key.into(), value.parse().expect("a number"))
    };
    Log {
        spec: spec.into(),
        rows: rows.iter().map(row).collect(),
        stats: tail.trim_start_matches("# ").split(',').map(stat).collect(),
    }
}

/// A device that has regions of at most the size that malloc gave in this row.
struct Granting {
    inner: SimDevice,
    most: Bytes,
}

impl Device for Granting {
    poolsim_sim::delegate_device!(inner: caps now cost free_bytes release create destroy map unmap populate depopulate record poll
        wait synchronize idle set_metered charge note);

    fn reserve(&mut self, size: Bytes, backing: Backing) -> Result<Range, DeviceError> {
        if size > self.most {
            return Err(DeviceError::OutOfMemory { asked: size, free: self.most });
        }
        self.inner.reserve(size, backing)
    }
}

/// Replays a recording; panics at the first row that comes out differently.
fn replay(name: &str, log: &Log) {
    let mut answers = Vec::new();
    let mut before = 0;
    for row in &log.rows {
        // A new region serves the request for which it was taken, at its start.
        if row.op == "alloc" && row.held > before {
            answers.push(DriverAnswer::Range { addr: row.pointer, size: row.held - before });
        }
        before = row.held;
    }
    let spec = format!("ort-arena,enable_memory_arena_shrinkage:True,{}", log.spec);
    let mut policy = build(spec.trim_end_matches(',')).policy;
    let mut dev = Granting { inner: device(answers), most: 0 };
    let mut blocks: BTreeMap<u32, BlockId> = BTreeMap::new();
    before = 0;
    for (at, row) in log.rows.iter().enumerate() {
        let place = format!("{name}, row {at}: {} {} of {} bytes", row.op, row.id, row.bytes);
        dev.most = row.held.saturating_sub(before);
        before = row.held;
        match row.op.as_str() {
            "free" => {
                policy.free(&mut dev, blocks.remove(&row.id).expect("it is live"));
                // The host's arena knows no streams: what is freed is anybody's at once.
                policy.synchronized(&mut dev, Some(StreamId(0)));
            }
            "shrink" => policy.synchronized(&mut dev, None),
            op => match policy.malloc(&mut dev, request(row.bytes, 0, row.id)) {
                Ok(grant) => {
                    assert_eq!((op, grant.addr), ("alloc", row.pointer), "{place}");
                    blocks.insert(row.id, grant.block);
                }
                Err(AllocError::OutOfMemory { cause, .. }) => {
                    let cause = if cause == OomCause::Limit { "limit" } else { "full" };
                    assert_eq!(cause, op, "{place}");
                }
                Err(error) => panic!("{place}: {error}"),
            },
        }
        assert!(dev.inner.divergence().is_none(), "{place}: {:?}", dev.inner.divergence());
        assert_eq!(policy.stats().reserved.current, row.held, "{place}");
    }
    let theirs: BTreeMap<_, _> = log.stats.iter().cloned().collect();
    for (key, value) in policy.native_stats() {
        assert_eq!(theirs.get(&key), Some(&value), "{name}: {key}");
    }
}

#[test]
fn every_pointer_total_and_refusal_is_as_recorded() {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for path in corpus("ort", ".csv.gz") {
        let (name, log) = (path.display().to_string(), read(&text(&path)));
        replay(&name, &log);
        log.rows.iter().for_each(|row| *seen.entry(row.op.clone()).or_default() += 1);
    }
    println!("as recorded: {seen:?}");
    let all = ["alloc", "free", "full", "limit", "shrink"];
    assert_eq!(seen.keys().map(String::as_str).collect::<Vec<_>>(), all);
}
