//! Every published recording of ../shared/public loads, or is refused with a sentence that says why and what to
//! record instead.

use poolsim_core::error::TraceErrorKind;
use poolsim_core::{Action, EventKind, TraceReader};
use poolsim_traces::{OpenOptions, Opened, Source, check, open};
use std::path::PathBuf;
use std::sync::Arc;

/// The folder; `None`, said loudly, where it is not there.
fn folder() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let shared = std::env::var_os("POOLSIM_SHARED").map_or(beside, PathBuf::from).join("public");
    if !shared.is_dir() {
        eprintln!(
            "SKIPPED: no {} (set POOLSIM_SHARED): the published recordings are not read",
            shared.display()
        );
        return None;
    }
    Some(shared)
}

/// What a file must be: its format, events (or entries of a recording) at least, and live ranges at the end.
enum Must {
    Trace(&'static str, usize),
    Recording(&'static str, usize),
    State(&'static str),
    Refused(&'static [&'static str]),
}
use Must::*;

const FILES: &[(&str, Must)] = &[
    ("complete_train_step.pickle.zst", Recording("torch-pickle", 1000)),
    ("complete_forward_amp.pickle.zst", Recording("torch-pickle", 1000)),
    ("tiny_complete.pickle.zst", Recording("torch-pickle", 97)),
    ("starts_mid_run.pickle.zst", Recording("torch-pickle", 1000)),
    ("expandable_warm_start.pickle.zst", Recording("torch-pickle", 1000)),
    ("one_orphan_free.pickle.zst", Recording("torch-pickle", 1)),
    ("post_processed.pickle.zst", Recording("torch-pickle", 100)),
    ("state_only_at_oom.pickle.zst", State("torch-pickle")),
    ("three_pools_pending_free.pickle.zst", State("torch-pickle")),
    ("jax_device_memory.prof", State("jax-pprof")),
    ("kineto_unsorted_with_addr.json.gz", Trace("kineto", 13_385)),
    ("kineto_without_addr.pt.trace.json.gz", Trace("kineto", 4110)),
    ("memory_timeline.raw.gz", Trace("torch-timeline", 3345)),
    ("minimalloc_A.1048576.csv", Trace("minimalloc-csv", 150)),
    ("minimalloc_K.1048576.csv", Trace("minimalloc-csv", 400)),
    ("minimalloc_input.12.csv", Trace("minimalloc-csv", 5)),
    (
        "nsys_without_memory_table.sqlite.zst",
        Refused(&["without GPU memory events", "--cuda-memory-usage=true", "memory snapshot"]),
    ),
    ("rmm_debug_log_not_csv.txt", Refused(&["debug log", "no requests", "LoggingResourceAdaptor"])),
];

#[test]
fn every_published_file_loads_or_is_refused_with_what_to_record() {
    let Some(folder) = folder() else { return };
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    names.sort();
    for name in names {
        let Some((_, must)) = FILES.iter().find(|(file, _)| *file == name) else {
            panic!("{name}: nothing is said of what this file must be")
        };
        let opened = open(&folder.join(&name), &OpenOptions::default());
        check_one(&name, must, opened);
    }
}

fn check_one(name: &str, must: &Must, opened: Result<Opened, poolsim_core::TraceError>) {
    if let Refused(words) = must {
        let error = opened.map(|o| o.format).expect_err(name);
        assert_eq!(error.kind, TraceErrorKind::NoEvents, "{name}: {error}");
        let text = error.to_string();
        for word in *words {
            assert!(text.contains(word), "{name}: {word:?} not in {text}");
        }
        return;
    }
    let opened = opened.unwrap_or_else(|e| panic!("{name}: {e}"));
    match (must, opened.source) {
        (Trace(format, least), Source::Trace(trace)) => {
            assert_eq!(opened.format, *format, "{name}");
            let trace = Arc::new(*trace);
            check::check(&mut TraceReader::new(trace.clone()))
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            let requests = trace.events.iter().filter(|e| e.kind() == EventKind::Alloc).count();
            assert!(requests >= *least, "{name}: {requests} requests");
        }
        (Recording(format, least), Source::Recording(recording)) => {
            assert_eq!(opened.format, *format, "{name}");
            assert!(recording.entries.len() >= *least, "{name}: {}", recording.entries.len());
        }
        (State(format), Source::Recording(recording)) => {
            assert_eq!(opened.format, *format, "{name}");
            let history = recording.entries.iter().any(|e| e.action != Action::Snapshot);
            assert!(!history, "{name}");
            assert!(!recording.heap.ranges.is_empty(), "{name}");
        }
        (_, source) => panic!("{name}: is {source:?}"),
    }
}
