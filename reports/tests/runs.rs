//! Do kept runs come back as they were, whatever is in them, and do damaged ones end in an error?

use poolsim_core::event::Annotation;
use poolsim_core::metric::name;
use poolsim_core::record::{OomRecord, Provenance, Value};
use poolsim_core::stack::{Frame, StackId};
use poolsim_core::*;
use poolsim_reports::data::*;
use poolsim_reports::report::{Target, render};
use proptest::prelude::*;
use std::path::Path;

/// A text that ends a script, opens a tag, breaks a table and a template.
const HOSTILE: &str = "</script><img src=x onerror=alert(1)>|`*_[x](y)\"'{{ 7*7 }}\n# <!--";

fn point(event: u64, level: u64) -> Point {
    let levels = |n: u64| Levels { requested: n, allocated: n + 1, active: n + 1, reserved: n + 2 };
    Point {
        first_event: event,
        first_at: event * 7,
        last_event: event,
        last_at: event * 7,
        last: levels(level),
        low: levels(level),
        high: levels(level + 5),
    }
}

fn keyframe(moment: Moment, sizes: &[(u64, bool)], event: u64) -> Keyframe {
    let mut heap = HeapImage::default();
    heap.range(&RangeView {
        addr: 1 << 40,
        size: sizes.iter().map(|(size, _)| size).sum(),
        stream: StreamId(0),
        pool: PoolId::DEFAULT,
        small: false,
        expandable: true,
        stack: StackId::NONE,
    });
    let (mut addr, mut lives) = (1 << 40, Vec::new());
    for (i, &(size, used)) in sizes.iter().enumerate() {
        let state = if used { BlockState::Allocated } else { BlockState::Free };
        let slot = used.then_some(Slot(i as u32));
        let stack = StackId(u32::from(used) * (1 + i as u32 % 2));
        heap.block(&BlockView { addr, size, requested: size, state, slot, stack });
        let born = used.then_some((i as u64, 3));
        lives.push(Life { born, died: born.filter(|_| i % 2 == 0).map(|_| (9, 10)) });
        addr += size;
    }
    Keyframe { event, at: event * 7, moment, heap, lives }
}

fn record(text: &str) -> RunRecord {
    let mut record = RunRecord { version: 1, ..RunRecord::default() };
    record.provenance = Provenance {
        trace: text.into(),
        policy: text.into(),
        trace_digest: "d".into(),
        target: "sim".into(),
        ..Provenance::default()
    };
    record.set(name::peak_reserved_bytes, Value::Int(1 << 40));
    record.set(name::fragmentation, Value::Real(0.25));
    record.set(name::device_time_ns, Value::Int(12));
    record.set(name::ooms, Value::Int(1));
    record.warnings.push(text.into());
    record.ooms.push(OomRecord {
        event: 5,
        at: 35,
        requested: 4,
        rounded: 4,
        stream: StreamId(0),
        pool: PoolId::DEFAULT,
        cause: OomCause::Limit,
        active: 1,
        reserved: 2,
        device_free: 3,
        largest_free: 1,
        cached: 1,
        recorded: false,
    });
    record
}

fn times(sizes: &[(u64, bool)]) -> Vec<(u64, u64)> {
    (1..).zip(sizes).map(|(ns, (calls, _))| (ns, *calls)).collect()
}

/// A waterfall, one of whose causes cannot be told apart.
fn waterfall(sizes: &[(u64, bool)]) -> Waterfall {
    let size = sizes[0].0;
    let causes = Cause::ALL.into_iter().enumerate().map(|(i, cause)| CauseBytes {
        cause,
        peak: (i != 1).then_some(size),
        bytes: if i == 1 { 0 } else { 9 - (size as i64 % 17) },
    });
    Waterfall { live: size, peak: size + 1, ooms: 2, causes: causes.collect(), interaction: -3 }
}

