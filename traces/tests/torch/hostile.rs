//! Files that are cut, damaged, or made to do harm.

use super::{fixture_bytes, read_bytes};
use poolsim_core::TraceError;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_traces::import::torch::{torch_html, torch_json};
use poolsim_traces::{Imported, OpenOptions};
use proptest::prelude::*;

fn refused(bytes: &[u8]) -> TraceError {
    read_bytes(bytes).expect_err("must not be read")
}

fn json(text: &[u8]) -> Result<Imported, TraceError> {
    torch_json::read(text, &OpenOptions::default())
}

/// A pickle of a snapshot with these entry fields, all `SHORT_BINUNICODE` keys.
fn entry_with(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces](](}(".to_vec();
    for (key, value) in fields {
        out.extend([0x8c, key.len() as u8]);
        out.extend(key.as_bytes());
        out.extend(*value);
    }
    out.extend(b"ueeu.");
    out
}

#[test]
fn cut_at_every_byte() {
    for name in ["full.p0.pickle", "full.p2.pickle", "full.p4.pickle"] {
        let whole = fixture_bytes(name);
        assert!(read_bytes(&whole).is_ok());
        for len in 0..whole.len() {
            let error = refused(&whole[..len]);
            assert_eq!(error.place, Place::Byte(len as u64), "{name} cut at {len}: {error}");
            assert!(error.what.contains("cut short"), "{error}");
        }
    }
    let whole = fixture_bytes("full.json");
    for len in 0..whole.len() {
        let error = json(&whole[..len]).map(drop).expect_err("cut");
        assert_eq!(error.place, Place::Byte(len as u64), "{error}");
    }
    let whole = fixture_bytes("full.html");
    // The pickle ends up to three bytes, four digits, before the base64 does.
    let end = whole.windows(3).position(|w| w == b"\"}]").expect("the end of the base64") - 4;
    for len in 0..end {
        assert!(torch_html::read(&whole[..len], &OpenOptions::default()).is_err(), "cut at {len}");
    }
}

#[test]
fn code_is_refused_by_name_and_place() {
    for (bytes, name, at) in [
        (&b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R."[..], "`os.system` (GLOBAL)", 2),
        (b"(ios\nsystem\n.", "`os.system` (INST)", 1),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "`os.system` (STACK_GLOBAL)", 14),
        (b"\x80\x02}R.", "(REDUCE)", 3),
        (b"\x80\x02}}b.", "(BUILD)", 4),
        (b"\x80\x02}}\x81.", "(NEWOBJ)", 4),
        (b"\x80\x04}}}\x92.", "(NEWOBJ_EX)", 5),
        (b"(}o.", "(OBJ)", 2),
        (b"Pabc\n.", "(PERSID)", 0),
        (b"\x80\x02NQ.", "(BINPERSID)", 3),
        (b"\x80\x02\x82\x01.", "(EXT1)", 2),
        (b"\x80\x02\x84\x01\x00\x00\x00.", "(EXT4)", 2),
        (b"\x80\x05\x97.", "(NEXT_BUFFER)", 2),
        (b"\x80\x05N\x98.", "(READONLY_BUFFER)", 3),
    ] {
        let error = refused(bytes);
        assert_eq!(error.kind, TraceErrorKind::Refused, "{error}");
        assert_eq!(error.place, Place::Byte(at), "{error}");
        assert!(error.what.contains(name), "{error}");
    }
}

#[test]
fn names_are_printed_safely() {
    let mut bytes = b"c\x1b[31mevil\n".to_vec();
    bytes.extend([b'x'; 5000]);
    bytes.extend(b"\n.");
    let error = refused(&bytes);
    assert!(error.what.len() < 1000 && !error.what.contains('\x1b'), "{error}");
}

#[test]
fn lengths_beyond_the_file_cost_nothing() {
    let max = u64::MAX.to_le_bytes();
    let half = (1u64 << 63).to_le_bytes();
    for code in [0x8d, 0x8e, 0x96, 0x95] {
        for len in [max, half] {
            let mut bytes = vec![0x80, 4, code];
            bytes.extend(len);
            bytes.extend(b"abc.");
            refused(&bytes);
        }
    }
    for code in [b'X', b'B', b'T', 0x8b] {
        for len in [u32::MAX, 1 << 31, i32::MAX as u32] {
            let mut bytes = vec![0x80, 4, code];
            bytes.extend(len.to_le_bytes());
            bytes.extend(b"abc.");
            refused(&bytes);
        }
    }
    // A memo index of 2^32, and one in decimal beyond 64 bits.
    refused(b"\x80\x02}r\xff\xff\xff\xffj\xff\xff\xff\xfe.");
    refused(b"(dp99999999999999999999\n.");
}

