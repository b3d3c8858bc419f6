//! The frontier against replays at the capacities that it names.

mod common;

use common::{corpus, json, run};
use serde_json::Value;

#[test]
fn the_job_lives_at_the_frontier_and_dies_one_granule_below_where_it_says() {
    let file = corpus("default/multistream.pickle.zst");
    let policies = "pytorch,expandable,best-fit,bump,cuda-async";
    let args = ["frontier", &file, "--policies", policies, "--probes", "6", "--json"];
    let document = json(&args, 0);
    let granule = document["granule_bytes"].as_u64().unwrap();
    let frontiers = document["frontiers"].as_array().unwrap();
    assert_eq!(frontiers.len(), 5);
    for frontier in frontiers {
        let label = frontier["label"].as_str().unwrap();
        let smallest = frontier["smallest_bytes"].as_u64().unwrap();
        assert!(smallest.is_multiple_of(granule), "{label}");
        assert!(smallest >= document["live_without_waiting_bytes"].as_u64().unwrap(), "{label}");
        let replay = |capacity: u64| -> Value {
            let capacity = capacity.to_string();
            let left = run(&["replay", &file, "-p", label, "--capacity", &capacity, "--json"]);
            let document: Value = serde_json::from_str(&left.out).unwrap();
            document["runs"][0].clone()
        };
        let there = replay(smallest);
        assert_eq!(there["metrics"]["ooms"], 0, "{label}");
        let time = &frontier["tight"]["device_time_ns"];
        assert_eq!(&there["metrics"]["device_time_ns"], time, "{label}");
        let below = replay(smallest - granule);
        let refused = &frontier["first_refused_below"];
        assert_eq!(below["ooms"][0]["event"], refused["event"], "{label}");
        assert_eq!(below["ooms"][0]["requested"], refused["requested"], "{label}");
        let tried = frontier["tried"].as_array().unwrap();
        let lives = |c: &Value| c["lives"].as_bool().unwrap();
        let bytes = |c: &Value| c["bytes"].as_u64().unwrap();
        assert!(tried.iter().all(|c| !lives(c) || bytes(c) >= smallest), "{label}");
        let monotone = tried.iter().all(|c| lives(c) == (bytes(c) >= smallest));
        assert_eq!(frontier["monotone"].as_bool(), Some(monotone), "{label}");
    }
}

#[test]
fn a_policy_that_dies_on_more_memory_than_it_lives_on_is_said_to() {
    let file = corpus("default/multistream.pickle.zst");
    let args = ["frontier", &file, "--policies", "cuda-async", "--probes", "30"];
    let document = json(&[&args[..], &["--json"]].concat(), 0);
    let frontier = &document["frontiers"][0];
    assert_eq!(frontier["monotone"], false, "{frontier}");
    let smallest = frontier["smallest_bytes"].as_u64().unwrap();
    let more = frontier["tried"].as_array().unwrap().iter();
    let dead = more.filter(|c| c["bytes"].as_u64() > Some(smallest) && c["lives"] == false);
    let dead: Vec<u64> = dead.map(|c| c["bytes"].as_u64().unwrap()).collect();
    assert!(frontier["safe_bytes"].as_u64() > dead.last().copied(), "{frontier}");
    for (capacity, code) in [(smallest, 0), (dead[0], 3)] {
        let capacity = capacity.to_string();
        let left = run(&["replay", &file, "-p", "cuda-async", "--capacity", &capacity]);
        assert_eq!(left.code, code, "{capacity}: {}", left.out);
    }
    let left = run(&args);
    assert!(left.out.contains("It is not monotone"), "{}", left.out);
}

#[test]
fn a_job_that_does_not_live_at_all_is_said_to() {
    let file = corpus("default/compiled.pickle.zst");
    let args = ["frontier", &file, "--policies", "pytorch", "--device-memory", "64MiB"];
    let left = run(&args);
    assert!(left.out.contains("does not live even with all"), "{}", left.out);
}
