//! The other formats: what each file says comes out, and what it lacks is said.

use super::{count, opened, trace_of};
use poolsim_core::event::Knows;
use poolsim_core::{EventKind, Recording, Trace, TraceError};
use poolsim_traces::{Opened, Source};

/// A file of `data/`.
pub fn data(name: &str) -> Vec<u8> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs/data");
    std::fs::read(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

pub const KINETO: &str = r#"{"schemaVersion": 1,
 "deviceProperties": [{"id": 0, "name": "A"}, {"id": 1, "name": "Test GPU", "totalGlobalMem": 34089730048}],
 "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2},
 "baseTimeNanoseconds": 1790000000000000000,
 "traceEvents": [
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "ts": 90, "dur": 15.5, "args": {"External id": 1}},
  {"ph": "X", "cat": "user_annotation", "name": "too early", "ts": 1, "dur": 2},
  {"ph": "i", "name": "[memory]", "ts": 101.250, "args": {"Device Type": 1, "Device Id": 1, "Addr": 4096, "Bytes": 1024, "Total Allocated": 6144, "Total Reserved": 9000}},
  {"ph": "i", "name": "[memory]", "ts": 103, "args": {"Device Type": 1, "Device Id": 1, "Addr": 4096, "Bytes": -1024, "Total Allocated": 5120, "Total Reserved": 9000}},
  {"ph": "i", "name": "[memory]", "ts": 100, "args": {"Device Type": 1, "Device Id": 1, "Addr": 512, "Bytes": -1024, "Total Allocated": 5120, "Total Reserved": 9000}},
  {"ph": "i", "name": "[memory]", "ts": 103, "args": {"Device Type": 0, "Device Id": -1, "Addr": 1, "Bytes": 7}},
  {"ph": "i", "name": "[memory]", "ts": 104, "args": {"Device Type": 1, "Device Id": 0, "Addr": 1, "Bytes": 7}},
  {"name": 7, "args": [1], "ts": null}, {}
 ], "traceName": "x"}"#;

pub const TIMELINE: &str = "[[-1, 1, 4096, 7], [-1, 1, 512, 0], [1790000000000000000, 2, 1024, 1], \
    [1790000000000000500, 3, -1024, 1], [1790000000000000500, 3, 1024, 2], [1790000000000000900, 4, -512, 0], \
    [1790000000000001000, 4, -1024, 2]]";

pub const STALLOC: &str = "Iteration Index : head\n1 0x7f00 1024 0\nIteration Index : 0\nmicro-batch : F\n\
    m.layers.0.mlp->ParallelMLP Layer : F-start\n1 0x8f00 2048 5\n0 0x8f00 2048 5\n0 0 0 0\nIteration Index : end\n\
    0 0x7f00 1024 0\n";

pub const VMA: &str = "Vulkan Memory Allocator,Calls recording\n1,8\nConfig,Begin\n\
    PhysicalDevice,deviceName,Test GPU\nPhysicalDeviceMemory,Heap,0,size,2075918336\n\
    PhysicalDeviceMemory,Heap,0,flags,1\nPhysicalDeviceMemory,Heap,1,size,8265048064\n\
    PhysicalDeviceMemory,Heap,1,flags,0\nConfig,End\n\
    1,0.002,0,vmaCreateAllocator\n\
    1,0.134,0,vmaCreateImage,0,1,126,800,600,1,1,1,1,0,32,0,0,32,1,0,0,0,0000000000000000,0000000007F66FA0,depth\n\
    1,0.302,0,vmaCreateBuffer,0,4194304,1,0,36,3,0,0,0,0000000000000000,0000000007F66FE8,tex,ture\n\
    1,0.303,0,vmaCreateBuffer,0,512,1,0,36,2,0,0,0,0000000000000000,0000000007F66FF0,host\n\
    1,0.304,0,vmaAllocateMemory,1000,64,7,0,1,0,0,7,0000000000000000,0000000007F77000,\n\
    1,0.304,0,vmaAllocateMemory,99999999999,64,7,0,1,0,0,7,0000000000000000,0000000000000000,\n\
    1,0.388,1,vmaDestroyBuffer,0000000007F66FE8\n\
    1,0.389,1,vmaDestroyImage,0000000007F66FA0\n1,0.390,1,vmaDestroyBuffer,0000000007F66FF0\n\
    1,0.4,1,vmaFreeMemory,0000000007F77000\n1,0.5,1,vmaDestroyAllocator\n";

fn kinds(trace: &Trace) -> Vec<EventKind> {
    trace.events.iter().map(|e| e.kind()).collect()
}

