//! `.pst`: everything comes back, and nothing that was changed gets through.

mod common;

use common::{any_events, assert_same, legal_trace, pst_bytes};
use poolsim_core::error::TraceErrorKind;
use poolsim_core::event::Annotation;
use poolsim_core::stack::{Frame, StackId};
use poolsim_core::{
    Batch, Event, EventKind, EventSource, PoolId, Slot, StreamId, Trace, TraceHeader,
};
use poolsim_traces::format::HEADER_DICTIONARY;
use poolsim_traces::{Digester, PstReader, PstWriter, Tables, digest, read_all};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_events_round_trip(events in any_events(600), cut in 1usize..200) {
        let mut writer = PstWriter::new(Vec::new(), &TraceHeader::default()).unwrap();
        for part in events.chunks(cut) {
            writer.write(part, &[]).unwrap();
        }
        let (bytes, trailer) = writer.finish(&Tables::default()).unwrap();
        let mut reader = PstReader::from_bytes(bytes).unwrap();
        let mut digester = Digester::default();
        digester.update(&events);
        prop_assert_eq!(trailer.digest, digester.finish());
        prop_assert_eq!(reader.digest(), trailer.digest);
        prop_assert_eq!(digest(&mut reader).unwrap(), trailer.digest);
        prop_assert_eq!(read_all(reader).unwrap().events, events);
    }

    #[test]
    fn whole_traces_round_trip(trace in legal_trace(300)) {
        let reader = PstReader::from_bytes(pst_bytes(&trace)).unwrap();
        assert_same(&trace, &read_all(reader).unwrap());
    }

    #[test]
    fn a_flipped_bit_is_noticed(trace in legal_trace(60), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = pst_bytes(&trace);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        // The two reserved bytes are the only ones that nothing depends on.
        if at != 10 && at != 11 {
            prop_assert!(PstReader::from_bytes(bytes).and_then(read_all).is_err());
        }
    }

    #[test]
    fn changed_content_with_a_right_checksum_never_panics(
        trace in legal_trace(60),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        section in any::<prop::sample::Index>(),
    ) {
        let file = change_section(&pst_bytes(&trace), section, &changes);
        let _ = PstReader::recover_bytes(file.clone()).and_then(read_all);
        let Ok(read) = PstReader::from_bytes(file).and_then(read_all) else { return Ok(()) };
        // What is still readable is legal as far as a .pst promises it.
        let mut writer = PstWriter::new(Vec::new(), &read.header).unwrap();
        writer.write(&read.events, &[]).unwrap();
    }

    #[test]
    fn noise_is_refused(noise in prop::collection::vec(any::<u8>(), 0..300), keep in 0usize..60) {
        let mut bytes = pst_bytes(&long_trace(10));
        bytes.truncate(keep);
        bytes.extend_from_slice(&noise);
        prop_assert!(PstReader::from_bytes(bytes.clone()).and_then(read_all).is_err());
        let _ = PstReader::recover_bytes(bytes).and_then(read_all);
    }
}

/// An allocation and a free in turn, `n` events together.
fn long_trace(n: u64) -> Trace {
    let event = |i: u64| {
        let kind = if i.is_multiple_of(2) { EventKind::Alloc } else { EventKind::Free };
        Event::new(kind, i * 1000, Slot(0), 512 + i / 2, StreamId(0), PoolId(0))
    };
    Trace { events: (0..n).map(event).collect(), ..Trace::default() }
}

#[test]
fn truncation_anywhere_is_an_error_that_says_so() {
    let bytes = pst_bytes(&long_trace(40_000));
    for cut in 0..bytes.len() {
        let error = PstReader::from_bytes(bytes[..cut].to_vec()).expect_err("cut short");
        assert_eq!(error.kind, TraceErrorKind::Malformed, "{cut}: {error}");
        if cut > 300 {
            assert!(error.to_string().contains("cut short"), "{cut}: {error}");
            assert!(error.to_string().contains("--recover"), "{cut}: {error}");
        }
    }
}

