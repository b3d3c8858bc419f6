//! What is written reads as what was read.

use super::golden::{shared, table};
use super::{assert_equal, read, read_bytes, recording};
use poolsim_core::Recording;
use poolsim_traces::export::write_torch_snapshot;
use poolsim_traces::{OpenOptions, open};
use std::io::Write;
use std::process::{Command, Stdio};

fn written(rec: &Recording) -> Vec<u8> {
    let mut out = Vec::new();
    write_torch_snapshot(&mut out, rec).expect("a Vec takes all");
    out
}

/// Notes say what happened on the way in, which does not happen again.
fn without_notes(rec: &Recording) -> Recording {
    let mut rec = rec.clone();
    // The writer names the default pool, also where the file read did not say pools.
    rec.header.knows.pools = true;
    rec.header.notes.clear();
    rec
}

#[test]
fn small_snapshots_survive() {
    for (name, device) in [
        ("full.p4.pickle", Some(1)),
        ("full.p4.pickle", Some(0)),
        ("list.pickle", None),
        ("legacy.pickle", None),
        ("pools.pickle", None),
        ("stale.pickle", None),
    ] {
        let mut rec = read(name, device).expect("is read");
        // The file holds whole microseconds.
        rec.entries.iter_mut().filter(|_| rec.header.knows.times).for_each(|e| e.at -= e.at % 1000);
        // Written segments always say their pool.
        rec.header.knows.pools |= rec.header.pools.len() == 1 && !rec.heap.ranges.is_empty();
        let again = read_bytes(&written(&rec)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_equal(&without_notes(&rec), &without_notes(&again), name);
    }
}

#[test]
fn real_recordings_survive() {
    let Some(shared) = shared() else { return };
    for line in table() {
        let opened = open(&shared.join(line[0]), &OpenOptions::default()).expect("is read above");
        let rec = recording(opened.source);
        let again = read_bytes(&written(&rec)).unwrap_or_else(|e| panic!("{}: {e}", line[0]));
        assert_equal(&without_notes(&rec), &without_notes(&again), line[0]);
    }
}

/// What PyTorch's `_memory_viz` and its page take from a snapshot, asked with Python's own pickle.
const ASK: &str = r#"
import pickle, sys
data = pickle.load(sys.stdin.buffer)
assert list(data) == ["segments", "device_traces", "allocator_settings", "external_annotations"], list(data)
for segment in data["segments"]:
    assert segment["total_size"] == sum(b["size"] for b in segment["blocks"])
    assert segment["segment_type"] in ("small", "large")
    assert isinstance(segment["segment_pool_id"], tuple)
    for block in segment["blocks"]:
        assert block["state"] in ("active_allocated", "active_pending_free", "inactive")
        assert list(block) == ["address", "size", "requested_size", "state", "frames"]
traces = data["device_traces"]
assert [len(t) for t in traces] == [0, 11]
assert traces[1][6]["device_free"] == 12345 and "addr" not in traces[1][6]
assert traces[1][1]["frames"] is traces[1][3]["frames"]
assert traces[1][1]["stream"] == -16 and traces[1][1]["addr"] == 0xffff800000000000
assert traces[1][5]["frames"] == [] and traces[1][5]["time_us"] == 1790000000000009
assert data["allocator_settings"]["max_split_size"] == 128 << 20
print("fine")
"#;

#[test]
fn python_loads_what_is_written() {
    let rec = read("full.p4.pickle", None).expect("is read");
    let child = Command::new("python3")
        .args(["-c", ASK])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("SKIPPED: no python3 on this machine to load the written snapshot");
        return;
    };
    child.stdin.take().expect("piped").write_all(&written(&rec)).expect("python reads it");
    let output = child.wait_with_output().expect("python ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "fine", "{errors}");
}
