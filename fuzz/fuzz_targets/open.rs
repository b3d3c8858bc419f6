//! Any file at all: sniffing, compression and every importer behind them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use poolsim_traces::{OpenOptions, open};
use std::fs;

fuzz_target!(|bytes: &[u8]| {
    let path = std::env::temp_dir().join(format!("poolsim-fuzz-{}", std::process::id()));
    fs::write(&path, bytes).expect("the temporary directory takes a file");
    for recover in [false, true] {
        let options = OpenOptions { recover, ..OpenOptions::default() };
        if let Ok(opened) = open(&path, &options) {
            let _ = opened.source.into_trace();
        }
    }
});
