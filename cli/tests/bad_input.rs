//! What goes wrong says where and what to do, with the right exit code.

mod common;

use common::{corpus, run};
use std::fs;

/// Each part of `words` must be in the message, which must be one that a person wrote.
fn refused(args: &[&str], code: i32, words: &[&str]) {
    let left = run(args);
    assert_eq!(left.code, code, "{args:?}: {}{}", left.out, left.err);
    for word in words {
        assert!(left.err.contains(word), "{args:?}: {word:?} not in {:?}", left.err);
    }
    assert!(!left.err.contains("panicked"), "{args:?}: {}", left.err);
    assert!(left.out.is_empty(), "{args:?}: {}", left.out);
}

#[test]
fn a_command_line_that_asks_for_what_is_not_there_exits_with_2() {
    let file = corpus("default/compiled.pickle.zst");
    refused(&["replay", &file, "-p", "expandible"], 2, &["expandible", "nearest: expandable"]);
    refused(&["replay", &file, "-p", "max_split_size:128"], 2, &["max_split_size_mb"]);
    refused(
        &["replay", &file, "-p", "max_split_size_mb:5"],
        2,
        &["max_split_size_mb:5", "at least"],
    );
    refused(&["replay", &file, "--capacity", "40G"], 2, &["40GiB", "40GB"]);
    refused(&["replay", &file, "--memory-fraction", "1.5"], 2, &["from 0 to 1"]);
    refused(&["policies", "nativ"], 2, &["nativ", "native"]);
    refused(&["repaly", &file], 2, &["replay"]);
    refused(&["convert", &file, "x.pickle"], 2, &["--snapshot-out"]);
    refused(&["convert", &file, "x.unknown"], 2, &[".pst"]);
    refused(&["convert", &file, &file], 2, &["same file"]);
    refused(&["replay", &file, "-p", "a", "-p", "b", "--snapshot-out", "x"], 2, &["exactly one"]);
    refused(
        &["replay", &corpus("by-hand.json"), "-p", "recorded"],
        2,
        &["does not say which settings"],
    );
}

#[test]
fn files_that_cannot_be_read_exit_with_1_and_name_file_and_place() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_string()
    };
    let whole = fs::read(corpus("default/compiled.pickle.zst")).unwrap();
    let cut = write("cut.pickle.zst", &whole[..whole.len() / 2]);
    let empty = write("empty.pickle", b"");
    let wrong = write("wrong.pickle", b"this is not a pickle\n");
    // protocol 2, GLOBAL os.system, a string, REDUCE
    let code = write("code.pickle", b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.");
    let sidecar = corpus("default/compiled.json");
    for command in ["info", "replay", "bench"] {
        refused(&[command, &cut], 1, &["cut.pickle.zst", "byte"]);
        refused(&[command, &empty], 1, &["empty.pickle", "empty"]);
        refused(&[command, &wrong], 1, &["wrong.pickle"]);
        refused(&[command, &code], 1, &["code.pickle", "os", "system"]);
        refused(&[command, "no-such.pickle"], 1, &["no-such.pickle", "no such file"]);
        refused(&[command, &sidecar], 1, &["compiled.json"]);
        let file = corpus("default/compiled.pickle.zst");
        refused(&[command, &file, "--device", "7"], 1, &["device 7", "0 ("]);
    }
    let bad = write("bad.json", br#"{"poolsim_trace": 1, "events": [{"free": "a"}]}"#);
    refused(&["replay", &bad], 1, &["bad.json, line 1", "never allocated", "preexisting"]);
}

#[test]
fn a_file_that_cannot_be_written_fails_before_the_work() {
    let file = corpus("default/compiled.pickle.zst");
    refused(&["replay", &file, "--series", "/no/such/folder/x.csv"], 1, &["/no/such/folder/x.csv"]);
}

#[test]
fn a_machine_without_a_gpu_says_what_is_missing() {
    let left = run(&["devices"]);
    match left.code {
        0 => assert!(left.out.contains("CUDA")),
        1 => assert!(left.err.contains("nvidia-smi"), "{}", left.err),
        code => panic!("exit code {code}: {}", left.err),
    }
}