#[test]
fn a_million_deep() {
    const DEEP: usize = 1_000_000;
    let lists = [vec![b']'; DEEP], vec![b'a'; DEEP - 1], b".".to_vec()].concat();
    let tuples = [b")".to_vec(), vec![0x85; DEEP], b".".to_vec()].concat();
    let marks = [vec![b'('; DEEP], vec![b'l'; DEEP], b".".to_vec()].concat();
    let dicts = [b"}".to_vec(), b"K\x00}".repeat(DEEP), vec![b's'; DEEP], b".".to_vec()].concat();
    for bytes in [lists, tuples, marks, dicts] {
        refused(&bytes);
    }
    for open in ["[", "{\"a\":"] {
        let text = format!("{{\"segments\": {}", open.repeat(DEEP));
        assert!(json(text.as_bytes()).is_err());
    }
}

#[test]
fn memo_bombs_stay_small() {
    // Each level is a list that names the one before twice: 2^100000 objects for who expands it.
    let mut bytes = b"\x80\x04]\x94".to_vec();
    for level in 0..100_000u32 {
        bytes.extend(b"](");
        for _ in 0..2 {
            bytes.push(b'j');
            bytes.extend(level.to_le_bytes());
        }
        bytes.extend(b"e\x94");
    }
    bytes.push(b'.');
    refused(&bytes);

    // The same of segments that share one list of blocks.
    let mut bytes = b"\x80\x04}(\x8c\x08segments](".to_vec();
    bytes.extend(b"}(\x8c\x06blocks]\x94(");
    bytes.extend(b"}(\x8c\x04sizeK\x01\x8c\x05state\x8c\x08inactiveu".repeat(1000));
    bytes.extend(b"e\x8c\x07addressK\x00u");
    bytes.extend(b"}(\x8c\x06blocksh\x00\x8c\x07addressK\x00u".repeat(10_000));
    bytes.extend(b"e\x8c\x0ddevice_traces]u.");
    let error = refused(&bytes);
    assert!(error.what.contains("share their lists of blocks"), "{error}");

    // More objects than a file of that length can need.
    let error = refused(&[b"\x80\x04".to_vec(), vec![b']'; 40_000_000]].concat());
    assert!(error.what.contains("objects"), "{error}");
}

#[test]
fn sizes_that_overflow() {
    let big = b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
    let error =
        refused(&entry_with(&[("action", b"\x8c\x05alloc"), ("addr", b"K\x00"), ("size", big)]));
    assert!(error.what.contains("2^60"), "{error}");

    let end = b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00";
    let error =
        refused(&entry_with(&[("action", b"\x8c\x05alloc"), ("addr", end), ("size", b"K\x02")]));
    assert_eq!(error.place, Place::Event(0), "{error}");

    let half = 1u64 << 59;
    let block = format!("{{\"address\": 0, \"size\": {half}, \"state\": \"inactive\"}}");
    let blocks = vec![block; 40].join(",");
    let text = format!("{{\"segments\": [{{\"address\": 0, \"blocks\": [{blocks}]}}]}}");
    let error = json(text.as_bytes()).map(drop).expect_err("overflows");
    assert!(error.what.contains("add up"), "{error}");
    let alloc = format!("{{\"action\": \"alloc\", \"addr\": 0, \"size\": {half}}}");
    let allocs = vec![alloc; 40].join(",");
    let text = format!("{{\"segments\": [], \"device_traces\": [[{allocs}]]}}");
    let error = json(text.as_bytes()).map(drop).expect_err("overflows");
    assert_eq!(error.place, Place::Event(7), "{error}");
}

