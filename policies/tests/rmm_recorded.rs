//! Do the policies named `rmm-…` return the pointers that RMM returned, and hold what it held?

mod logs;

use logs::{at, build, device, recordings, request, text};
use poolsim_core::{BlockId, Bytes, DevAddr, DriverAnswer, Policy, ReplayTarget};
use std::collections::BTreeMap;
use std::path::Path;

/// One call of a recording.
#[derive(Clone, Copy, Debug)]
enum Call {
    Alloc { id: u32, bytes: Bytes, stream: u16, pointer: DevAddr },
    Free { id: u32 },
}

/// A call, and what was held from the upstream after it, where the log says that.
type Row = (Call, Option<Bytes>);

fn hex(text: &str) -> DevAddr {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a pointer")
}

/// `op,id,bytes,stream,pointer,upstream_bytes_after`.
fn rows(text: &str) -> Vec<Row> {
    let row = |line: &str| {
        let f: Vec<&str> = line.split(',').collect();
        let id = f[1].parse().expect("an id");
        let call = match f[0] {
            "alloc" => {
                let (bytes, stream) = (f[2].parse().expect("bytes"), f[3].parse().expect("stream"));
                Call::Alloc { id, bytes, stream, pointer: hex(f[4]) }
            }
            "free" => Call::Free { id },
            other => panic!("unknown op {other}"),
        };
        (call, Some(f[5].parse().expect("bytes")))
    };
    text.lines().skip(1).map(row).collect()
}

/// RMM's own log: `Thread,Time,Action,Pointer,Size,Stream`.
fn own_log_rows(text: &str) -> Vec<Row> {
    let (mut live, mut next) = (BTreeMap::new(), 0);
    let row = |line: &str| {
        let f: Vec<&str> = line.split(',').collect();
        let pointer = hex(f[3]);
        let call = match f[2] {
            "allocate" => {
                let bytes = f[4].parse().expect("bytes");
                next += 1;
                live.insert(pointer, next);
                Call::Alloc { id: next, bytes, stream: 0, pointer }
            }
            "free" => Call::Free { id: live.remove(&pointer).expect("live") },
            other => panic!("unknown action {other}"),
        };
        (call, None)
    };
    text.lines().skip(1).map(row).collect()
}

#[derive(Debug, Default)]
struct Score {
    allocs: u64,
    pointers: u64,
    rows: u64,
    held: u64,
    /// The first call that went wrong.
    first: Option<String>,
}

impl Score {
    fn check(&mut self, name: &str) {
        let Score { allocs, pointers, rows, held, .. } = *self;
        println!("{name}: {pointers} of {allocs} pointers, {held} of {rows} totals held");
        assert!(allocs > 0 && pointers == allocs && held == rows, "{name}: {self:?}");
    }
}

/// Runs a recording on a device that answers as told. Also returns the pointer of the call at which the answers ran
/// out, if they did.
fn run(spec: &str, rows: &[Row], answers: &[DriverAnswer]) -> (Score, Option<DevAddr>) {
    let (mut policy, mut dev) = (build(spec).policy, device(answers.to_vec()));
    let (mut score, mut blocks) = (Score::default(), BTreeMap::<u32, BlockId>::new());
    for (i, &(call, held)) in rows.iter().enumerate() {
        dev.set_event(i as u64);
        let mut got = 0;
        let fits = match call {
            Call::Alloc { id, bytes, stream, pointer } => {
                let grant = policy.malloc(&mut dev, request(bytes, stream, id)).expect("it fits");
                if dev.divergence().is_some() {
                    return (score, Some(pointer));
                }
                blocks.insert(id, grant.block);
                got = grant.addr;
                score.allocs += 1;
                score.pointers += u64::from(grant.addr == pointer);
                grant.addr == pointer
            }
            Call::Free { id } => {
                policy.free(&mut dev, blocks.remove(&id).expect("a live id"));
                true
            }
        };
        let now = upstream(&*policy);
        score.rows += u64::from(held.is_some());
        score.held += u64::from(held == Some(now));
        if !fits || held.is_some_and(|held| held != now) {
            score.first.get_or_insert(format!(
                "row {i}: {call:x?} got {got:#x}, {held:?} held, not {now}"
            ));
        }
    }
    (score, None)
}

/// What RMM holds from the upstream: of `rmm-binning`, the pool below it.
fn upstream(policy: &dyn Policy) -> Bytes {
    let native = policy.native_stats();
    let stated = native.iter().find(|(name, _)| name == "upstream_bytes");
    stated.map_or(policy.stats().reserved.current, |(_, bytes)| *bytes as Bytes)
}

/// Runs a recording, answering each range that the policy takes with the pointer that the call returned: RMM cuts
/// the block that made it grow from the start of the new range.
fn replay(spec: &str, rows: &[Row], mut answers: Vec<DriverAnswer>) -> Score {
    loop {
        match run(spec, rows, &answers) {
            (score, None) => return score,
            (_, Some(pointer)) => answers.push(at(pointer)),
        }
        assert!(answers.len() < 200, "{spec} takes range after range");
    }
}

/// Where each bin's first blocks lie: at the first pointer that the bin returned. Bins that served nothing lie
/// elsewhere.
fn bin_bases(rows: &[Row]) -> Vec<DriverAnswer> {
    (12..=22u32)
        .map(|exponent| {
            let in_bin = |&bytes: &Bytes| bytes.next_power_of_two().max(4096) == 1 << exponent;
            let first = rows.iter().find_map(|(call, _)| match *call {
                Call::Alloc { bytes, pointer, .. } if in_bin(&bytes) => Some(pointer),
                _ => None,
            });
            at(first.unwrap_or((1 << 44) + (u64::from(exponent) << 32)))
        })
        .collect()
}

fn job(path: &Path) -> (String, String) {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let resource = name.trim_end_matches(".csv.zst").rsplit('.').next().unwrap().to_string();
    (name, resource)
}

#[test]
fn every_pointer_and_every_byte_is_as_recorded() {
    for path in recordings("rmm", ".csv.zst") {
        let (name, resource) = job(&path);
        let rows = rows(&text(&path));
        let mut score = match resource.as_str() {
            "pool0" => replay("rmm-pool", &rows, Vec::new()),
            "pool4g" => replay("rmm-pool,initial_pool_size:4GiB", &rows, Vec::new()),
            "arena64g" => replay("rmm-arena,arena_size:64GiB", &rows, Vec::new()),
            "binning" => replay("rmm-binning", &rows, bin_bases(&rows)),
            other => panic!("{name}: which resource is {other}?"),
        };
        score.check(&name);
    }
}

#[test]
fn rmms_own_log_is_consistent_with_its_pool() {
    for path in recordings("rmm", ".rmm.csv") {
        let rows = own_log_rows(&text(&path));
        replay("rmm-pool", &rows, Vec::new()).check(&path.to_string_lossy());
    }
}
