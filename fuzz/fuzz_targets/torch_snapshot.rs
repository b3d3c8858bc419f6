//! PyTorch snapshots: whatever the bytes, an error or a recording that can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use poolsim_traces::export::write_torch_snapshot;
use poolsim_traces::import::torch::{history_gaps, torch_html, torch_json, torch_pickle};
use poolsim_traces::{OpenOptions, Source};

fuzz_target!(|bytes: &[u8]| {
    let Some((&form, bytes)) = bytes.split_first() else { return };
    let options = OpenOptions::default();
    let read = match form {
        b'j' => torch_json::read(bytes, &options),
        b'h' => torch_html::read(bytes, &options),
        _ => torch_pickle::read(bytes, &options),
    };
    let Ok(imported) = read else { return };
    let Source::Recording(recording) = imported.source else { panic!("snapshots are recordings") };
    history_gaps(&recording);
    let mut out = Vec::new();
    write_torch_snapshot(&mut out, &recording).expect("a Vec takes all");
    let again = torch_pickle::read(out.as_slice(), &OpenOptions { device: Some(recording.header.device), ..OpenOptions::default() });
    again.expect("what is written can be read");
});
