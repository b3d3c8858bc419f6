//! The waterfall closes, and its counterfactuals are what they say.

mod common;

use common::{corpus, json, run};
use serde_json::Value;

fn causes(document: &Value) -> Vec<(&str, i64, Option<u64>)> {
    let causes = document["causes"].as_array().unwrap().iter();
    causes
        .map(|c| {
            let peak = c["peak_reserved_without_bytes"].as_u64();
            (c["cause"].as_str().unwrap(), c["bytes"].as_i64().unwrap(), peak)
        })
        .collect()
}

#[test]
fn it_sums_up_from_the_bound_to_the_peak_that_replay_shows() {
    for (name, policy) in [
        ("default/multistream", "recorded"),
        ("default/compiled", "expandable"),
        ("frames/resnet50_amp", "pytorch,roundup_power2_divisions:4"),
        ("default/compiled", "best-fit"),
        ("default/multistream", "cuda-async"),
    ] {
        let file = corpus(&format!("{name}.pickle.zst"));
        let steps = ["--steps", "1000000"];
        let args = ["waterfall", &file, "-p", policy, "--json"];
        let document = json(&[&args[..], &steps].concat(), 0);
        let bound = json(&["bound", &file, "--steps", "1000", "--json"], 0);
        let replay = json(&["replay", &file, "-p", policy, "--json"], 0);
        let metrics = &replay["runs"][0]["metrics"];
        assert_eq!(document["live_bytes"], bound["live_bytes"], "{name} {policy}");
        assert_eq!(
            document["peak_reserved_bytes"], metrics["peak_reserved_bytes"],
            "{name} {policy}"
        );
        let number = |key: &str| document[key].as_i64().unwrap();
        let causes = causes(&document);
        let sum: i64 = causes.iter().map(|(_, bytes, _)| bytes).sum();
        let total = number("live_bytes") + sum + number("interaction_bytes");
        assert_eq!(total, number("peak_reserved_bytes"), "{name} {policy}");
        for (cause, bytes, peak) in causes {
            match (cause, peak) {
                ("rounding", _) => assert!(bytes >= 0, "{name} {policy}"),
                (_, Some(peak)) => {
                    assert_eq!(
                        bytes,
                        number("peak_reserved_bytes") - peak as i64,
                        "{name} {cause}"
                    );
                }
                (_, None) => assert_eq!(bytes, 0, "{name} {policy} {cause}"),
            }
        }
    }
}

#[test]
fn each_cause_shows_where_it_is_the_only_one_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.jsonl");
    let waterfall = |events: &str| -> Value {
        std::fs::write(&path, events).unwrap();
        json(&["waterfall", path.to_str().unwrap(), "-p", "pytorch", "--json"], 0)
    };
    let bytes = |document: &Value, wanted: &str| {
        let found = causes(document).into_iter().find(|(cause, ..)| *cause == wanted);
        found.map(|(_, bytes, _)| bytes)
    };
    // The same 64 MiB one after the other on two streams: a segment each, and one if streams shared.
    let two_streams = r#"
        {"alloc": "a", "size": "64MiB"}
        {"free": "a"}
        {"alloc": "b", "size": "64MiB", "stream": 1}
        {"free": "b"}"#;
    let document = waterfall(two_streams);
    assert_eq!(bytes(&document, "streams"), Some(64 << 20), "{document}");
    for cause in ["rounding", "size_classes", "granularity"] {
        assert_eq!(bytes(&document, cause), Some(0), "{cause} {document}");
    }
    assert_eq!(bytes(&document, "pools"), None, "{document}");
    // One request of 3 MiB takes a segment of 20 MiB.
    let document = waterfall(r#"{"alloc": "a", "size": "3MiB"}"#);
    assert_eq!(bytes(&document, "granularity"), Some(17 << 20), "{document}");
    assert_eq!(bytes(&document, "streams"), Some(0), "{document}");
    // 12 MiB go, 24 MiB come: who knows it lays the 24 where the 12 were.
    let growing = r#"
        {"alloc": "a", "size": "12MiB"}
        {"free": "a"}
        {"alloc": "b", "size": "24MiB"}"#;
    let document = waterfall(growing);
    assert_eq!(bytes(&document, "order"), Some(12 << 20), "{document}");
    assert_eq!(document["interaction_bytes"], 0, "{document}");
    // Half a block more than a power of two.
    let small = r#"{"alloc": "a", "size": 1000}"#;
    assert_eq!(bytes(&waterfall(small), "rounding"), Some(24));
}

#[test]
fn it_says_each_counterfactual_and_takes_one_policy() {
    let file = corpus("default/compiled.pickle.zst");
    let left = run(&["waterfall", &file, "--steps", "100000"]);
    for words in ["order of arrival: the same blocks, packed offline", "interaction:", "live bound"]
    {
        assert!(left.out.contains(words), "{words}: {}", left.out);
    }
    assert_eq!(run(&["waterfall", &file, "-p", "bump", "-p", "pytorch"]).code, 2);
}
