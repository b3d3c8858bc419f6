//! Native JSON and JSON lines: whatever the text, an error or a legal trace that comes back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use poolsim_core::TraceReader;
use poolsim_traces::native::{read_json, read_jsonl, write_json, write_jsonl};
use poolsim_traces::{Tables, check};
use std::sync::Arc;

fuzz_target!(|bytes: &[u8]| {
    let read = [read_json(bytes), read_jsonl(bytes)];
    for trace in read.into_iter().flatten() {
        let trace = Arc::new(trace);
        check::check(&mut TraceReader::new(trace.clone())).expect("only legal traces are read");
        let mut json = Vec::new();
        let mut lines = Vec::new();
        let tables = Tables::of(&trace);
        write_json(&mut json, &mut TraceReader::new(trace.clone()), &tables).expect("a Vec takes all");
        write_jsonl(&mut lines, &mut TraceReader::new(trace.clone()), &tables).expect("a Vec takes all");
        assert_eq!(read_json(&json[..]).expect("what is written can be read").events, trace.events);
        assert_eq!(read_jsonl(&lines[..]).expect("what is written can be read").events, trace.events);
    }
});
