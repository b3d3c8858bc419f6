//! `.pst`: whatever the bytes, an error or a trace that can be written and read again. The input is the uncompressed content
//! of one section, which is put into a file with a right checksum, so that the fuzzer gets to what is behind it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use poolsim_core::{Trace, TraceHeader};
use poolsim_traces::format::{ANNO, EVTS, FRAM, HEAP, STAC, TAIL, Tag};
use poolsim_traces::{PstReader, PstWriter, Tables, read_all};

fuzz_target!(|bytes: &[u8]| {
    let Some((&what, content)) = bytes.split_first() else { return };
    let empty = PstWriter::new(Vec::new(), &TraceHeader::default()).expect("a Vec takes all");
    let (whole, _) = empty.finish(&Tables::default()).expect("a Vec takes all");
    let head_end = 24 + u32::from_le_bytes(whole[16..20].try_into().unwrap()) as usize;
    let mut file = whole[..head_end].to_vec();
    match what % 8 {
        0 => check(PstReader::from_bytes(content.to_vec()).and_then(read_all)),
        1 => {
            let tail = section(TAIL, content.to_vec());
            file.extend_from_slice(&tail);
            file.extend_from_slice(&(tail.len() as u32).to_le_bytes());
            file.extend_from_slice(b"pEND");
            check(PstReader::from_bytes(file).and_then(read_all));
        }
        n => {
            let tag = [EVTS, FRAM, STAC, ANNO, HEAP, EVTS][usize::from(n) - 2];
            file.extend_from_slice(&compressed(tag, content));
            check(PstReader::recover_bytes(file).and_then(read_all));
        }
    }
});

fn check(read: Result<Trace, poolsim_core::TraceError>) {
    let Ok(trace) = read else { return };
    let mut writer = PstWriter::new(Vec::new(), &trace.header).expect("a Vec takes all");
    writer.write(&trace.events, &trace.event_stacks).expect("what was read is legal");
    let stackless = trace.event_stacks.is_empty();
    let Ok((bytes, _)) = writer.finish(&Tables::of(&trace)) else {
        // Recovered events may name stacks that were lost.
        assert!(!stackless);
        return;
    };
    let again = PstReader::from_bytes(bytes).and_then(read_all).expect("what is written can be read");
    assert_eq!(again.events, trace.events);
}

fn compressed(tag: Tag, raw: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut length = raw.len();
    while length >= 0x80 {
        payload.push(length as u8 | 0x80);
        length >>= 7;
    }
    payload.push(length as u8);
    payload.extend_from_slice(&zstd::bulk::compress(raw, 1).expect("memory suffices"));
    section(tag, payload)
}

fn section(tag: Tag, payload: Vec<u8>) -> Vec<u8> {
    let length = (payload.len() as u32).to_le_bytes();
    let mut crc = crc32fast::Hasher::new();
    [&tag[..], &length, &payload].iter().for_each(|part| crc.update(part));
    [&tag[..], &length, &crc.finalize().to_le_bytes(), &payload].concat()
}
