//! Every example of `docs/trace-format.md` is read as it stands.

use poolsim_core::{EventKind, Trace, TraceReader};
use poolsim_traces::native::{read_json, read_jsonl};
use poolsim_traces::{PstReader, digest, read_all};
use std::path::Path;
use std::sync::Arc;

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/trace-format.md");
    std::fs::read_to_string(path).expect("the page is part of the repository")
}

fn blocks(language: &str) -> Vec<String> {
    let page = page();
    let parts = page.split("\n```").collect::<Vec<_>>();
    let opening = format!("{language}\n");
    parts.iter().filter_map(|part| part.strip_prefix(&opening).map(str::to_string)).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn fingerprint(trace: Trace) -> String {
    digest(&mut TraceReader::new(Arc::new(trace))).unwrap().to_string()
}

#[test]
fn the_examples_in_json_are_legal_and_show_every_kind() {
    let examples = blocks("json");
    assert_eq!(examples.len(), 2);
    let traces: Vec<Trace> =
        examples.iter().map(|text| read_json(text.as_bytes()).unwrap()).collect();
    for kind in EventKind::ALL {
        assert!(traces[1].events.iter().any(|e| e.kind() == kind), "{}", kind.name());
    }
}

#[test]
fn the_first_example_is_the_same_in_every_container() {
    let json = read_json(blocks("json")[0].as_bytes()).unwrap();
    let lines = read_jsonl(blocks("jsonl")[0].as_bytes()).unwrap();
    let dump = &blocks("hex")[0];
    let file: Vec<u8> = dump.lines().flat_map(|line| bytes(&line[10..58])).collect();
    let pst = read_all(PstReader::from_bytes(file).unwrap()).unwrap();
    assert_eq!(json.header, pst.header);
    assert_eq!(json.events, pst.events);
    assert_eq!(fingerprint(json.clone()), fingerprint(lines));
    assert_eq!(fingerprint(json), fingerprint(pst));
}

#[test]
fn the_decompressed_frame_is_that_of_the_file() {
    let dump = &blocks("hex")[0];
    let file: Vec<u8> = dump.lines().flat_map(|line| bytes(&line[10..58])).collect();
    let raw = zstd::bulk::decompress(&file[0x5c..0x88], 100).unwrap();
    assert_eq!(raw, bytes(&blocks("hex-evts")[0]));
}

#[test]
fn the_page_knows_every_field_kind_and_section() {
    let page = page();
    for kind in EventKind::ALL {
        assert!(
            page.contains(&format!("| `{}` | {} |", kind.name(), kind as u8)),
            "{}",
            kind.name()
        );
    }
    for field in poolsim_traces::native::FIELDS.iter().chain(poolsim_traces::native::EVENT_FIELDS) {
        assert!(page.contains(&format!("`{field}`")), "{field}");
    }
    let dictionary = poolsim_traces::format::HEADER_DICTIONARY;
    assert!(page.contains(&format!("the {} bytes", dictionary.len())));
    // The dictionary is a part of version 1: a changed one makes every file unreadable.
    assert_eq!(crc32fast::hash(dictionary), CRC_OF_DICTIONARY);
}

const CRC_OF_DICTIONARY: u32 = 0x8b1c_6f09;

#[test]
fn the_page_of_formats_names_every_importer_and_exporter() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/formats.md");
    let page = std::fs::read_to_string(path).expect("the page is part of the repository");
    let importers = poolsim_traces::import::IMPORTERS.iter().map(|importer| importer.name);
    let exporters = poolsim_traces::export::EXPORTERS.iter().map(|exporter| exporter.name);
    for name in importers.chain(exporters) {
        assert!(page.contains(&format!("`{name}`")), "docs/formats.md does not name `{name}`");
    }
}
