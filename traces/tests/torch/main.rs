//! PyTorch snapshots: real ones against facts that Python computed, every form of a small one, hostile ones,
//! and writing them again.

mod forms;
mod golden;
mod hostile;
mod roundtrip;

use poolsim_core::{Recording, TraceError};
use poolsim_traces::import::torch::torch_pickle;
use poolsim_traces::{Imported, OpenOptions, Source, open};
use std::path::{Path, PathBuf};

/// A fixture that scripts/make-torch-fixtures.py wrote.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch/data").join(name)
}

fn fixture_bytes(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn recording(source: Source) -> Recording {
    match source {
        Source::Recording(recording) => *recording,
        _ => panic!("a snapshot is a recording"),
    }
}

fn read(name: &str, device: Option<u32>) -> Result<Recording, TraceError> {
    open(&fixture(name), &OpenOptions { device, ..OpenOptions::default() })
        .map(|opened| recording(opened.source))
}

fn read_bytes(bytes: &[u8]) -> Result<Recording, TraceError> {
    torch_pickle::read(bytes, &OpenOptions::default())
        .map(|Imported { source, .. }| recording(source))
}

/// What two recordings must share to be equal: all but the numbering of stacks, which follows file order.
fn assert_equal(a: &Recording, b: &Recording, what: &str) {
    assert_eq!(a.header, b.header, "{what}");
    assert_eq!(a.annotations, b.annotations, "{what}");
    assert_eq!(a.entry_pools, b.entry_pools, "{what}");
    assert_eq!(a.entries.len(), b.entries.len(), "{what}");
    for (n, (x, y)) in a.entries.iter().zip(&b.entries).enumerate() {
        let same = (x.at, x.addr, x.size, x.stream, x.action)
            == (y.at, y.addr, y.size, y.stream, y.action);
        assert!(same, "{what}: entry {n}: {x:?} {y:?}");
        assert!(a.stacks.stack(x.stack).eq(b.stacks.stack(y.stack)), "{what}: stack of {n}");
    }
    assert_eq!(a.heap.ranges.len(), b.heap.ranges.len(), "{what}");
    for ((r, bs), (s, cs)) in a.heap.ranges.iter().zip(&b.heap.ranges) {
        let mut plain = *s;
        plain.stack = r.stack;
        assert_eq!(*r, plain, "{what}");
        assert!(a.stacks.stack(r.stack).eq(b.stacks.stack(s.stack)), "{what}");
        assert_eq!(bs.len(), cs.len(), "{what}");
        for (x, y) in bs.iter().zip(cs) {
            let mut plain = *y;
            plain.stack = x.stack;
            assert_eq!(*x, plain, "{what}");
            assert!(a.stacks.stack(x.stack).eq(b.stacks.stack(y.stack)), "{what}");
        }
    }
}
