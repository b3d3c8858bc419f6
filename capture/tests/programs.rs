//! Real processes over a driver without a device: is every call in the log, however the program reaches the driver and
//! however it ends?

use poolsim_core::{Event, EventKind, Trace};
use poolsim_traces::{OpenOptions, open};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use tempfile::TempDir;

/// The programs, built once for a test.
struct Built {
    folder: TempDir,
}

/// What a run left.
struct Ran {
    status: ExitStatus,
    said: String,
    wrong: String,
    logs: Vec<Trace>,
}

/// How a run is set up.
#[derive(Clone, Copy, PartialEq)]
enum Set {
    /// Injection with CUPTI, and preloaded.
    Both,
    /// Injection alone.
    Injected,
    /// No CUPTI anywhere.
    NoCupti,
    /// CUPTI has another subscriber.
    Taken,
    /// CUPTI is of a version that nobody knows.
    Unknown,
}

impl Built {
    fn new() -> Built {
        let folder = tempfile::tempdir().unwrap();
        let built = Built { folder };
        built.cc(&["-shared", "-Wl,-soname,libcuda.so.1"], "driver.c", "libcuda.so.1");
        built.cc(&["-shared"], "cupti.c", "libcupti.so.12");
        built.cc(&["-shared"], "library.c", "liblayer.so");
        built.cc(&["-L.", "-l:libcuda.so.1", "-llayer"], "program.c", "program");
        built
    }

    fn cc(&self, flags: &[&str], source: &str, to: &str) {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let status = Command::new("cc")
            .args(["-O1", "-g", "-fPIC", "-o", to])
            .arg(sources.join(source))
            .args(flags)
            .args(["-ldl", "-lpthread", "-Wl,-rpath,$ORIGIN"])
            .current_dir(self.folder.path())
            .status()
            .expect("a C compiler");
        assert!(status.success(), "{source}");
    }

    fn run(&self, way: &str, end: &str, set: Set) -> Ran {
        let run = tempfile::tempdir().unwrap();
        let library = library();
        let mut command = Command::new(self.folder.path().join("program"));
        command
            .args([way, end])
            .env("POOLSIM_CALLS", run.path().join("log"))
            .env("CUDA_INJECTION64_PATH", &library)
            .env("POOLSIM_CUPTI", self.folder.path().join("libcupti.so.12"));
        match set {
            Set::Both => {}
            Set::Injected => {}
            Set::NoCupti => drop(command.env("POOLSIM_CUPTI", "/nonexistent/libcupti.so")),
            Set::Taken => drop(command.env("TEST_CUPTI_TAKEN", "1")),
            Set::Unknown => drop(command.env("TEST_CUPTI_VERSION", "7")),
        }
        if set != Set::Injected {
            command.env("LD_PRELOAD", &library);
        }
        let output = command.output().unwrap();
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(run.path()).unwrap().map(|e| e.unwrap().path()).collect();
        paths.sort();
        let logs = paths.iter().map(|path| {
            let opened = open(path, &OpenOptions::default()).unwrap_or_else(|e| panic!("{e}"));
            opened.source.into_trace().unwrap()
        });
        Ran {
            status: output.status,
            said: String::from_utf8(output.stdout).unwrap(),
            wrong: String::from_utf8(output.stderr).unwrap(),
            logs: logs.collect(),
        }
    }
}

/// The library under test.
fn library() -> PathBuf {
    let beside = std::env::current_exe().unwrap();
    let deps = beside.parent().unwrap();
    [deps, deps.parent().unwrap()]
        .map(|folder| folder.join("libpoolsim_capture.so"))
        .into_iter()
        .find(|path| path.exists())
        .expect("libpoolsim_capture.so is built with the tests")
}

/// Granted, freed, bytes and refused, in the program's own words.
fn counted(trace: &Trace) -> String {
    let of = |kind| trace.events.iter().filter(move |e| e.kind() == kind);
    let bytes: u64 = of(EventKind::Alloc).map(|e| e.size).sum();
    format!(
        "granted {} frees {} bytes {bytes} refused {}\n",
        of(EventKind::Alloc).count(),
        of(EventKind::Free).count(),
        of(EventKind::AllocRefused).count()
    )
}

fn through(trace: &Trace) -> &str {
    &trace.header.attributes["captured through"]
}

