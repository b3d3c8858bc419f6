//! Nsight Systems exports: whatever the bytes, an error or a legal trace.
#![no_main]

use libfuzzer_sys::fuzz_target;
use poolsim_core::TraceReader;
use poolsim_traces::import::nsys_sqlite;
use poolsim_traces::{OpenOptions, check};
use std::sync::Arc;

fuzz_target!(|bytes: &[u8]| {
    let Ok(imported) = nsys_sqlite::read(bytes.to_vec(), &OpenOptions::default()) else { return };
    let trace = imported.source.into_trace().expect("it is a trace");
    check::check(&mut TraceReader::new(Arc::new(trace))).expect("only legal traces are read");
});