#[test]
fn recovery_gives_every_complete_frame() {
    let trace = long_trace(40_000);
    let bytes = pst_bytes(&trace);
    let frames = PstReader::from_bytes(bytes.clone()).unwrap().trailer().frames.clone();
    assert_eq!(frames.len(), 3);
    for (i, frame) in frames.iter().enumerate().skip(1) {
        for cut in [frame.offset, frame.offset + 5, frame.offset + 40] {
            let reader = PstReader::recover_bytes(bytes[..cut as usize].to_vec()).unwrap();
            let note = reader.header().notes.last().expect("a note on what was lost").clone();
            assert!(note.contains(&format!("{} complete frames", i)), "{note}");
            let got = read_all(reader).unwrap();
            assert_eq!(got.events, trace.events[..frame.first_event as usize]);
        }
    }
    let whole = PstReader::recover_bytes(bytes).unwrap();
    assert!(whole.header().notes.is_empty());
    assert_eq!(read_all(whole).unwrap().events, trace.events);
}

#[test]
fn recovery_stops_before_a_damaged_frame() {
    let trace = long_trace(40_000);
    let mut bytes = pst_bytes(&trace);
    let frames = PstReader::from_bytes(bytes.clone()).unwrap().trailer().frames.clone();
    bytes[frames[1].offset as usize + 30] ^= 1;
    let error = PstReader::from_bytes(bytes.clone()).and_then(read_all).unwrap_err();
    assert!(error.to_string().contains("checksum"), "{error}");
    let got = PstReader::recover_bytes(bytes).and_then(read_all).unwrap();
    assert_eq!(got.events, trace.events[..frames[1].first_event as usize]);
}

#[test]
fn seeking_gives_the_same_events_as_reading_on() {
    let trace = long_trace(40_000);
    let mut reader = PstReader::from_bytes(pst_bytes(&trace)).unwrap();
    let mut batch = Batch::default();
    for start in [0u64, 1, 4095, 4096, 16_383, 16_384, 16_385, 39_999, 40_000, u64::MAX] {
        reader.seek(start).unwrap();
        let mut at = start;
        while reader.fill(&mut batch).unwrap() {
            let at_now = at as usize;
            assert_eq!(batch.events, trace.events[at_now..at_now + batch.events.len()]);
            at += batch.events.len() as u64;
        }
        assert_eq!(at, start.max(40_000));
    }
}

#[test]
fn clones_read_at_the_same_time() {
    let trace = long_trace(40_000);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pst_bytes(&trace)).unwrap();
    let reader = PstReader::open(file.path()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let reader = reader.clone();
            let trace = &trace;
            scope.spawn(move || assert_eq!(read_all(reader).unwrap().events, trace.events));
        }
    });
}

#[test]
fn a_broken_promise_names_both_numbers() {
    let mut trace = long_trace(10);
    trace.header.events = Some(11);
    let mut writer = PstWriter::new(Vec::new(), &trace.header).unwrap();
    writer.write(&trace.events, &[]).unwrap();
    let error = writer.finish(&Tables::default()).unwrap_err().to_string();
    assert!(error.contains("11 events") && error.contains("counts 10"), "{error}");
}

