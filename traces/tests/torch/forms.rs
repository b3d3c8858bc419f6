//! One small snapshot in every form, and the older kinds.

use super::{assert_equal, read};
use poolsim_core::BlockState;
use poolsim_core::error::TraceErrorKind;
use poolsim_core::recording::Action;
use poolsim_core::units::PoolId;
use poolsim_traces::import::torch::history_gaps;
use poolsim_traces::{OpenOptions, open};

const FORMS: [&str; 14] = [
    "full.p0.pickle",
    "full.p1.pickle",
    "full.p2.pickle",
    "full.p3.pickle",
    "full.p4.pickle",
    "full.p5.pickle",
    "full.pure.pickle",
    "full.optimized.pickle",
    "full.p0.optimized.pickle",
    "full.unshared.pickle",
    "full.reversed.pickle",
    "full.json",
    "full.indented.json",
    "full.html",
];

#[test]
fn every_form_reads_the_same() {
    for device in [None, Some(0), Some(1)] {
        let first = read(FORMS[0], device).expect("protocol 0 is read");
        for form in &FORMS[1..] {
            let other = read(form, device).unwrap_or_else(|e| panic!("{e}"));
            assert_equal(&first, &other, form);
        }
    }
}

#[test]
fn a_snapshot_is_read_to_the_last_field() {
    let rec = read("full.p4.pickle", None).expect("is read");
    let header = &rec.header;
    assert_eq!(header.device, 1, "the device with most entries");
    assert_eq!(header.start_unix_us, Some(1_790_000_000_000_000));
    assert_eq!(header.settings.as_deref(), Some("expandable_segments:True,max_split_size_mb:128"));
    // By raw unsigned handle: a signed -16 is last.
    assert_eq!(header.streams, [0, 5_000_000_000, (-16i64) as u64]);
    assert_eq!(header.pools.iter().map(|p| p.id).collect::<Vec<_>>(), [(0, 0), (0, 3)]);
    let knows = header.knows;
    assert!(knows.times && knows.stacks && knows.completions && !knows.pools && !knows.from_start);

    let first = &rec.entries[0];
    assert_eq!((first.at, first.addr, first.size), (0, 0xffff_8000_0000_0000, 2 << 20));
    assert_eq!((first.stream.0, first.action), (2, Action::SegmentAlloc));
    let oom = rec.entries.iter().find(|e| e.action == Action::Oom).expect("one oom");
    assert_eq!((oom.addr, oom.size, oom.at), (12345, 1 << 33, 10_000));
    assert_eq!(rec.entries[1].stack, rec.entries[3].stack, "equal stacks are one stack");
    let deep: Vec<_> = rec.stacks.stack(rec.entries[2].stack).collect();
    assert_eq!(deep.len(), 3);
    assert_eq!((deep[0].name.as_str(), deep[0].line), ("f\n\u{20ac}", (1 << 31) + 5));
    assert_eq!(deep[0].file, "/srv/\u{e9}t\u{e9}\\train.py");

    let (range, blocks) = &rec.heap.ranges[0];
    assert!(range.expandable && !range.small);
    assert_eq!((range.addr, range.pool, range.stream.0), (0x3_0200_0000, PoolId(1), 0));
    assert_eq!(blocks.len(), 2);
    let pending = rec.heap.blocks().filter(|(_, b)| b.state == BlockState::Pending).count();
    assert_eq!(pending, 1);
}

#[test]
fn annotations_nest_by_name() {
    let rec = read("full.p4.pickle", Some(1)).expect("is read");
    let spans: Vec<_> = rec.annotations.iter().map(|a| (a.name.as_str(), a.start, a.end)).collect();
    assert_eq!(
        spans,
        [
            // Began before the first entry, and never ended.
            ("epoch", 0, None),
            // Ended, and began before anything was recorded.
            ("early", 0, Some(8000)),
            ("step", 1000, Some(6000)),
            ("user_metadata: warm-up", 1000, Some(1000)),
            ("step", 2000, Some(4000)),
            ("compile_context: Torch-Compiled Region: 0/0", 8000, Some(8000)),
            ("open", 9000, None),
        ]
    );
}

