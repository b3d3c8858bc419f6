//! `verify` on the corpus, and on recordings that were tampered with.

mod common;

use common::{corpus, json, run};

#[test]
fn the_whole_corpus_is_equal_entry_for_entry() {
    let document = json(&["verify", &corpus(""), "--json"], 0);
    let files = document["files"].as_array().unwrap();
    assert_eq!(files.len(), 24);
    for file in files {
        assert_eq!(file["mismatches"], 0, "{file}");
        assert_eq!(file["statistics_compared"], 122, "{file}");
        assert!(file["entries_compared"].as_u64() > Some(100), "{file}");
        assert!(file["first_mismatch"].is_null());
    }
    let paths: Vec<_> = files.iter().map(|f| f["path"].as_str().unwrap()).collect();
    assert!(paths.is_sorted(), "{paths:?}");
}

#[test]
fn results_come_in_the_order_of_the_arguments_and_one_bad_file_costs_no_other() {
    let (good, bad) = (corpus("expand/multistream.pickle.zst"), corpus("by-hand.json"));
    let other = corpus("default/compiled.pickle.zst");
    let document = json(&["verify", &good, &bad, "no-such-file.pickle", &other, "--json"], 1);
    let files = document["files"].as_array().unwrap();
    assert_eq!(files.len(), 4);
    assert_eq!(files[0]["mismatches"], 0);
    assert!(files[1]["error"].as_str().unwrap().contains("by-hand.json"));
    assert!(files[2]["error"].as_str().unwrap().contains("no such file"));
    assert_eq!(files[3]["mismatches"], 0);
}

#[test]
fn a_wrong_limit_is_a_difference_that_says_where_and_what() {
    let file = corpus("default/unet_multires-lim12.5.pickle.zst");
    let document = json(&["verify", &file, "--memory-fraction", "0.05", "--json"], 1);
    let file_result = &document["files"][0];
    assert!(file_result["mismatches"].as_u64() > Some(0), "{file_result}");
    assert!(file_result["first_mismatch"]["entry"].is_u64(), "{file_result}");

    let left = run(&["verify", &file, "--memory-fraction", "0.05"]);
    assert_eq!(left.code, 1);
    assert!(left.out.starts_with("DIFFERS "), "{}", left.out);
    assert!(left.out.contains("(as given)"), "{}", left.out);
}

#[test]
fn the_text_says_what_was_compared_and_explains_what_cannot_be_seen() {
    let left = run(&["verify", &corpus("default/compiled.pickle.zst")]);
    assert_eq!(left.code, 0, "{}", left.err);
    assert!(left.out.contains("870 entries"), "{}", left.out);
    assert!(left.out.contains("122 statistics; 0 mismatches"), "{}", left.out);
    assert!(left.out.contains("an empty_cache() that frees nothing leaves no entry"));
}

#[test]
fn a_file_whose_addresses_were_changed_is_refused_but_its_requests_replay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.json");
    let entry = |action: &str, addr: u64| serde_json::json!({"action": action, "addr": addr, "size": 1000, "stream": 0, "frames": [], "time_us": 1});
    let snapshot = serde_json::json!({
        "segments": [],
        "device_traces": [[entry("alloc", 70_001), entry("alloc", 90_001), entry("free_completed", 70_001)]],
    });
    std::fs::write(&path, snapshot.to_string()).unwrap();
    let path = path.to_str().unwrap();
    let left = run(&["verify", path]);
    assert_eq!(left.code, 1);
    assert!(left.out.contains("event 0") && left.out.contains("changed after"), "{}", left.out);
    let replayed = json(&["replay", path, "--json"], 0)["runs"][0].take();
    assert_eq!(replayed["metrics"]["peak_requested_bytes"], 2000, "{replayed}");
}