#[test]
fn the_writer_refuses_what_no_trace_can_be() {
    let refused = |events: &[Event], word: &str| {
        let mut writer = PstWriter::new(Vec::new(), &TraceHeader::default()).unwrap();
        let error = writer.write(events, &[]).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    let alloc =
        |at, slot, size| Event::new(EventKind::Alloc, at, Slot(slot), size, StreamId(0), PoolId(0));
    refused(&[alloc(5, 0, 1), alloc(4, 1, 1)], "event 1: time runs backwards, from 5 to 4");
    refused(&[alloc(0, 0, u64::MAX), alloc(0, 1, 1)], "event 1: live bytes exceed");
    refused(&[alloc(0, 0, 1), alloc(0, 2, 1)], "event 1: slot 2 is not dense");
    let mut writer = PstWriter::new(Vec::new(), &TraceHeader::default()).unwrap();
    writer.write(&[alloc(0, 0, 1)], &[StackId(1)]).unwrap();
    let error = writer.finish(&Tables::default()).unwrap_err().to_string();
    assert!(error.contains("stack 1"), "{error}");
}

#[test]
fn a_newer_version_says_what_to_do() {
    let mut bytes = pst_bytes(&long_trace(2));
    bytes[8] = 2;
    let error = PstReader::from_bytes(bytes).unwrap_err();
    assert_eq!(error.kind, TraceErrorKind::Refused);
    assert!(error.to_string().contains("version 2; this poolsim reads versions 1 to 1"), "{error}");
}

#[test]
fn text_mode_transfer_is_told_from_noise() {
    let mut bytes = pst_bytes(&long_trace(2));
    bytes.remove(4);
    let error = PstReader::from_bytes(bytes).unwrap_err().to_string();
    assert!(error.contains("binary mode"), "{error}");
}

#[test]
fn unknown_optional_sections_are_skipped_and_single_stacks_read() {
    let mut trace = long_trace(4);
    let frame = Frame { name: "f".into(), file: "x.py".into(), line: 9 };
    let number = trace.stacks.intern_frame(frame.clone());
    let id = trace.stacks.intern_stack(&[number, number]);
    trace.event_stacks = vec![StackId::NONE, id, StackId::NONE, StackId::NONE];
    trace.annotations.push(Annotation { name: "a".into(), start: 0, end: None });
    let mut bytes = pst_bytes(&trace);
    let reader = PstReader::from_bytes(bytes.clone()).unwrap();
    assert_eq!(reader.stack(id).unwrap(), [frame.clone(), frame]);
    assert_eq!(reader.stack(StackId(7)).unwrap(), []);
    assert_eq!(reader.stack(StackId::NONE).unwrap(), []);
    // Rename the annotations to a tag from the future, in the section and in the trailer.
    let renamed = rename_section(&mut bytes, b"anno", b"zzzz");
    assert!(renamed);
    let got = PstReader::from_bytes(bytes.clone()).and_then(read_all).unwrap();
    assert_eq!((got.events, got.annotations), (trace.events, vec![]));
    rename_section(&mut bytes, b"zzzz", b"ZZZZ");
    let error = PstReader::from_bytes(bytes).and_then(read_all).unwrap_err().to_string();
    assert!(error.contains("`ZZZZ` is needed"), "{error}");
}

/// Gives every section named `from` the name `to`, with checksums to match.
fn rename_section(bytes: &mut [u8], from: &[u8; 4], to: &[u8; 4]) -> bool {
    let mut at = 12;
    let mut found = false;
    while at + 12 < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        let end = at + 12 + length;
        let is_tail = &bytes[at..at + 4] == b"TAIL";
        if &bytes[at..at + 4] == from {
            bytes[at..at + 4].copy_from_slice(to);
            found = true;
        }
        if is_tail {
            let place = bytes[at + 12..end].windows(4).position(|w| w == from).unwrap();
            bytes[at + 12 + place..][..4].copy_from_slice(to);
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&bytes[at..at + 8]);
        crc.update(&bytes[at + 12..end]);
        bytes[at + 8..at + 12].copy_from_slice(&crc.finalize().to_le_bytes());
        at = end;
        if is_tail {
            break;
        }
    }
    found
}

/// Changes bytes of one section's uncompressed content and puts it back with a right checksum.
fn change_section(
    file: &[u8],
    which: prop::sample::Index,
    changes: &[(prop::sample::Index, u8)],
) -> Vec<u8> {
    let starts: Vec<usize> = sections(file);
    let which = which.index(starts.len());
    let (start, end) = (starts[which], *starts.get(which + 1).unwrap_or(&(file.len() - 8)));
    let tag: [u8; 4] = file[start..start + 4].try_into().unwrap();
    let payload = &file[start + 12..end];
    let change = |raw: &mut Vec<u8>| {
        for (at, byte) in changes {
            let at = at.index(raw.len());
            raw[at] = *byte;
        }
    };
    let dictionary = if &tag == b"HEAD" { HEADER_DICTIONARY } else { &[] };
    let mut changed = Vec::new();
    if &tag == b"TAIL" {
        changed.extend_from_slice(payload);
        change(&mut changed);
    } else {
        let skip = payload.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let mut unpack = zstd::bulk::Decompressor::with_dictionary(dictionary).unwrap();
        let mut raw = unpack.decompress(&payload[skip..], 1 << 20).unwrap();
        change(&mut raw);
        changed.extend_from_slice(&payload[..skip]);
        let mut pack = zstd::bulk::Compressor::with_dictionary(3, dictionary).unwrap();
        changed.extend_from_slice(&pack.compress(&raw).unwrap());
    }
    let mut out = file[..start].to_vec();
    out.extend_from_slice(&tag);
    out.extend_from_slice(&(changed.len() as u32).to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&out[start..]);
    crc.update(&changed);
    out.extend_from_slice(&crc.finalize().to_le_bytes());
    out.extend_from_slice(&changed);
    out.extend_from_slice(&file[end..]);
    out
}

/// Where the sections of a whole file start.
fn sections(file: &[u8]) -> Vec<usize> {
    let mut starts = vec![];
    let mut at = 12;
    while at < file.len() - 8 {
        starts.push(at);
        at += 12 + u32::from_le_bytes(file[at + 4..at + 8].try_into().unwrap()) as usize;
    }
    starts
}
