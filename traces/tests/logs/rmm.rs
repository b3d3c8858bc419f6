//! RMM's event log.

use super::{corpus, count, trace_of};
use poolsim_core::{EventKind, StreamId};

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

fn log(lines: &[&str]) -> Vec<u8> {
    format!("{HEADER}{}\n", lines.join("\n")).into_bytes()
}

fn error(lines: &[&str]) -> String {
    trace_of(&log(lines)).expect_err("not a log that a program can write").to_string()
}

#[test]
fn a_recorded_log_is_read_line_for_line() {
    let bytes = std::fs::read(corpus("rmm/unet_multires.rmm.csv")).unwrap();
    let (format, trace) = trace_of(&bytes).unwrap();
    assert_eq!(format, "rmm-csv");
    let text = String::from_utf8(bytes).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|l| l.split(',').collect()).collect();
    let granted = rows.iter().filter(|r| r[2] == "allocate").count();
    assert_eq!(count(&trace, EventKind::Alloc), granted);
    assert_eq!(count(&trace, EventKind::Free), rows.len() - granted);
    assert_eq!(trace.header.streams, [0x55d8_db67_e790]);
    for (event, row) in trace.events.iter().zip(&rows) {
        assert_eq!(event.size.to_string(), row[4]);
    }
    assert!(trace.header.knows.from_start && trace.header.knows.completions);
}

#[test]
fn every_action_word_stream_and_thread_is_understood_and_midnight_is_passed() {
    let (_, trace) = trace_of(&log(&[
        "1,23:59:59.999000,allocate,0x100,512,0x2",
        "2,23:59:59:999500,allocate,0x300,1024,0x0",
        "1,00:00:00.000100,allocate failure,(nil),1000000,0x1",
        "2,23:59:59.999900,free,0x100,512,0x2",
        "1,00:00:01.000000,allocate,0x100,64,0x2",
        "1,12:30:00.000000,free,0x900,256,0x1",
    ]))
    .unwrap();
    let kinds: Vec<EventKind> = trace.events.iter().map(|e| e.kind()).collect();
    use EventKind::*;
    assert_eq!(kinds, [Preexisting, Alloc, Alloc, AllocRefused, Free, Alloc, Free]);
    assert_eq!(trace.header.streams, [0, 1, 2]);
    let streams: Vec<u16> = trace.events.iter().map(|e| e.stream.0).collect();
    assert_eq!(streams, [1, 2, 0, 1, 2, 2, 1]);
    let at: Vec<u64> = trace.events.iter().map(|e| e.at / 1000).collect();
    assert_eq!(at, [0, 0, 500, 1100, 1100, 1_001_000, 45_000_001_000]);
    assert_eq!(trace.events[0].size, 256);
    assert_eq!(trace.header.attributes["threads"], "2");
    assert!(!trace.header.knows.from_start && !trace.header.knows.completions);
    let notes = trace.header.notes.join("\n");
    assert!(notes.contains("1 frees") && notes.contains("1 lines have a time before"), "{notes}");
}

#[test]
fn a_part_of_a_log_and_one_that_is_cut_are_read() {
    let (format, trace) = trace_of(b"7,10:00:00.0,free,0x1,8,0x0\n7,10:00:00.5,alloc").unwrap();
    assert_eq!((format, trace.events.len()), ("rmm-csv", 2));
    assert_eq!(trace.events[1].stream, StreamId(0));
    assert!(trace.header.notes.iter().any(|note| note.contains("line 2")), "{:?}", trace.header);
}

#[test]
fn what_no_allocator_writes_is_refused_with_its_line() {
    let one = "1,10:00:00.0,allocate,0x100,512,0x0";
    for (lines, words) in [
        (&[one, one][..], &["line 3", "0x100", "live since line 2"][..]),
        (&[one, "1,10:00:00.1,free,0x100,256,0x0"], &["line 3", "512 bytes", "freed with 256"]),
        (
            &[one, "1,10:00:00.1,free,0x100,512,0x0", "1,10:00:00.2,free,0x100,512,0x0"],
            &["line 4", "freed twice, first in line 3"],
        ),
        (&[one, "1,09:59:58.0,free,0x100,512,0x0"], &["line 3", "backwards, by 2.000 s"]),
        (
            &[one, "1,10:00:00.1,realloc,0x100,512,0x0"],
            &["line 3", "`realloc`", "allocate failure"],
        ),
        (&[one, "1,10:00:00.1,free,0x100"], &["line 3", "4 fields"]),
        (&[one, "1,25:00:00.1,free,0x100,512,0x0"], &["line 3", "Time is `25:00:00.1`"]),
        (&[one, "1,10:00:00.1,free,0x100,-5,0x0"], &["line 3", "Size is `-5`"]),
        (
            &[one, "1,10:00:01.1,allocate,0x200,18446744073709551615,0x0"],
            &["line 3", "more than 2^64 - 1 bytes"],
        ),
        (&[], &["without events", "flush"]),
    ] {
        let text = error(lines);
        for word in words {
            assert!(text.contains(word), "{lines:?}: {word:?} not in {text}");
        }
    }
}
