//! Driver call logs: whatever the bytes, an error or a legal trace.
#![no_main]

use libfuzzer_sys::fuzz_target;
use poolsim_core::TraceReader;
use poolsim_traces::check;
use poolsim_traces::import::driver_calls;
use std::sync::Arc;

fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = driver_calls::read(bytes, None) else { return };
    let trace = read.source.into_trace().expect("a log is read into memory");
    check::check(&mut TraceReader::new(Arc::new(trace))).expect("only legal traces are read");
});
