//! Profiler traces: whatever the bytes, an error or a legal trace.
#![no_main]

use libfuzzer_sys::fuzz_target;
use poolsim_core::TraceReader;
use poolsim_traces::import::kineto;
use poolsim_traces::{OpenOptions, check};
use std::sync::Arc;

fuzz_target!(|bytes: &[u8]| {
    let Ok(imported) = kineto::read(bytes, &OpenOptions::default()) else { return };
    let trace = imported.source.into_trace().expect("it is a trace");
    check::check(&mut TraceReader::new(Arc::new(trace))).expect("only legal traces are read");
});
