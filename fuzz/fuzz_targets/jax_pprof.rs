//! JAX's memory profiles: whatever the bytes, an error or a state whose blocks fill their range.
#![no_main]

use libfuzzer_sys::fuzz_target;
use poolsim_core::BlockState;
use poolsim_traces::import::jax_pprof;
use poolsim_traces::{OpenOptions, Source};

fuzz_target!(|bytes: &[u8]| {
    let Ok(imported) = jax_pprof::read(bytes, &OpenOptions::default()) else { return };
    let Source::Recording(state) = imported.source else { panic!("a profile is a state") };
    assert_eq!(state.heap.bytes_in(BlockState::Allocated), state.heap.reserved());
});
