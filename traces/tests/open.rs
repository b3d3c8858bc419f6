//! Opening files: what they are is told from what they hold, and what is wrong is said in a way that helps.

mod common;

use poolsim_core::error::TraceErrorKind;
use poolsim_core::{Event, EventSource, Trace};
use poolsim_traces::export::{self, EXPORTERS, OutputOptions, write_file};
use poolsim_traces::import::IMPORTERS;
use poolsim_traces::{OpenOptions, Source, open, read_all};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const JSON: &[u8] =
    br#"{"poolsim_trace": 1, "device": 2, "events": [{"alloc": "a", "size": 1}, {"free": "a"}]}"#;

fn file(dir: &TempDir, name: &str, content: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

fn error(path: &Path) -> String {
    open(path, &OpenOptions::default()).expect_err("not a trace").to_string()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 3).unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut out = liblzma::write::XzEncoder::new(Vec::new(), 1);
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn trace() -> Trace {
    poolsim_traces::native::read_json(JSON).unwrap()
}

#[test]
fn names_mean_nothing_and_compression_is_read_through() {
    let dir = TempDir::new().unwrap();
    let pst = common::pst_bytes(&trace());
    let cases: [(&str, Vec<u8>, &str, Option<&str>); 7] = [
        ("a.pickle", JSON.to_vec(), "native-json", None),
        ("a.json.gz", gzip(JSON), "native-json", Some("gzip")),
        ("a.txt", zstd(JSON), "native-json", Some("zstd")),
        ("a.xz", xz(JSON), "native-json", Some("xz")),
        ("a.gz", gzip(&zstd(JSON)), "native-json", Some("gzip")),
        ("b", pst.clone(), "pst", None),
        ("b.pst.zst", zstd(&pst), "pst", Some("zstd")),
    ];
    for (name, content, format, compression) in cases {
        let opened = open(&file(&dir, name, &content), &OpenOptions::default()).unwrap();
        assert_eq!((opened.format, opened.compression), (format, compression), "{name}");
        assert_eq!((opened.devices[0].index, opened.devices[0].entries), (2, 2), "{name}");
        assert_eq!(opened.source.into_trace().unwrap().events, trace().events, "{name}");
    }
    let lines = b"\n{\"alloc\": 1, \"size\": 1}\n{\"free\": 1}\n";
    assert_eq!(
        open(&file(&dir, "c", lines), &OpenOptions::default()).unwrap().format,
        "native-jsonl"
    );
}

#[test]
fn what_is_no_trace_is_explained() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str, content: &[u8]| file(&dir, name, content);
    assert!(error(&path("empty.pst", b"")).contains("is empty (0 bytes)"));
    assert!(error(&path("empty.gz", &gzip(b""))).contains("holds 0 bytes"));
    assert!(error(&path("deep.gz", &gzip(&gzip(&gzip(JSON))))).contains("more than 2 times"));
    let text = error(&path("x.pst", b"hello, world"));
    assert!(text.contains("x.pst, byte 0: is named like pst but is not one"), "{text}");
    assert!(text.contains("starts with `hello, world`, which is no known format"), "{text}");
    for importer in IMPORTERS {
        assert!(text.contains(importer.name), "{text}");
    }
    let text = error(dir.path());
    assert!(text.contains("is a directory") && text.contains("`empty.pst`"), "{text}");
    path("snapshot.json", JSON);
    let text = error(&dir.path().join("snapshto.json"));
    assert!(text.contains("did you mean `snapshot.json`?"), "{text}");
    let text = error(Path::new("/nowhere/at/all"));
    assert!(text.contains("there is no such file"), "{text}");
}

