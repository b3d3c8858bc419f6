//! Real recordings against facts computed by Python (scripts/torch-golden.py).

use super::recording;
use poolsim_core::recording::{Action, Recording};
use poolsim_core::stack::StackId;
use poolsim_core::units::StreamId;
use poolsim_traces::{OpenOptions, open};
use std::collections::HashMap;
use std::path::PathBuf;

/// The folder of real recordings, if it is there.
pub fn shared() -> Option<PathBuf> {
    let path = match std::env::var_os("POOLSIM_SHARED") {
        Some(path) => path.into(),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
    };
    if path.join("traces").is_dir() {
        return Some(path);
    }
    println!(
        "SKIPPED: no real recordings at {}; set POOLSIM_SHARED to their folder",
        path.display()
    );
    None
}

/// The table's lines.
pub fn table() -> impl Iterator<Item = Vec<&'static str>> {
    include_str!("../torch_golden.tsv").lines().map(|line| line.split('\t').collect())
}

struct Hash(u64);

impl Hash {
    fn add(&mut self, words: &[u64]) {
        for word in words {
            self.0 = (self.0 ^ word).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn show(&self) -> String {
        format!("{:016x}", self.0)
    }
}

const ACTIONS: [Action; 9] = [
    Action::Alloc,
    Action::FreeRequested,
    Action::FreeCompleted,
    Action::SegmentAlloc,
    Action::SegmentFree,
    Action::SegmentMap,
    Action::SegmentUnmap,
    Action::Oom,
    Action::Snapshot,
];

fn facts(rec: &Recording) -> Vec<String> {
    const SEED: u64 = 0xcbf2_9ce4_8422_2325;
    let (mut entries, mut stacks, mut heap) = (Hash(SEED), Hash(SEED), Hash(SEED));
    let mut counts = [0; ACTIONS.len()];
    let mut known: HashMap<StackId, u64> = HashMap::from([(StackId::NONE, 0)]);
    let stream = |id: StreamId| rec.header.streams[id.index()];
    for e in &rec.entries {
        let action = ACTIONS.iter().position(|&a| a == e.action).expect("every action is listed");
        counts[action] += 1;
        let us = if rec.header.knows.times { e.at / 1000 } else { 0 };
        entries.add(&[action as u64, e.addr, e.size, stream(e.stream), us]);
        let next = known.len() as u64;
        stacks.add(&[*known.entry(e.stack).or_insert(next)]);
    }
    for (r, blocks) in &rec.heap.ranges {
        let (first, second) = rec.header.pools[r.pool.index()].id;
        let flags = [u64::from(r.small), u64::from(r.expandable)];
        heap.add(&[r.addr, r.size, stream(r.stream), flags[0], flags[1], first, second]);
        for b in blocks {
            heap.add(&[b.addr, b.size, b.requested, b.state as u64]);
        }
    }
    let spans = rec.annotations.iter().filter(|a| !a.name.starts_with("compile_context: "));
    vec![
        rec.entries.len().to_string(),
        counts.map(|n: u64| n.to_string()).join(","),
        entries.show(),
        (known.len() - 1).to_string(),
        stacks.show(),
        rec.heap.ranges.len().to_string(),
        rec.heap.reserved().to_string(),
        rec.heap.blocks().count().to_string(),
        heap.show(),
        rec.header.streams.len().to_string(),
        rec.header.pools.len().to_string(),
        spans.count().to_string(),
    ]
}

#[test]
fn every_real_recording_reads_as_python_reads_it() {
    let Some(shared) = shared() else { return };
    let mut files = 0;
    for line in table() {
        let path = shared.join(line[0]);
        let opened = open(&path, &OpenOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(opened.compression, Some("zstd"));
        let rec = recording(opened.source);
        assert_eq!(facts(&rec), line[1..], "{}", line[0]);
        files += 1;
    }
    assert!(files > 40);
}

#[test]
fn settings_strings_of_real_recordings_need_no_help() {
    let Some(shared) = shared() else { return };
    for line in table().filter(|line| line[0].starts_with("traces/")) {
        let opened = open(&shared.join(line[0]), &OpenOptions::default()).expect("is read above");
        let rec = recording(opened.source);
        assert_eq!(rec.header.notes, Vec::<String>::new(), "{}", line[0]);
        let expected = match line[0].split('/').nth(1).expect("a folder") {
            "expand" => "expandable_segments:True",
            "expandsplit32" => "expandable_segments:True,max_split_size_mb:32",
            "split128" => "max_split_size_mb:128",
            "pow2d4" => "roundup_power2_divisions:4",
            "gc80" => "garbage_collection_threshold:0.8",
            "gc70" => "garbage_collection_threshold:0.7",
            "seg64" => "large_segment_size_mb:64",
            _ => "",
        };
        assert_eq!(rec.header.settings.as_deref(), Some(expected), "{}", line[0]);
        assert!(rec.header.knows.from_start, "{}", line[0]);
    }
}

#[test]
fn histories_that_start_late_are_told() {
    use poolsim_traces::import::torch::history_gaps;
    let Some(shared) = shared() else { return };
    let gaps = |name: &str| {
        let path = shared.join("public").join(format!("{name}.pickle.zst"));
        history_gaps(&recording(
            open(&path, &OpenOptions::default()).expect("is read above").source,
        ))
    };
    let late = gaps("starts_mid_run");
    assert_eq!((late.frees_of_unseen, late.starts_empty), (222, false));
    assert!(gaps("complete_train_step").starts_empty);
    assert!(gaps("complete_forward_amp").starts_empty);
    assert!(gaps("tiny_complete").starts_empty);
    let orphan = gaps("one_orphan_free");
    assert_eq!((orphan.frees_of_unseen, orphan.pending_at_start), (1, 1));
    assert!(!gaps("expandable_warm_start").starts_empty);
    let pools = gaps("three_pools_pending_free");
    assert!(!pools.starts_empty && pools.live_never_mentioned > 9);
}