#[test]
fn every_way_to_the_driver_is_seen_in_both_ways() {
    let built = Built::new();
    for way in ["linked", "dlsym", "lookup"] {
        for (set, via) in
            [(Set::Both, "CUPTI"), (Set::Injected, "CUPTI"), (Set::NoCupti, "interposed")]
        {
            let ran = built.run(way, "plain", set);
            assert_eq!(ran.status.code(), Some(7), "{way}: {}", ran.wrong);
            assert_eq!(ran.logs.len(), 1, "{way} {via}: {}", ran.wrong);
            let trace = &ran.logs[0];
            assert_eq!(counted(trace), ran.said, "{way} {via}");
            assert!(through(trace).starts_with(via), "{way}: {}", through(trace));
            let libraries: Vec<(&str, u64)> = trace
                .events
                .iter()
                .zip(&trace.event_stacks)
                .filter(|(e, _)| e.kind() == EventKind::Alloc)
                .map(|(e, s)| (trace.stacks.stack(*s).next().unwrap().file.as_str(), e.size))
                .collect();
            let expected = [
                ("program", 1000),
                ("liblayer.so", 3000),
                ("program", 4096),
                ("program", 8192),
                ("program", 2 << 20),
            ];
            assert_eq!(libraries, expected, "{way} {via}");
            let stream_and_pool =
                |e: &Event| (trace.header.streams[usize::from(e.stream.0)], e.pool().0);
            let placed: Vec<_> = trace
                .events
                .iter()
                .filter(|e| e.kind() == EventKind::Alloc)
                .map(stream_and_pool)
                .collect();
            assert_eq!(placed, [(0, 0), (0, 0), (0x1100, 1), (0x2200, 0), (0, 0)]);
            assert_eq!(trace.header.attributes["host memory peak"], (1 << 20).to_string());
            assert_eq!(trace.header.attributes["calls cuMemAlloc"], "3, 1 failed");
        }
    }
}

#[test]
fn threads_lose_nothing_and_addresses_stay_in_order() {
    let built = Built::new();
    for set in [Set::Both, Set::NoCupti] {
        let ran = built.run("dlsym", "threads", set);
        assert_eq!(ran.status.code(), Some(7), "{}", ran.wrong);
        assert_eq!(counted(&ran.logs[0]), ran.said);
        assert_eq!(ran.logs[0].header.notes, [""; 0]);
    }
}

#[test]
fn each_of_many_calls_is_its_own_librarys() {
    let built = Built::new();
    for set in [Set::Both, Set::Injected, Set::NoCupti] {
        let ran = built.run("lookup", "layers", set);
        assert_eq!(counted(&ran.logs[0]), ran.said);
        let trace = &ran.logs[0];
        for (event, stack) in trace.events.iter().zip(&trace.event_stacks) {
            let library = &trace.stacks.stack(*stack).next().unwrap().file;
            assert_eq!(library == "liblayer.so", event.size == 3000, "{library}, {}", event.size);
        }
    }
}

#[test]
fn what_was_recorded_outlives_the_program() {
    let built = Built::new();
    for set in [Set::Both, Set::NoCupti] {
        for (end, signal) in [("abort", libc::SIGABRT), ("kill", libc::SIGKILL)] {
            let ran = built.run("lookup", end, set);
            assert_eq!(ran.status.signal(), Some(signal), "{}", ran.wrong);
            assert_eq!(counted(&ran.logs[0]), ran.said, "{end}");
        }
    }
}

#[test]
fn a_forked_child_writes_a_file_of_its_own() {
    let built = Built::new();
    for set in [Set::Both, Set::NoCupti] {
        let ran = built.run("linked", "fork", set);
        assert_eq!(ran.status.code(), Some(5), "{}", ran.wrong);
        let mut events: Vec<usize> = ran.logs.iter().map(|log| log.events.len()).collect();
        events.sort_unstable();
        // The parent did twice what the child did.
        assert_eq!(events[1], 2 * events[0], "{events:?}");
        let parents: Vec<&str> =
            ran.logs.iter().map(|log| log.header.attributes["parent process"].as_str()).collect();
        let processes: Vec<&str> =
            ran.logs.iter().map(|log| log.header.attributes["process"].as_str()).collect();
        assert!(processes.contains(&parents[0]) || processes.contains(&parents[1]));
    }
}

#[test]
fn without_cupti_one_line_says_why() {
    let built = Built::new();
    for (set, why) in [
        (Set::NoCupti, "cannot open shared object"),
        (Set::Taken, "another profiler is attached"),
        (Set::Unknown, "its API version 7 is not one of those that are known"),
    ] {
        let ran = built.run("lookup", "plain", set);
        assert_eq!(ran.wrong.lines().count(), 1, "{}", ran.wrong);
        assert!(ran.wrong.contains(why), "{}", ran.wrong);
        assert_eq!(counted(&ran.logs[0]), ran.said);
    }
}

#[test]
fn a_log_that_cannot_be_written_leaves_the_program_alone() {
    let built = Built::new();
    let output = Command::new(built.folder.path().join("program"))
        .args(["lookup", "plain"])
        .env("POOLSIM_CALLS", "/nonexistent/log")
        .env("LD_PRELOAD", library())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    let wrong = String::from_utf8(output.stderr).unwrap();
    assert!(wrong.lines().count() == 1 && wrong.contains("/nonexistent/log"), "{wrong}");
}