#[test]
fn devices_are_listed_and_asked_for() {
    let path = super::fixture("full.p4.pickle");
    let opened = open(&path, &OpenOptions::default()).expect("is read");
    let devices: Vec<_> = opened.devices.iter().map(|d| (d.index, d.entries, d.segments)).collect();
    assert_eq!(devices, [(0, 1, 0), (1, 11, 2)]);
    let rec = read("full.p4.pickle", Some(0)).expect("is read");
    assert_eq!((rec.header.device, rec.entries.len(), rec.heap.ranges.len()), (0, 1, 0));
    assert_eq!(rec.annotations[0].name, "outer");
    let error = read("full.p4.pickle", Some(7)).expect_err("no such device");
    assert_eq!(error.kind, TraceErrorKind::Refused);
    assert!(error.what.contains("0 (1 entries, 0 segments), 1 (11 entries"), "{error}");
}

#[test]
fn bare_lists_of_segments_with_history() {
    for name in ["list.pickle", "list.json"] {
        let rec = read(name, None).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((rec.entries.len(), rec.heap.ranges.len()), (0, 1));
        assert_eq!(rec.header.settings, None);
        let blocks = &rec.heap.ranges[0].1;
        let facts: Vec<_> = blocks.iter().map(|b| (b.addr, b.size, b.requested)).collect();
        assert_eq!(facts, [(4096, 512, 300), (4608, 1024, 0), (5632, 512, 512)]);
        assert_eq!(rec.stacks.stack(blocks[0].stack).count(), 1);
        assert_eq!(blocks[2].state, BlockState::Pending);
        assert_eq!(history_gaps(&rec).live_never_mentioned, 2);
    }
}

#[test]
fn old_frees_are_two_entries() {
    let rec = read("legacy.pickle", None).expect("is read");
    let actions: Vec<_> = rec.entries.iter().map(|e| (e.at, e.action, e.addr)).collect();
    assert_eq!(
        actions,
        [
            (0, Action::Alloc, 4096),
            (1, Action::FreeRequested, 4096),
            (2, Action::FreeCompleted, 4096),
            (3, Action::Alloc, 8192),
        ]
    );
    assert!(!rec.header.knows.times);
    assert_eq!(rec.header.notes.len(), 3, "{:?}", rec.header.notes);
}

#[test]
fn an_empty_snapshot_is_a_snapshot() {
    let rec = read("empty.pickle", None).expect("is read");
    assert!(rec.entries.is_empty() && rec.heap.ranges.is_empty());
    assert!(history_gaps(&rec).starts_empty);
    let error = read("empty.pickle", Some(0)).expect_err("no device at all");
    assert!(error.what.contains("holds no device 0; it holds none"), "{error}");
}

#[test]
fn entries_that_say_their_pool() {
    for name in ["pools.pickle", "pools.json"] {
        let rec = read(name, None).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(rec.entry_pools.iter().map(|p| p.0).collect::<Vec<_>>(), [1, 2, 0, 1, 2, 0]);
        assert_eq!(rec.header.pools.len(), 3);
        assert!(rec.header.knows.pools);
        // Half microseconds.
        assert_eq!(rec.entries[1].at, 500);
    }
}

#[test]
fn fields_beside_a_stale_settings_string_count() {
    let rec = read("stale.pickle", None).expect("is read");
    let text = "max_split_size_mb:64,garbage_collection_threshold:0.75,roundup_power2_divisions:4";
    assert_eq!(rec.header.settings.as_deref(), Some(text));
    assert!(history_gaps(&rec).ring_buffer_probably_cut, "the recorder says so");
    assert_eq!(rec.header.attributes["allocator_settings.trace_alloc_max_entries"], "1000");
}

#[test]
fn pages_without_a_snapshot_say_what_to_do() {
    let error = read("plot.html", None).expect_err("only a plot");
    assert_eq!(error.kind, TraceErrorKind::NoEvents);
    assert!(error.what.contains("_dump_snapshot"), "{error}");
}

#[test]
fn annotations_without_a_clock_to_place_them_on() {
    use poolsim_traces::import::torch::torch_json::read;
    let marks =
        "\"external_annotations\": [{\"stage\": \"START\", \"name\": \"a\", \"time_us\": 5},
        {\"stage\": \"END\", \"name\": \"a\", \"time_us\": 8}], \"segments\": []";
    let entry = "{\"action\": \"alloc\", \"addr\": 1, \"size\": 1}";
    let spans = |traces: &str| {
        let text = format!("{{{marks}, \"device_traces\": [{traces}]}}");
        let imported = read(text.as_bytes(), &OpenOptions::default()).expect("is read");
        super::recording(imported.source).annotations
    };
    assert_eq!(spans(&format!("[{entry}]")), []);
    let alone = spans("[]");
    assert_eq!((alone[0].start, alone[0].end), (0, Some(3000)));
}
