//! `trace`: parts, unions and small versions of traces.

mod common;

use common::{corpus, json, run};
use std::fs;

fn ok(args: &[&str]) -> String {
    let left = run(args);
    assert_eq!(left.code, 0, "{args:?}: {}{}", left.out, left.err);
    left.out
}

#[test]
fn a_shrunk_trace_still_shows_what_was_asked_and_is_always_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let trace = corpus("default/unet_multires.pickle.zst");
    let whole = json(&["info", &trace, "--json"], 0)["events"]["total"].as_u64().unwrap();
    for (name, property) in [
        ("oom", &["--oom", "pytorch", "--capacity", "8GiB"][..]),
        ("better", &["--better", "expandable", "--than", "pytorch", "--by", "20"]),
    ] {
        let (one, two) = (path(&format!("{name}.json")), path(&format!("{name}.2.json")));
        let said = ok(&[&["trace", "shrink", &trace, &one][..], property].concat());
        assert!(said.contains("nothing more can be left out"), "{said}");
        ok(&[&["trace", "shrink", &trace, &two][..], property].concat());
        assert_eq!(fs::read(&one).unwrap(), fs::read(&two).unwrap());
        let events = json(&["info", &one, "--json"], 0)["events"]["total"].as_u64().unwrap();
        assert!(events * 10 < whole, "{events} of {whole} are left");
    }
    // The capacity goes along, so the small trace runs out by itself.
    json(&["replay", &path("oom.json"), "-p", "pytorch", "--json"], 3);
    let peaks =
        json(&["replay", &path("better.json"), "-p", "expandable", "-p", "pytorch", "--json"], 0);
    let peak = |n: usize| peaks["runs"][n]["metrics"]["peak_reserved_bytes"].as_f64().unwrap();
    assert!(peak(0) <= 0.8 * peak(1));
    let left = run(&["trace", "shrink", &trace, &path("no.json"), "--oom", "pytorch"]);
    assert_eq!(left.code, 1);
    assert!(left.err.contains("does not show that `pytorch` refuses a request"), "{}", left.err);
}

#[test]
fn an_anonymous_trace_holds_no_text_of_the_recording_and_replays_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let recording = corpus("frames/resnet50_amp.pickle.zst");
    let (plain, anonymous) = (path("plain.json"), path("anonymous.json"));
    ok(&["convert", &recording, &plain]);
    ok(&["trace", "anonymize", &recording, &anonymous]);
    let texts = |file: &str| -> Vec<String> {
        let document: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        let mut texts = Vec::new();
        collect(&document, &mut texts);
        texts
    };
    let left = fs::read_to_string(&anonymous).unwrap();
    let said = texts(&plain);
    assert!(said.len() > 100, "the recording has stacks");
    // "slots" is a word of the format.
    for text in said.iter().filter(|text| text.len() > 1 && *text != "slots") {
        assert!(!left.contains(text.as_str()), "{text:?} is left");
    }
    // The source is not said: an empty text.
    assert_eq!(texts(&anonymous), ["slots", ""]);
    let peak = |file: &str| {
        let run = json(&["replay", file, "-p", "expandable", "--json"], 0)["runs"][0].take();
        (run["metrics"].clone(), run["trace_digest"].clone())
    };
    assert_eq!(peak(&plain), peak(&anonymous));
}

/// Every text that is a value of a document.
fn collect(value: &serde_json::Value, texts: &mut Vec<String>) {
    match value {
        serde_json::Value::String(text) => texts.push(text.clone()),
        serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        serde_json::Value::Object(fields) => fields.values().for_each(|item| collect(item, texts)),
        _ => {}
    }
}

#[test]
fn slices_one_after_the_other_ask_for_what_the_whole_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let trace = corpus("default/multistream.pickle.zst");
    let whole = json(&["info", &trace, "--json"], 0);
    let total = whole["events"]["total"].as_u64().unwrap();
    let middle = (total / 2).to_string();
    let last = (total / 2 - 1).to_string();
    ok(&["trace", "slice", &trace, &path("a.pst"), "--last-event", &last]);
    ok(&["trace", "slice", &trace, &path("b.pst"), "--first-event", &middle]);
    let count = |file: &str, kind: &str| {
        let by_kind = json(&["info", file, "--json"], 0)["events"]["by_kind"].take();
        by_kind[kind].as_u64().unwrap_or(0)
    };
    for kind in ["alloc", "free", "free_later", "free_done"] {
        let parts = count(&path("a.pst"), kind) + count(&path("b.pst"), kind);
        // A free that waits where the second part starts is asked for again there.
        let again = if kind == "free_later" { parts - count(&trace, kind) } else { 0 };
        assert_eq!(parts - again, count(&trace, kind), "{kind}");
    }
    let end =
        |file: &str| json(&["info", file, "--json"], 0)["requests"]["final_live_bytes"].clone();
    assert_eq!(end(&path("b.pst")), end(&trace));
    ok(&["trace", "merge", &path("a.pst"), &trace, "-o", &path("c.pst"), "--align", "after"]);
    let merged = json(&["info", &path("c.pst"), "--json"], 0);
    assert_eq!(merged["events"]["total"], total + total / 2);
    for (args, words) in [
        (&["trace", "slice", &trace, "x.pst"][..], "say which part"),
        (&["trace", "slice", &trace, "x.pst", "--span", "nothing"], "no annotation is named"),
        (&["trace", "slice", &trace, "x.pst", "--from", "2s", "--to", "1s"], "ends before"),
        (&["trace", "scale", &trace, "x.pst"], "say by how much"),
        (&["trace", "strip", &trace, &trace], "is read; write another"),
        (&["trace", "strip", &trace, "x.pickle"], "shows decisions"),
    ] {
        let left = run(args);
        assert_eq!(left.code, 2, "{args:?}: {}", left.err);
        assert!(left.err.contains(words), "{args:?}: {}", left.err);
    }
}

#[test]
fn a_run_can_start_from_a_state() {
    let Some(shared) = shared("public/three_pools_pending_free.pickle.zst") else { return };
    let folder = tempfile::tempdir().unwrap();
    let warm = folder.path().join("warm.pst");
    let warm = warm.to_str().unwrap();
    let run = corpus("default/multistream.pickle.zst");
    ok(&["trace", "merge", &shared, &run, "-o", warm]);
    let info = json(&["info", warm, "--json"], 0);
    let state = json(&["info", &shared, "--json"], 0);
    let held = state["recording"]["final_heap"]["allocated_bytes"].as_u64().unwrap();
    assert!(info["preexisting"].as_u64() > Some(0));
    assert!(info["requests"]["peak_live_bytes"].as_u64().unwrap() > held / 2);
    json(&["replay", warm, "-p", "expandable", "--json"], 0);
}

/// A file of ../shared; `None`, said loudly, where it is not there.
fn shared(name: &str) -> Option<String> {
    let beside = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let root = std::env::var_os("POOLSIM_SHARED").map_or(beside, std::path::PathBuf::from);
    let path = root.join(name);
    if !path.exists() {
        eprintln!(
            "SKIPPED: no {} (set POOLSIM_SHARED): starting from a state is not tested",
            path.display()
        );
        return None;
    }
    Some(path.to_str().expect("the path is UTF-8").into())
}
