//! PyTorch's raw memory timelines: whatever the bytes, an error or a legal trace.
#![no_main]

use libfuzzer_sys::fuzz_target;
use poolsim_core::TraceReader;
use poolsim_traces::check;
use poolsim_traces::import::torch_timeline;
use std::sync::Arc;

fuzz_target!(|bytes: &[u8]| {
    let Ok(trace) = torch_timeline::read(bytes) else { return };
    check::check(&mut TraceReader::new(Arc::new(trace))).expect("only legal traces are read");
});