fn sizes(trace: &Trace) -> Vec<u64> {
    trace.events.iter().map(|e| e.size).collect()
}

fn times(trace: &Trace) -> Vec<u64> {
    trace.events.iter().map(|e| e.at).collect()
}

use EventKind::{Alloc, AllocRefused, Free, Preexisting};

#[test]
fn kineto_events_are_put_in_order_and_told_apart_by_address() {
    let (format, trace) = trace_of(KINETO.as_bytes()).unwrap();
    assert_eq!(format, "kineto");
    assert_eq!(kinds(&trace), [Preexisting, Preexisting, Free, Alloc, Free]);
    // 6144 were live before the first event: the one that it frees, and the rest.
    assert_eq!(sizes(&trace), [1024, 5120, 1024, 1024, 1024]);
    assert_eq!(times(&trace), [0, 0, 0, 1250, 3000]);
    let header = &trace.header;
    assert_eq!((header.device, header.device_name.as_deref()), (1, Some("Test GPU")));
    assert_eq!(header.device_memory, Some(34_089_730_048));
    assert_eq!(header.start_unix_us, Some(1_790_000_000_000_100));
    assert_eq!(header.attributes["rank"], "1");
    let knows = Knows {
        streams: false,
        completions: false,
        pools: false,
        from_start: false,
        ..Knows::default()
    };
    assert_eq!(header.knows, knows);
    let spans: Vec<_> =
        trace.annotations.iter().map(|a| (a.name.as_str(), a.start, a.end)).collect();
    assert_eq!(spans, [("ProfilerStep#2", 0, Some(5500))]);
}

#[test]
fn kineto_events_without_addresses_are_paired_by_size() {
    let text = KINETO.replace("\"Addr\"", "\"Ptr\"").replace("\"Total Allocated\"", "\"T\"");
    let (_, trace) = trace_of(text.as_bytes()).unwrap();
    assert_eq!(kinds(&trace), [Preexisting, Free, Alloc, Free]);
    let knows = trace.header.knows;
    assert!(!knows.identity && !knows.order && !knows.from_start);
    assert!(trace.header.notes.iter().any(|note| note.contains("no addresses")));
}

#[test]
fn kineto_traces_without_memory_events_are_refused_with_the_profilers_option() {
    for text in [
        r#"{"traceEvents": [{"name": "f", "ts": 1}]}"#,
        r#"{"traceEvents": [{"name": "[memory]", "ts": 1, "args": {"Device Type": 0, "Bytes": 1}}]}"#,
        r#"[{"ph": "X", "pid": 1, "ts": 1}]"#,
    ] {
        let error = trace_of(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("profile_memory=True"), "{error}");
    }
}

#[test]
fn timelines_are_paired_by_size() {
    let (format, trace) = trace_of(TIMELINE.as_bytes()).unwrap();
    assert_eq!(format, "torch-timeline");
    assert_eq!(kinds(&trace), [Preexisting, Preexisting, Alloc, Free, Free]);
    assert_eq!(sizes(&trace), [4096, 512, 1024, 512, 1024]);
    assert_eq!(times(&trace), [0, 0, 0, 900, 1000]);
    assert_eq!(trace.events[3].slot, trace.events[1].slot);
    assert_eq!(trace.header.start_unix_us, Some(1_790_000_000_000_000));
    let knows = trace.header.knows;
    assert!(!knows.identity && !knows.streams && !knows.from_start && knows.order);
}

#[test]
fn stalloc_logs_have_iterations_and_no_times() {
    let (format, trace) = trace_of(STALLOC.as_bytes()).unwrap();
    assert_eq!(format, "stalloc");
    assert_eq!(kinds(&trace), [Alloc, Alloc, Free, Free]);
    assert_eq!(trace.header.streams, [0, 5]);
    assert!(!trace.header.knows.times && !trace.header.knows.completions);
    let spans: Vec<_> =
        trace.annotations.iter().map(|a| (a.name.as_str(), a.start, a.end)).collect();
    assert_eq!(
        spans,
        [
            ("iteration head", 0, Some(1)),
            ("micro-batch F", 1, Some(3)),
            ("iteration 0", 1, Some(3)),
            ("iteration end", 3, Some(4))
        ]
    );
}

