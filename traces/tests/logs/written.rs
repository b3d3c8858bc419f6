//! Round trips: what a format can hold comes back.

#[path = "../common/mod.rs"]
mod common;

use super::{corpus, opened, trace_of};
use poolsim_core::{EventKind, Trace};
use poolsim_traces::export::{self, EXPORTERS};
use poolsim_traces::{OpenOptions, Source, open};
use proptest::prelude::*;
use std::collections::HashMap;

fn written(source: &Source, format: &str) -> Vec<u8> {
    let exporter = export::find(Some(format), std::path::Path::new("")).unwrap();
    let mut bytes = Vec::new();
    (exporter.write)(source, &mut bytes).unwrap();
    bytes
}

/// What a log of requests and frees can say: kind, time in units of `unit`, size, stream handle, and which allocation.
type Said = (EventKind, u64, u64, u64, u64);

fn said(trace: &Trace, unit: u64, refusals: bool) -> Vec<Said> {
    let mut named = HashMap::new();
    let mut next = 0;
    let mut said = Vec::new();
    for event in &trace.events {
        let (kind, name) = match event.kind() {
            EventKind::Alloc | EventKind::Preexisting => {
                next += 1;
                named.insert(event.slot, next);
                (EventKind::Alloc, next)
            }
            EventKind::Free | EventKind::FreeLater => (EventKind::Free, named[&event.slot]),
            EventKind::AllocRefused if refusals => (EventKind::AllocRefused, 0),
            _ => continue,
        };
        let handle = trace.header.streams[event.stream.index()];
        said.push((kind, event.at / unit, event.size, handle, name));
    }
    let first = said.first().map_or(0, |s| s.1);
    said.iter_mut().for_each(|s| s.1 -= first);
    said
}

proptest! {
    #[test]
    fn rmm_logs_hold_requests_frees_streams_and_microseconds(trace in common::legal_trace(200)) {
        let bytes = written(&Source::Trace(Box::new(trace.clone())), "rmm-csv");
        let wanted = said(&trace, 1000, true);
        prop_assume!(!wanted.is_empty());
        let (format, read) = trace_of(&bytes).unwrap();
        prop_assert_eq!(format, "rmm-csv");
        prop_assert_eq!(said(&read, 1000, true), wanted);
    }

    #[test]
    fn timelines_hold_requests_frees_streams_nanoseconds_and_spans(trace in common::legal_trace(200)) {
        let bytes = written(&Source::Trace(Box::new(trace.clone())), "chrome");
        let wanted = said(&trace, 1, false);
        prop_assume!(!wanted.is_empty());
        let (format, read) = trace_of(&bytes).unwrap();
        prop_assert_eq!(format, "kineto");
        prop_assert_eq!(said(&read, 1, false), wanted);
        prop_assert!(read.header.knows.order && read.header.knows.streams);
        prop_assert_eq!(read.header.device, trace.header.device);
        prop_assert_eq!(read.header.device_memory, trace.header.device_memory);
    }
}

#[test]
fn a_recordings_timeline_ends_at_what_its_heap_holds() {
    for name in ["default/multistream", "expand/multistream", "default/fuzz_pressure-lim14"] {
        let path = corpus(&format!("{name}.pickle.zst"));
        let source = open(&path, &OpenOptions::default()).unwrap().source;
        let bytes = written(&source, "chrome");
        let Source::Recording(recording) = source else { panic!("a snapshot") };
        let timeline: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let rows = timeline["traceEvents"].as_array().unwrap();
        let counters: Vec<_> = rows.iter().filter(|row| row["ph"] == "C").collect();
        let last = &counters.last().unwrap()["args"];
        assert_eq!(last["reserved"], recording.heap.reserved(), "{name}");
        assert_eq!(counters[0]["args"]["allocated"], 0, "{name}");
        let (format, trace) = trace_of(&bytes).unwrap();
        assert_eq!(format, "kineto");
        let allocs = recording.entries.iter().filter(|e| e.action.name() == "alloc").count();
        assert_eq!(super::count(&trace, EventKind::Alloc), allocs, "{name}");
    }
}

#[test]
fn a_pause_that_a_log_without_dates_cannot_show_is_refused() {
    let text =
        br#"{"poolsim_trace": 1, "events": [{"alloc": 1, "size": 1}, {"free": 1, "t": "90000s"}]}"#;
    let source = opened(text).unwrap().source;
    let exporter = export::find(Some("rmm-csv"), std::path::Path::new("")).unwrap();
    let error = (exporter.write)(&source, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("event 1") && error.what.contains("22 hours"), "{error}");
}

#[test]
fn only_formats_of_our_own_lose_nothing() {
    for exporter in EXPORTERS.iter().filter(|e| e.loses.is_empty()) {
        assert!(["pst", "native-json", "native-jsonl", "torch-pickle"].contains(&exporter.name));
    }
}