#[test]
fn entries_that_make_no_sense() {
    let plain: [(&str, &[u8]); 3] =
        [("action", b"\x8c\x05alloc"), ("addr", b"K\x01"), ("size", b"K\x01")];
    assert!(read_bytes(&entry_with(&plain)).is_ok());
    for (field, value, says) in [
        ("action", &b"\x8c\x04hack"[..], "unknown action `hack`"),
        ("action", b"K\x01", "no string"),
        ("size", b"\x8c\x01x", "`size` is no integer"),
        ("size", b"J\xff\xff\xff\xff", "`size` is no integer"),
        ("size", b"N", "`size` is no integer"),
        ("stream", b"}", "`stream` is no integer"),
        ("time_us", b"J\xff\xff\xff\xff", "time_us"),
        ("time_us", b"G\x7f\xf8\x00\x00\x00\x00\x00\x00", "time_us"),
    ] {
        let error = refused(&entry_with(&[plain.as_slice(), &[(field, value)]].concat()));
        assert!(error.what.contains(says) && matches!(error.place, Place::Byte(_)), "{error}");
    }
    let error = refused(&entry_with(&[plain[0], plain[1]]));
    assert!(error.what.contains("has no `size`"), "{error}");
}

#[test]
fn times_that_run_backwards() {
    let trace = |times: &[u64]| {
        let entries: Vec<String> = times
            .iter()
            .map(|t| {
                format!("{{\"action\": \"alloc\", \"addr\": {t}, \"size\": 1, \"time_us\": {t}}}")
            })
            .collect();
        json(
            format!("{{\"segments\": [], \"device_traces\": [[{}]]}}", entries.join(","))
                .as_bytes(),
        )
    };
    let error = trace(&[1_000_000, 2_000_000, 1_500_000]).map(drop).expect_err("backwards");
    assert_eq!((error.kind, error.place), (TraceErrorKind::Illegal, Place::Event(2)), "{error}");
    let noisy = super::recording(trace(&[1_000_000, 1_000_100, 1_000_050]).expect("noise").source);
    assert_eq!(noisy.entries[2].at, 100_000);
    assert_eq!(noisy.header.notes.len(), 1);
}

#[test]
fn pickles_of_other_things() {
    for bytes in
        [&b"\x80\x04K\x01."[..], b"\x80\x04}.", b"\x80\x04](K\x01e.", b"\x80\x04\x8c\x01a."]
    {
        let error = refused(bytes);
        assert!(error.what.contains("is no PyTorch memory snapshot"), "{error}");
    }
    let error = refused(b"\x80\x04}(\x8c\x05modelN\x8c\x04\x1b[0mNu.");
    assert!(error.what.contains("`model`") && !error.what.contains('\x1b'), "{error}");
    // Opcodes that take what is not there.
    for bytes in [
        &b"a."[..],
        b"(a.",
        b"s.",
        b"e.",
        b"u.",
        b"(K\x01u.",
        b"0.",
        b"1.",
        b"2.",
        b"t.",
        b"h\x00.",
        b"p\n.",
        b"\xff",
    ] {
        let error = refused(bytes);
        assert_eq!(error.kind, TraceErrorKind::Malformed, "{error}");
    }
}

#[test]
fn a_container_that_changes_after_use_is_refused() {
    // d = {action..}; l = [d]; d["x"] = 1
    let mut bytes =
        b"\x80\x04](}\x94(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04sizeK\x01ue".to_vec();
    bytes.extend(b"h\x00(\x8c\x01xK\x01\x8c\x01yK\x02u.");
    let error = refused(&bytes);
    assert!(error.what.contains("changed"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn damaged_pickles_never_panic(
        protocol in 0usize..6,
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        graft in any::<prop::sample::Index>(),
    ) {
        let mut bytes = fixture_bytes(&format!("full.p{protocol}.pickle"));
        for (at, byte) in &hits {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        let _ = read_bytes(&bytes);
        let tail = bytes.split_off(cut.index(bytes.len()));
        let from = graft.index(tail.len() + 1);
        bytes.extend_from_slice(&tail[from..]);
        let _ = read_bytes(&bytes);
    }

    #[test]
    fn damaged_json_never_panics(
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = fixture_bytes("full.json");
        for (at, byte) in hits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = json(&bytes);
    }

    #[test]
    fn opcode_soup_never_panics(bytes in proptest::collection::vec(
        prop_oneof![
            prop::sample::select(b"(.012FIJKLMNSTUVXadeghjlpqrstu])}GBC".to_vec()),
            prop::sample::select((0x80..=0x98u8).collect::<Vec<_>>()),
            any::<u8>(),
        ], 0..200)) {
        let _ = read_bytes(&bytes);
    }
}
