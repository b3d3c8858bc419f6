//! The native JSON formats: what people write is understood, and mistakes are named.

mod common;

use common::{assert_same, legal_trace, pst_bytes};
use poolsim_core::error::Place;
use poolsim_core::stack::Frame;
use poolsim_core::{Event, EventKind, PoolId, Slot, StreamId, Trace, TraceReader};
use poolsim_traces::native::{read_json, read_jsonl, write_json, write_jsonl};
use poolsim_traces::{PstReader, Tables, check, digest};
use proptest::prelude::*;
use std::sync::Arc;

fn written(trace: &Trace, lines: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut source = TraceReader::new(Arc::new(trace.clone()));
    let write = if lines { write_jsonl } else { write_json };
    write(&mut out, &mut source, &Tables::of(trace)).unwrap();
    out
}

fn read(text: &str) -> Result<Trace, String> {
    read_json(text.as_bytes()).map_err(|e| e.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn every_container_holds_the_same_trace(trace in legal_trace(200)) {
        let json = read_json(&written(&trace, false)[..]).unwrap();
        let lines = read_jsonl(&written(&trace, true)[..]).unwrap();
        assert_same(&trace, &json);
        assert_same(&trace, &lines);
        let mut pst = PstReader::from_bytes(pst_bytes(&trace)).unwrap();
        let fingerprint = digest(&mut pst).unwrap();
        for trace in [json, lines] {
            prop_assert_eq!(digest(&mut TraceReader::new(Arc::new(trace))).unwrap(), fingerprint);
        }
        check::check(&mut TraceReader::new(Arc::new(trace))).unwrap();
    }

    #[test]
    fn changed_bytes_never_panic(
        trace in legal_trace(20),
        lines in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut text = written(&trace, lines);
        for (at, byte) in changes {
            let at = at.index(text.len());
            text[at] = byte;
        }
        let _ = read_json(&text[..]);
        let _ = read_jsonl(&text[..]);
        text.truncate(cut.index(text.len()));
        prop_assert!(lines || read_json(&text[..]).is_err());
        let _ = read_jsonl(&text[..]);
    }
}

#[test]
fn a_bug_report_by_hand() {
    let trace = read(
        r#"{
          "poolsim_trace": 1,
          "settings": "max_split_size_mb:128",
          "device_memory": "24GiB",
          "capacity": "14 GiB",
          "events": [
            {"alloc": "model", "size": "1.5GiB"},
            {"alloc": 7, "size": 512, "stream": 1, "t": "1.5ms", "stack": ["f (a.py:12)", "main"]},
            {"use": "model", "stream": 1},
            {"free_later": "model"},
            {"free_done": "model"},
            {"alloc_refused": "big", "size": "100GiB"},
            {"free": "7"},
            {"empty_cache": true},
            {"alloc": "model", "size": 1, "pool": 1}
          ]
        }"#,
    )
    .unwrap();
    let event = |kind, at, slot, size, stream, pool| {
        Event::new(kind, at, Slot(slot), size, StreamId(stream), PoolId(pool))
    };
    use EventKind::*;
    assert_eq!(
        trace.events,
        [
            event(Alloc, 0, 0, 3 << 29, 0, 0),
            event(Alloc, 1_500_000, 1, 512, 1, 0),
            event(Use, 1_500_000, 0, 0, 1, 0),
            event(FreeLater, 1_500_000, 0, 3 << 29, 0, 0),
            event(FreeDone, 1_500_000, 0, 3 << 29, 0, 0),
            event(AllocRefused, 1_500_000, 0, 100 << 30, 0, 0),
            event(Free, 1_500_000, 1, 512, 1, 0),
            event(EmptyCache, 1_500_000, 0, 0, 0, 0),
            event(Alloc, 1_500_000, 0, 1, 0, 1),
        ]
    );
    let header = &trace.header;
    assert_eq!(header.device_memory, Some(24 << 30));
    assert_eq!(header.attributes["capacity"], (14u64 << 30).to_string());
    assert_eq!((header.events, header.slots), (Some(9), Some(2)));
    assert_eq!((header.streams.len(), header.pools.len()), (2, 2));
    assert!(header.knows.times && header.knows.stacks);
    let stack: Vec<Frame> = trace.stacks.stack(trace.event_stacks[1]).cloned().collect();
    assert_eq!(stack[0], Frame { name: "f".into(), file: "a.py".into(), line: 12 });
    assert_eq!(stack[1].name, "main");
}

