//! The sequences behind public bug reports, with the sizes that their threads state: does `explain` arrive where the threads did?
//! They lie beside the repository; `explain.rs` holds programs of our own after the same reports.

mod common;

use common::json;
use serde_json::{Map, Value, json as value};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// What a thread found out: the case and its run, `finding`, and what the explanation must hold, as a JSON pointer's text or
/// `helps KIND [CONF]`.
const THREADS: &[(&str, usize, &str, &[&str])] = &[
    ("C001", 0, "refused", &["why pieces", "helps setting max_split_size_mb:200"]),
    ("C004", 0, "refused", &["why pieces", "helps setting max_split_size_mb:200"]),
    ("C005", 0, "refused", &["why pieces", "helps warm_up"]),
    ("C006", 0, "far_above", &["why pieces", "why idle"]),
    ("C008", 0, "refused", &["why pieces", "helps empty_cache"]),
    ("C009", 0, "far_above", &["why idle", "helps setting expandable_segments:True"]),
    ("C010", 0, "fine", &[]),
    ("C011", 0, "fine", &[]),
    ("C012", 0, "far_above", &["why pieces"]),
    ("C013", 0, "far_above", &[]),
    (
        "C014",
        1,
        "far_above",
        &["why idle", "helps largest_first", "helps setting expandable_segments:True"],
    ),
    ("C015", 0, "fine", &[]),
    ("C021", 0, "impossible", &[]),
    ("C023", 0, "refused", &["why pieces", "helps setting expandable_segments:True"]),
    (
        "C025",
        0,
        "far_above",
        &[
            "warns max_split_size_mb with expandable_segments",
            "helps setting expandable_segments:True",
        ],
    ),
    ("C027", 0, "impossible", &[]),
    (
        "C040",
        0,
        "far_above",
        &["warns garbage_collection_threshold does nothing without a memory fraction"],
    ),
    ("C044", 1, "far_above", &["rounding", "helps setting"]),
    ("C045", 0, "far_above", &["why idle", "helps setting roundup_power2_divisions:4"]),
    ("C054", 0, "far_above", &["pending", "helps complete_frees"]),
    ("C055", 0, "fine", &[]),
    ("C067", 0, "refused", &["segment", "helps setting large_segment_size_mb:12"]),
];

fn cases() -> Option<Value> {
    let shared = std::env::var_os("POOLSIM_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let path = shared.join("cases/public_reports.json");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("SKIPPED: no {}, so the public cases were not explained", path.display());
        return None;
    };
    Some(serde_json::from_str(&text).expect("the cases are JSON"))
}

/// The settings of a run, as PyTorch takes them.
fn settings(params: &Map<String, Value>) -> String {
    let mut parts = Vec::new();
    for (key, value) in params {
        match key.as_str() {
            "expandable" if value == true => parts.push("expandable_segments:True".to_string()),
            "max_split" => {
                parts.push(format!("max_split_size_mb:{}", value.as_u64().unwrap() >> 20))
            }
            "gc" => parts.push(format!("garbage_collection_threshold:{value}")),
            "roundup" if value.is_u64() => parts.push(format!("roundup_power2_divisions:{value}")),
            "roundup" => {
                let items = value.as_object().unwrap().iter().map(|(k, v)| format!("{k}:{v}"));
                let items = items.collect::<Vec<_>>().join(",");
                parts.push(format!("roundup_power2_divisions:[{items}]"));
            }
            _ => {}
        }
    }
    parts.join(",")
}

/// A case as a trace in the native format.
fn trace(case: &Value, of: &Value) -> Value {
    let ops = if of["ops"].is_array() { &of["ops"] } else { &case["ops"] };
    let (mut events, mut used, mut pending) = (Vec::new(), BTreeSet::new(), Vec::new());
    for op in ops.as_array().unwrap() {
        let number = |i: usize| op.get(i).and_then(Value::as_u64).unwrap_or(0);
        let id = op.get(1).cloned().unwrap_or(Value::Null);
        match op[0].as_str().unwrap() {
            "a" => events.push(
                value!({ "alloc": id, "size": number(2), "stream": number(3), "pool": number(4) }),
            ),
            "rs" => {
                used.insert(id.to_string());
                events.push(value!({ "use": id, "stream": number(2) }));
            }
            "f" if used.contains(&id.to_string()) => {
                pending.push(id.clone());
                events.push(value!({ "free_later": id }));
            }
            "f" => events.push(value!({ "free": id })),
            "sync" => events.extend(pending.drain(..).map(|id| value!({ "free_done": id }))),
            _ => events.push(value!({ "empty_cache": true })),
        }
    }
    let params = of["params"].as_object().unwrap();
    let mut document = Map::new();
    document.insert("poolsim_trace".into(), value!(1));
    document.insert("settings".into(), value!(settings(params)));
    document.insert("device_memory".into(), value!("80GiB"));
    if let Some(capacity) = params.get("capacity") {
        document.insert("capacity".into(), value!(capacity.to_string()));
    }
    document.insert("events".into(), Value::Array(events));
    Value::Object(document)
}

/// Whether an explanation says what a thread said.
fn says(document: &Value, what: &str) -> bool {
    let scene = &document["scenes"][0];
    let bytes = |value: &Value| value.as_u64().unwrap_or(0);
    let parts = scene["unusable"].as_array().cloned().unwrap_or_default();
    let largest = parts.iter().map(|part| bytes(&part["bytes"])).max().unwrap_or(0);
    match what.split_once(' ') {
        None if what == "segment" => {
            let asked = &scene["asked"];
            let room = bytes(&asked["room"]);
            room >= bytes(&asked["rounded"]) && room < bytes(&asked["segment"])
        }
        None => bytes(&scene[what]) > largest,
        Some(("why", why)) => {
            parts.iter().any(|p| p["why"] == why && bytes(&p["bytes"]) * 3 > largest)
        }
        Some(("warns", words)) => document["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|w| w.as_str().unwrap().contains(words)),
        Some((_, remedy)) => {
            let (kind, conf) = remedy.split_once(' ').unwrap_or((remedy, ""));
            let remedies = document["remedies"].as_array().unwrap();
            remedies.iter().any(|r| r["kind"] == kind && (conf.is_empty() || r["conf"] == conf))
        }
    }
}

#[test]
fn each_case_gets_the_explanation_that_its_thread_arrived_at() {
    let Some(all) = cases() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (name, run, finding, sayings) in THREADS {
        let case = all["cases"].as_array().unwrap().iter().find(|c| c["case"] == *name);
        let case = case.unwrap_or_else(|| panic!("there is no case {name}"));
        let path = folder.path().join(format!("{name}.json"));
        std::fs::write(&path, trace(case, &case["runs"][*run]).to_string()).unwrap();
        let code = if ["refused", "impossible"].contains(finding) { 3 } else { 0 };
        let document = json(&["explain", path.to_str().unwrap(), "--json"], code);
        let found = if document["impossible"] == true {
            "impossible"
        } else {
            document["finding"].as_str().unwrap()
        };
        assert_eq!(found, *finding, "{name}");
        for what in *sayings {
            assert!(says(&document, what), "{name}: {what}: {}", document["scenes"][0]["unusable"]);
        }
    }
}
