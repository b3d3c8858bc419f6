//! A small file of every format, cut at every byte and changed at every byte: an error or a legal trace, never a panic.

use super::formats::{KINETO, STALLOC, TIMELINE, VMA, data};
use super::{corpus, opened, trace_of};
use poolsim_core::TraceError;
use poolsim_traces::Source;

/// A small file of each format of other programs, by its name.
fn small_files() -> Vec<(&'static str, Vec<u8>)> {
    let rmm = std::fs::read(corpus("rmm/unet_multires.rmm.csv")).unwrap();
    let lines = rmm.split_inclusive(|&b| b == b'\n').take(12);
    let nsys = zstd::decode_all(&data("nsys.sqlite.zst")[..]).unwrap();
    vec![
        ("rmm-csv", lines.flatten().copied().collect()),
        ("kineto", KINETO.into()),
        ("torch-timeline", TIMELINE.into()),
        ("stalloc", STALLOC.into()),
        ("vma-replay", VMA.into()),
        ("nsys-sqlite", nsys),
        ("jax-pprof", data("jax.prof")),
    ]
}

/// Which bytes to cut at or change: all of a small file, every 37th of a larger one.
fn places(bytes: &[u8]) -> impl Iterator<Item = usize> + use<> {
    (0..bytes.len()).step_by(if bytes.len() > 8192 { 37 } else { 1 })
}

/// The events that bytes hold, or entries; an error only if they are no such file.
fn read(format: &str, bytes: &[u8]) -> Result<usize, TraceError> {
    let found = opened(bytes)?;
    assert_eq!(found.format, format);
    match found.source {
        Source::Trace(_) => trace_of(bytes).map(|(_, trace)| trace.events.len()),
        Source::Recording(recording) => Ok(recording.heap.blocks().count()),
        Source::Pst(_) => unreachable!("none of them is a .pst"),
    }
}

#[test]
fn cut_at_every_byte() {
    for (format, bytes) in small_files() {
        let whole = read(format, &bytes).unwrap_or_else(|e| panic!("{format}: {e}"));
        for len in places(&bytes) {
            match read(format, &bytes[..len]) {
                Ok(count) => assert!(count <= whole, "{format} cut at {len}"),
                Err(error) => assert!(!error.what.is_empty(), "{format} cut at {len}"),
            }
        }
    }
}

#[test]
fn changed_at_every_byte() {
    for (_, bytes) in small_files() {
        for at in places(&bytes) {
            for change in [0x01, 0x10, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                // `trace_of` fails the test if what was read is not legal.
                let _ = trace_of(&changed);
            }
        }
    }
}
