//! The driver call log: whatever calls it holds, an error or a legal trace; and what calls come to.

use poolsim_core::{Event, EventKind, Trace, TraceReader};
use poolsim_traces::calls::{CALLS, Kind, MAGIC, Record, VERSION};
use poolsim_traces::import::driver_calls;
use poolsim_traces::{OpenOptions, check, open};
use proptest::prelude::*;
use std::sync::Arc;

fn bytes(records: &[Record]) -> Vec<u8> {
    let start = Record { a: MAGIC, b: VERSION, c: 42, ..Record::new(Kind::START) };
    let all = std::iter::once(&start).chain(records);
    all.flat_map(|record| record.words()).flat_map(u64::to_le_bytes).collect()
}

fn read(records: &[Record]) -> Result<Trace, String> {
    let read = driver_calls::read(&bytes(records)[..], None).map_err(|e| e.what)?;
    read.source.into_trace().map_err(|e| e.what)
}

fn any_record() -> impl Strategy<Value = Record> {
    let kind = prop_oneof![
        20 => (0..CALLS.len()).prop_map(|n| CALLS[n].0),
        1 => (60_u8..70).prop_map(Kind),
    ];
    let few = || prop_oneof![6 => 0_u64..5, 1 => any::<u64>()];
    let fields = (few(), prop_oneof![4 => 0_u64..5000, 1 => any::<u64>()], few(), few(), few());
    let head = (kind, prop_oneof![Just(0_u8), Just(1), Just(255)], 0_u64..50, 0_u32..3, 0_u32..4);
    (head, fields, 0_u16..4).prop_map(
        |((kind, device, at, result, thread), (a, b, c, d, e), library)| Record {
            kind,
            device,
            library,
            at,
            a,
            b,
            c,
            d,
            thread,
            // Most calls succeed.
            result: result / 2,
            e,
        },
    )
}

proptest! {
    #[test]
    fn any_calls_are_a_legal_trace_or_an_error(records in prop::collection::vec(any_record(), 0..200)) {
        if let Ok(trace) = read(&records) {
            check::check(&mut TraceReader::new(Arc::new(trace))).expect("only legal traces are read");
        }
    }
}

fn at(at: u64, kind: Kind, a: u64, b: u64) -> Record {
    Record { device: 0, at, a, b, ..Record::new(kind) }
}

/// Kinds and sizes.
fn story(events: &[Event]) -> Vec<(EventKind, u64)> {
    events.iter().map(|e| (e.kind(), e.size)).collect()
}

#[test]
fn created_memory_lives_until_its_last_holder_is_gone() {
    let created = Record { e: 1, ..at(1, Kind::CREATE, 7, 100) };
    let map = |when, address| Record { d: 7, ..at(when, Kind::MAP, address, 100) };
    let trace = read(&[
        created,
        map(2, 1000),
        map(3, 2000),
        at(4, Kind::RELEASE, 7, 0),
        at(5, Kind::UNMAP, 1000, 100),
        at(6, Kind::ALLOC, 9, 5),
        at(7, Kind::UNMAP, 2000, 100),
    ])
    .unwrap();
    use EventKind::{Alloc, Free};
    assert_eq!(story(&trace.events), [(Alloc, 100), (Alloc, 5), (Free, 100)]);
}

#[test]
fn calls_are_put_in_order_and_devices_apart() {
    let other = |record| Record { device: 1, ..record };
    let calls = [
        at(5, Kind::ALLOC, 64, 20),
        at(1, Kind::ALLOC, 64, 10),
        at(3, Kind::FREE, 64, 0),
        other(at(2, Kind::ALLOC, 128, 7)),
        // Freed while device 0 is current.
        at(4, Kind::FREE, 128, 0),
    ];
    let trace = read(&calls).unwrap();
    use EventKind::{Alloc, Free};
    assert_eq!(story(&trace.events), [(Alloc, 10), (Free, 10), (Alloc, 20)]);
    let second = driver_calls::read(&bytes(&calls)[..], Some(1)).unwrap();
    assert_eq!(second.devices.len(), 2);
    assert_eq!(story(&second.source.into_trace().unwrap().events), [(Alloc, 7), (Free, 7)]);
    assert!(driver_calls::read(&bytes(&calls)[..], Some(5)).is_err());
}

#[test]
fn a_log_cut_or_damaged_anywhere_gives_what_is_whole() {
    let calls: Vec<Record> = (0..4).map(|n| at(n, Kind::ALLOC, 64 * (n + 1), 10)).collect();
    let whole = bytes(&calls);
    let events = |bytes: &[u8]| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, bytes).unwrap();
        let opened = open(file.path(), &OpenOptions::default()).ok()?;
        Some(opened.source.into_trace().unwrap().events.len())
    };
    assert_eq!(events(&whole), Some(4));
    // What a process that was killed leaves: zeros up to the end of its chunk.
    assert_eq!(events(&[&whole[..], &[0; 4096]].concat()), Some(4));
    for len in 64..whole.len() {
        assert_eq!(events(&whole[..len]).unwrap_or(0), (len / 64) - 1, "{len}");
    }
    for byte in 64..whole.len() {
        let mut changed = whole.clone();
        changed[byte] ^= 0x10;
        assert_eq!(events(&changed), Some(3), "{byte}");
    }
}
