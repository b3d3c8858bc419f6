//! Can a training repository hold its memory against a budget?

mod common;

use common::{corpus, json, run};

#[test]
fn a_budget_decides_the_exit_code_and_says_why() {
    let file = corpus("default/multistream.pickle.zst");
    let holds = run(&["check", &file, "--budget", "reserved<=70GiB, ooms==0"]);
    assert_eq!(holds.code, 0, "{}", holds.err);
    assert_eq!(holds.out.lines().filter(|line| line.starts_with("holds")).count(), 2);
    let fails = run(&["check", &file, "--budget", "reserved<=1GiB,ooms==0"]);
    assert_eq!(fails.code, 1, "{}", fails.err);
    assert!(
        fails.out.contains("peak reserved is 2.47 GiB, which breaks reserved<=1GiB"),
        "{}",
        fails.out
    );
}

/// The values are those that `replay` shows.
#[test]
fn it_measures_what_replay_measures() {
    let file = corpus("default/unet_multires.pickle.zst");
    let policy = "expandable_segments:True";
    let replay = json(&["replay", &file, "-p", policy, "--json"], 0);
    let metrics = &replay["runs"][0]["metrics"];
    let budget = "peak_reserved_bytes>=0, fragmentation>=0, device_time>=0, lost_to_stranded_bytes>=0, mean_active_bytes>=0";
    let document = json(&["check", &file, "-p", policy, "--budget", budget, "--json"], 0);
    let outcomes = document["runs"][0]["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 5);
    for outcome in outcomes {
        let replayed = metrics[outcome["metric"].as_str().unwrap()].as_f64();
        assert_eq!(outcome["value"].as_f64(), replayed, "{outcome}");
    }
}

#[test]
fn the_stack_that_grew_is_named_also_in_junit() {
    let folder = tempfile::tempdir().unwrap();
    let trace = |name: &str, cache: &str| {
        let path = folder.path().join(name);
        let events = format!(
            r#"{{"poolsim_trace": 1, "device_memory": "80GiB", "events": [
            {{"alloc": "w", "size": "4GiB", "stack": ["build (model.py:10)"]}},
            {{"alloc": "c", "size": "{cache}", "stack": ["kv_cache <& (serve.py:33)"]}},
            {{"alloc": "x", "size": "1GiB", "stack": ["step (serve.py:50)"]}}]}}"#
        );
        std::fs::write(&path, events).unwrap();
        path.to_str().unwrap().to_string()
    };
    let (before, after) = (trace("before.json", "2GiB"), trace("after.json", "3GiB"));
    let xml = folder.path().join("out.xml");
    let args = ["check", &after, "--baseline", &before, "--junit", xml.to_str().unwrap()];
    let left = run(&args);
    assert_eq!(left.code, 1, "{}", left.err);
    let said = left.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains(
            "most of the growth is of kv_cache <& serve.py:33: 3.00 GiB instead of 2.00 GiB"
        ),
        "{said}"
    );
    let xml = std::fs::read_to_string(xml).unwrap();
    assert!(
        xml.contains(r#"failures="1""#) && xml.contains("kv_cache &lt;&amp; serve.py:33"),
        "{xml}"
    );
    // The other way round nothing grew.
    assert_eq!(run(&["check", &before, "--baseline", &after]).code, 0);
}

#[test]
fn what_cannot_be_compared_is_a_wrong_command_line() {
    let file = corpus("by-hand.json");
    assert_eq!(run(&["check", &file, "--budget", "reserved<=baseline"]).code, 2);
    let left = run(&["check", &file, "--budget", "reservd<=1GiB"]);
    assert_eq!(left.code, 2);
    assert!(left.err.contains("there are reserved, allocated"), "{}", left.err);
    assert_eq!(run(&["check", &file]).code, 1, "it runs out of memory");
}