#[test]
fn damaged_compression_is_told_from_damaged_traces() {
    let dir = TempDir::new().unwrap();
    let mut long = br#"{"poolsim_trace": 1, "events": ["#.to_vec();
    for i in 0..20_000 {
        write!(long, "{{\"alloc\": {i}, \"size\": {}}},", i * 7919 % 10_007).unwrap();
    }
    long.extend_from_slice(br#"{"empty_cache": true}]}"#);
    for (name, bytes) in [("gzip", gzip(&long)), ("zstd", zstd(&long)), ("xz", xz(&long))] {
        for part in [bytes.len() / 5, bytes.len() / 2, bytes.len() - 3] {
            let text = error(&file(&dir, "cut", &bytes[..part]));
            assert!(text.contains(&format!("the {name} stream is damaged or cut short")), "{text}");
        }
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 0x10;
        let text = error(&file(&dir, "flipped", &flipped));
        assert!(text.contains(name) || text.contains("line"), "{text}");
    }
}

#[test]
fn every_cut_and_flip_of_small_files_is_an_error_or_a_trace() {
    let dir = TempDir::new().unwrap();
    for bytes in [gzip(JSON), zstd(JSON), xz(JSON), JSON.to_vec(), common::pst_bytes(&trace())] {
        for at in 0..bytes.len() {
            let _ = open(&file(&dir, "cut", &bytes[..at]), &OpenOptions::default()).unwrap_err();
            for bit in [0, 7] {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let opened = open(&file(&dir, "flipped", &flipped), &OpenOptions::default());
                let _ = opened.and_then(|opened| opened.source.into_trace());
            }
        }
    }
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = file(&dir, "a.json", JSON);
    let device = |n| open(&path, &OpenOptions { device: Some(n), ..OpenOptions::default() });
    assert!(device(2).is_ok());
    let error = device(0).unwrap_err();
    assert_eq!(error.kind, TraceErrorKind::Refused);
    assert!(error.to_string().contains("holds no device 0; it holds 2 (2 entries"), "{error}");
}

#[test]
fn recovery_reads_through_cut_compression() {
    let dir = TempDir::new().unwrap();
    let mut trace = trace();
    let pair = trace.events.clone();
    trace.header.events = None;
    let events = pair.iter().copied().cycle().take(40_000).enumerate().map(|(i, event)| {
        let at = (i as u64).pow(2) % 1009 + i as u64 * 2000;
        Event::new(event.kind(), at, event.slot, event.size, event.stream, event.pool())
    });
    trace.events = events.collect();
    let pst = common::pst_bytes(&trace);
    let recover = OpenOptions { recover: true, ..OpenOptions::default() };
    for bytes in [pst[..pst.len() - 100].to_vec(), gzip(&pst)[..gzip(&pst).len() - 60].to_vec()] {
        let path = file(&dir, "cut.pst", &bytes);
        assert!(open(&path, &OpenOptions::default()).is_err());
        let Source::Pst(reader) = open(&path, &recover).unwrap().source else { panic!("a pst") };
        assert!(reader.header().notes[0].starts_with("recovered:"));
        let got = read_all(reader).unwrap().events;
        assert!(got.len() >= 16_384);
        assert_eq!(got, trace.events[..got.len()]);
    }
}

#[test]
fn files_appear_whole_or_not_at_all() {
    let dir = TempDir::new().unwrap();
    let source = Source::Trace(Box::new(trace()));
    for name in ["a.json", "a.jsonl", "a.pst", "a.pst.gz", "a.json.zst", "a.jsonl.xz"] {
        let path = dir.path().join(name);
        let exporter = export::find(None, &path).unwrap();
        let keep = OutputOptions { overwrite: false };
        write_file(&source, exporter, &path, keep).unwrap();
        let opened = open(&path, &OpenOptions::default()).unwrap();
        assert_eq!(opened.compression.is_some(), name.matches('.').count() == 2, "{name}");
        assert_eq!(opened.source.into_trace().unwrap().events, trace().events, "{name}");
        let error = write_file(&source, exporter, &path, keep).unwrap_err().to_string();
        assert!(error.contains("exists already"), "{error}");
        write_file(&source, exporter, &path, OutputOptions { overwrite: true }).unwrap();
    }
    let before = fs::read(dir.path().join("a.pst")).unwrap();
    let mut broken = trace();
    broken.header.events = Some(7);
    let broken = Source::Trace(Box::new(broken));
    let path = dir.path().join("a.pst");
    let exporter = export::find(Some("pst"), &path).unwrap();
    assert!(write_file(&broken, exporter, &path, OutputOptions { overwrite: true }).is_err());
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 6, "nothing is left behind");
    let error = write_file(&source, exporter, dir.path(), OutputOptions::default()).unwrap_err();
    assert!(error.to_string().contains("is a directory"), "{error}");
}

#[test]
fn output_formats_are_found_by_name_or_ending() {
    assert_eq!(export::find(None, Path::new("a.JSON.gz")).unwrap().name, "native-json");
    assert_eq!(export::find(None, Path::new("a.rmm.csv")).unwrap().name, "rmm-csv");
    assert_eq!(export::find(None, Path::new("a.trace.json.zst")).unwrap().name, "chrome");
    let error = export::find(None, Path::new("a.tsv")).err().unwrap().to_string();
    assert!(error.contains(".pst (pst)") && error.contains("a.tsv"), "{error}");
    let error = export::find(Some("psd"), Path::new("x")).err().unwrap().to_string();
    assert!(error.contains("did you mean `pst`?"), "{error}");
}

#[test]
fn the_tables_of_formats_are_sound() {
    let mut names: Vec<&str> = IMPORTERS.iter().map(|i| i.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), IMPORTERS.len());
    for importer in IMPORTERS {
        assert!(!importer.summary.is_empty() && !(importer.sniff)(b""), "{}", importer.name);
    }
    for exporter in EXPORTERS.iter().filter(|e| e.name != "chrome") {
        assert!(names.binary_search(&exporter.name).is_ok(), "{} can be read back", exporter.name);
    }
}