#[test]
fn vma_recordings_give_the_memory_of_the_device() {
    let (format, trace) = trace_of(VMA.as_bytes()).unwrap();
    assert_eq!(format, "vma-replay");
    assert_eq!(kinds(&trace), [Alloc, Alloc, AllocRefused, Free, Free]);
    assert_eq!(sizes(&trace), [4_194_304, 1000, 99_999_999_999, 4_194_304, 1000]);
    assert_eq!(times(&trace)[1], 2_000_000);
    assert_eq!(trace.header.device_memory, Some(2_075_918_336));
    let notes = trace.header.notes.join("\n");
    assert!(notes.contains("1 images") && notes.contains("1 allocations of host"), "{notes}");
    let twice = VMA.replace("vmaFreeMemory,0000000007F77000", "vmaDestroyBuffer,0000000007F66FE8");
    let error = trace_of(twice.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("line 19") && error.contains("freed twice"), "{error}");
}

#[test]
fn nsight_exports_give_the_driver_calls_of_one_process_and_device() {
    let (format, trace) = trace_of(&data("nsys.sqlite.zst")).unwrap();
    assert_eq!(format, "nsys-sqlite");
    assert_eq!(kinds(&trace)[..6], [Preexisting, Alloc, Alloc, Free, Alloc, Free]);
    assert_eq!(times(&trace)[..6], [0, 0, 100, 200, 300, 400]);
    assert_eq!((count(&trace, Alloc), count(&trace, Free)), (23, 22));
    assert_eq!(trace.header.streams, [0, 7, 13]);
    let header = &trace.header;
    assert_eq!((header.device, header.device_name.as_deref()), (1, Some("Test GPU")));
    assert_eq!(header.device_memory, Some(24 << 30));
    assert_eq!(header.start_unix_us, Some(1_790_000_000_000_001));
    let notes = header.notes.join("\n");
    assert!(notes.contains("2 processes") && notes.contains("1 events of pinned"), "{notes}");
    let spans: Vec<_> =
        trace.annotations.iter().map(|a| (a.name.as_str(), a.start, a.end)).collect();
    assert_eq!(
        spans,
        [
            ("step 1", 0, Some(1500)),
            ("string 0", 1000, None),
            ("mark", 1100, Some(1100)),
            ("string 280", 1200, Some(1300))
        ]
    );
    assert!(!header.knows.pools && !header.knows.from_start && header.knows.streams);
}

fn recording(read: Result<Opened, TraceError>) -> Recording {
    match read.unwrap().source {
        Source::Recording(recording) => *recording,
        source => panic!("{source:?}"),
    }
}

#[test]
fn snapshots_of_torch_npu_are_snapshots_with_settings_of_their_own() {
    let entry = |action: &str, at: u64| {
        format!(
            r#"{{"action": "{action}", "addr": 4096, "size": 512, "stream": 0, "time_us": {at}, "allocated": 512}}"#
        )
    };
    let entries = [entry("segment_alloc", 1), entry("alloc", 2), entry("workspace_snapshot", 3)];
    let text = format!(
        r#"{{"segments": [], "device_traces": [[{}]], "allocator_settings":
            {{"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:False, page_size:1g", "max_split_size": -1}}}}"#,
        entries.join(",")
    );
    let recording = recording(opened(text.as_bytes()));
    let header = recording.header;
    assert_eq!(header.source, "torch-npu-snapshot");
    assert_eq!(header.settings.as_deref(), Some("expandable_segments:False"));
    assert_eq!(header.attributes["torch_npu.page_size"], "1g");
    assert_eq!(recording.entries.len(), 2);
    assert!(header.notes.iter().any(|note| note.contains("Ascend")));
}

#[test]
fn jax_profiles_are_states() {
    let state = recording(opened(&data("jax.prof")));
    assert!(state.entries.is_empty());
    let sizes: Vec<u64> = state.heap.blocks().map(|(_, block)| block.size).collect();
    assert_eq!(sizes, [1000, 1000, 1001, 77]);
    let (_, block) = state.heap.blocks().next().unwrap();
    let calls: Vec<String> = state
        .stacks
        .stack(block.stack)
        .map(|f| format!("{} {}:{}", f.name, f.file, f.line))
        .collect();
    assert_eq!(calls, ["init model.py:40", "<module> model.py:7"]);
    assert!(!state.header.knows.identity && state.header.knows.stacks);
}

#[test]
fn what_looks_alike_but_is_something_else_says_what_it_is() {
    let error = opened(&data("nsys_without_events.sqlite.zst")).map(|o| o.format).unwrap_err();
    assert!(error.what.contains("--cuda-memory-usage=true"), "{error}");
    let other =
        data("jax.prof").iter().map(|&b| if b == b'c' { b'C' } else { b }).collect::<Vec<_>>();
    let error = opened(&other).map(|o| o.format).unwrap_err();
    assert!(error.what.contains("not of device memory"), "{error}");
}