/// Two runs, one of which bears `text` wherever a trace or a user can put some.
fn set(text: &str, sizes: &[(u64, bool)], points: u64) -> RunSet {
    let mut calls = CallsPoint { last_event: 4, last_at: 28, ..CallsPoint::default() };
    (calls.calls[0], calls.time[0]) = (3, 99);
    let run = |label: &str| Run {
        label: label.into(),
        verdict: "out_of_memory".into(),
        record: record(text),
        series: (0..points).map(|n| point(n, n * n % 97)).collect(),
        calls: vec![calls],
        keyframes: vec![keyframe(Moment::Peak, sizes, 4), keyframe(Moment::Refused, sizes, 5)],
        distributions: [Source::Measured, Source::Modelled]
            .map(|source| Distribution { call: text.into(), source, steps: times(sizes) })
            .into(),
        waterfall: Some(waterfall(sizes)),
        frontier: Some(Frontier {
            bound: 7,
            tried: sizes.iter().copied().collect(),
            uncertain: sizes.iter().any(|(_, lives)| *lives),
            tight: sizes
                .iter()
                .any(|(_, lives)| *lives)
                .then_some(Tight { retries: 3, device_time_ns: points }),
        }),
    };
    let frame = |name: &str| Frame { name: name.into(), file: text.into(), line: 3 };
    let stacks = [(StackId(1), vec![frame(text), frame("main")]), (StackId(2), vec![frame("f")])];
    RunSet {
        machine: text.into(),
        command: text.into(),
        runs: vec![run(text), run("other")],
        stacks: stacks.into(),
        annotations: vec![
            Annotation { name: text.into(), start: 0, end: Some(30) },
            Annotation { name: "open".into(), start: 7, end: None },
        ],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever is kept comes back, and is the same bytes when it is kept again.
    #[test]
    fn what_is_written_is_read(
        text in ".{0,20}",
        sizes in prop::collection::vec((1u64..1 << 40, any::<bool>()), 1..30),
        points in 0u64..100,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs");
        let written = set(&text, &sizes, points);
        written.write(&path).unwrap();
        let read = RunSet::read(&path).unwrap();
        prop_assert_eq!(&read, &written);
        let bytes = std::fs::read(path.join("heaps.parquet")).unwrap();
        read.write(&path).unwrap();
        prop_assert_eq!(bytes, std::fs::read(path.join("heaps.parquet")).unwrap());
    }
}

/// Every kind of report of the same runs.
fn reports(set: &RunSet) -> Vec<(String, Vec<u8>)> {
    let targets = ["r.html", "r.md", "r.csv", "r.parquet", "*.svg", "*.png"];
    let files =
        targets.iter().flat_map(|t| render(set, &Target::new(Path::new(t)).unwrap()).unwrap());
    files.map(|(path, bytes)| (path.display().to_string(), bytes)).collect()
}

#[test]
fn hostile_text_does_nothing() {
    let sizes = [(512, true), (1024, false), (2048, true), (4096, false)];
    let text = |files: &[(String, Vec<u8>)], name: &str| {
        let (_, bytes) = files.iter().find(|(path, _)| path == name).unwrap();
        String::from_utf8(bytes.clone()).unwrap()
    };
    let (bad, tame) = (reports(&set(HOSTILE, &sizes, 50)), reports(&set("tame", &sizes, 50)));
    let (page, tame) = (text(&bad, "r.html"), text(&tame, "r.html"));
    for tag in ["<script", "</script", "<img", "<!--"] {
        assert_eq!(page.matches(tag).count(), tame.matches(tag).count(), "{tag}");
    }
    assert!(page.contains("{{ 7*7 }}"), "the template evaluates no text");
    let markdown = text(&bad, "r.md");
    let body = markdown.split("## Where the numbers come from").next().unwrap();
    assert!(!body.contains("<img") && !body.contains("\n# <"), "{body}");
    assert!(!text(&bad, "memory.svg").contains("<img"));
}

#[test]
fn reports_are_the_same_bytes_every_time() {
    let sizes = [(512, true), (1024, false)];
    assert_eq!(reports(&set("a", &sizes, 300)), reports(&set("a", &sizes, 300)));
}

#[test]
fn runs_without_anything_kept_still_make_every_report() {
    let mut bare = set("bare", &[(512, true)], 0);
    bare.stacks.clear();
    bare.annotations.clear();
    for run in &mut bare.runs {
        *run = Run { label: run.label.clone(), record: run.record.clone(), ..Run::default() };
    }
    let page = String::from_utf8(reports(&bare)[0].1.clone()).unwrap();
    assert!(page.contains("The address space was not kept for bare and other."));
    assert!(page.contains(
        "Which rule costs how much was not computed for bare and other; `poolsim waterfall"
    ));
    assert!(
        page.contains(
            "On how little memory the job would live was not computed for bare and other;"
        )
    );
    reports(&RunSet::default());
}

#[test]
fn damaged_tables_are_errors_that_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs");
    set("x", &[(512, true), (99, false)], 40).write(&path).unwrap();
    for table in ["results", "series", "heaps", "causes", "frontiers", "latencies"] {
        let file = path.join(format!("{table}.parquet"));
        let good = std::fs::read(&file).unwrap();
        for cut in [0, 3, good.len() / 3, good.len() - 5] {
            std::fs::write(&file, &good[..cut]).unwrap();
            let error = RunSet::read(&path).unwrap_err().to_string();
            assert!(error.contains(table), "{error}");
        }
        for at in (0..good.len()).step_by(37) {
            let mut bad = good.clone();
            bad[at] ^= 0x55;
            std::fs::write(&file, &bad).unwrap();
            assert!(RunSet::read(&path).unwrap_err().to_string().contains("damaged"));
        }
        std::fs::write(&file, good).unwrap();
    }
    let stranger = folder.path().join("photos");
    std::fs::create_dir(&stranger).unwrap();
    std::fs::write(stranger.join("cat.png"), "").unwrap();
    let error = set("x", &[(1, true)], 1).write(&stranger).unwrap_err().to_string();
    assert!(error.contains("cat.png"), "{error}");
}
