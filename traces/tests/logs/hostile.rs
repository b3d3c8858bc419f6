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

#[test]
fn nesting_numbers_and_lines_without_end_are_errors() {
    let deep = |open: &str| format!("{{\"traceEvents\": [{}", open.repeat(200_000));
    let big = "9".repeat(400);
    let memory = |fields: &str| {
        format!(
            r#"{{"traceEvents": [{{"name": "[memory]", "ts": 1, "args": {{"Device Type": 1, {fields}}}}}]}}"#
        )
    };
    for text in [
        deep("["),
        deep("{\"a\":"),
        deep("{\"args\": [{\"args\": ["),
        format!("[[1, 2, 512, {}", "[".repeat(200_000)),
        format!("[[1, 2, {big}, 0]]"),
        "[[1, 2, 512, 0], [1, 2, -512, 0]]".into(),
        "[[1, 2, 512, 0], [1, 9, 512, 0]]".into(),
        format!("[[1, 2, {}, 0], [1, 2, {}, 0], [1, 2, {0}, 0]]", i64::MAX, i64::MAX),
        memory(&format!("\"Bytes\": {big}")),
        memory("\"Bytes\": 9223372036854775807, \"Total Allocated\": 18446744073709551615"),
        format!(
            "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00.0,allocate,{}",
            "x".repeat(1 << 20)
        ),
        format!("1 0x1 {big} 0\n"),
        format!("1 0x1 1 0\n1 0x2 {} 0\n", u64::MAX),
        format!("{VMA}1,{big}.5,0,vmaFreeMemory,1\n"),
        "Vulkan Memory Allocator,Calls recording\n2,0\n".into(),
    ] {
        if let Ok((format, trace)) = trace_of(text.as_bytes()) {
            // A total that no device has is a lump of memory from before, as long as it fits.
            assert_eq!((format, trace.events.len()), ("kineto", 2), "{}", &text[..60]);
        }
    }
}