#[test]
fn mistakes_in_events_are_named() {
    let cases = [
        (r#"{"alloc": "a", "sise": 1}"#, "unknown event field `sise`; did you mean `size`?"),
        (r#"{"malloc": "a", "size": 1}"#, "did you mean `alloc`?"),
        (r#"{"xyzzy": 1}"#, "known are alloc, alloc_refused, free"),
        (r#"{"alloc": "a"}"#, "`alloc` needs a size"),
        (r#"{"size": 1}"#, "does not say what happens"),
        (r#"{"alloc": "a", "free": "a"}"#, "both `alloc` and `free`"),
        (r#"{"alloc": "a", "size": 1, "size": 2}"#, "`size` is given twice"),
        (r#"{"alloc": "a", "size": "2 apples"}"#, "write 512, 2MiB or 1.5GiB"),
        (r#"{"alloc": "a", "size": -1}"#, "not negative"),
        (r#"{"alloc": "a", "size": 1e9}"#, "whole number"),
        (r#"{"alloc": "a", "size": 1, "stream": 70000}"#, "put raw handles into `streams`"),
        (r#"{"alloc": "a", "size": 1, "pool": 5000}"#, "pool 5000 is above 4095"),
        (r#"{"free": "a"}"#, "`a` is freed, but was never allocated"),
        (r#"{"alloc": "x", "size": 1}"#, "`x` is still live since event 0"),
        (r#"{"free": "x", "size": 9}"#, "allocated with 8 bytes"),
        (r#"{"free_done": "x"}"#, "`free_later` comes before `free_done`"),
        (r#"{"free": "x"}, {"free": "x"}"#, "`x` is freed twice, first in event 1"),
        (r#"{"free": "x"}, {"use": "x", "stream": 1}"#, "was freed in event 1"),
        (r#"{"use": "x"}"#, "`use` needs a stream"),
        (r#"{"free": "x", "t": 3}"#, "time runs backwards, from 5 to 3 ns"),
        (r#"{"alloc": "y", "size": 18446744073709551615}"#, "more than 2^64 - 1 bytes"),
        (r#"{"alloc": "y", "size": 18446744073709551616}"#, "whole number"),
        (r#"{"empty_cache": true, "size": 4}"#, "`size` has no meaning for `empty_cache`"),
        (r#"{"preexisting": "y", "size": 4}"#, "before every other event"),
        (r#"{"pool_close": 2}"#, "no `pool_open` of it is in force"),
        (r#"[1]"#, "an event such as"),
        (r#"{"alloc": "y", "size": 1, "stack": 3}"#, "event 1 has stack 3"),
    ];
    for (event, expected) in cases {
        let text = format!(
            "{{\"poolsim_trace\": 1, \"events\": [\n{{\"alloc\": \"x\", \"size\": 8, \"t\": 5}},\n{event}\n]}}"
        );
        let error = read_json(text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(expected), "{event}: {error}");
        if error.place != Place::Whole {
            assert_eq!(error.place, Place::Line(3), "{error}");
        }
    }
}

#[test]
fn mistakes_in_the_header_are_named() {
    let cases = [
        (r#"{"poolsim_trace": 2}"#, "schema version 2"),
        (r#"{"poolsim_trace": 0}"#, "write 1"),
        (r#"{"poolsim_trace": 1, "setings": ""}"#, "did you mean `settings`?"),
        (r#"{"poolsim_trace": 1, "memory_fraction": 1.5}"#, "at most 1"),
        (r#"{"poolsim_trace": 1, "device_memory": "x"}"#, "not a size"),
        (r#"{"poolsim_trace": 1, "knows": {"stream": false}}"#, "did you mean `streams`?"),
        (r#"{"poolsim_trace": 1, "ids": "slot"}"#, "`names` or `slots`"),
        (r#"{"poolsim_trace": 1, "events": [], "events": []}"#, "given twice"),
        (
            r#"{"poolsim_trace": 1, "events": [{"alloc": 1, "size": 1}], "ids": "slots"}"#,
            "before the first event",
        ),
        (
            r#"{"poolsim_trace": 1, "ids": "slots", "events": [{"alloc": 7, "size": 1}]}"#,
            "slot 7 is not dense",
        ),
        (
            r#"{"poolsim_trace": 1, "ids": "slots", "events": [{"alloc": "a", "size": 1}]}"#,
            "slot numbers",
        ),
        (r#"{"poolsim_trace": 1, "initial_heap": {"ranges": []}}"#, "\"ids\": \"slots\""),
        (r#"{"poolsim_trace": 1, "stacks": [[0]]}"#, "row 0 of `stacks`"),
        (r#"{"poolsim_trace": 1, "pools": [{"id": 1, "nosplit": true}]}"#, "nosplit"),
        (r#"{"poolsim_trace": 1} x"#, "trailing"),
        (r#"{"poolsim_trace": 1,"#, "cut short"),
    ];
    for (text, expected) in cases {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn lines_may_be_events_alone() {
    let text = "{\"alloc\": \"a\", \"size\": 1}\n\n{\"annotation\": \"step 1\", \"start\": 0}\n{\"free\": \"a\"}";
    let trace = read_jsonl(text.as_bytes()).unwrap();
    assert_eq!((trace.events.len(), trace.annotations.len()), (2, 1));
    let error =
        read_jsonl("{\"alloc\": \"a\", \"size\": 1}\n{\"fre\": \"a\"}".as_bytes()).unwrap_err();
    assert_eq!(error.place, Place::Line(2));
    assert!(error.to_string().contains("did you mean `free`?"), "{error}");
    let error = read_jsonl("{\"poolsim_trace\": 1, \"settngs\": \"\"}".as_bytes()).unwrap_err();
    assert!(error.to_string().contains("did you mean `settings`?"), "{error}");
}

#[test]
fn nesting_a_million_deep_is_an_error() {
    for open in ["[", "{\"a\":"] {
        let deep = open.repeat(1_000_000);
        for prefix in [
            "",
            "{\"poolsim_trace\": 1, \"events\": ",
            "{\"poolsim_trace\": 1, \"initial_heap\": ",
            "{\"poolsim_trace\": 1, \"events\": [{\"alloc\": 1, \"size\": 1, \"stack\": ",
            "{\"poolsim_trace\": 1, \"x\": ",
        ] {
            let text = format!("{prefix}{deep}");
            assert!(read_json(text.as_bytes()).is_err());
            assert!(read_jsonl(text.as_bytes()).is_err());
        }
    }
}
