//! Sweeps: the same bytes whoever runs them, on however many threads, and however often they are killed.

mod common;

use common::{corpus, json, poolsim, run};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An experiment of 2 traces × 12 policies × 2 capacities, one of which is not a policy of one trace.
fn experiment(folder: &Path) -> PathBuf {
    let text = format!(
        r#"
        traces = [{:?}, {:?}]
        policies = ["recorded", "expandable", "best-fit", "bump"]
        capacities = ["device", "3GiB"]
        bound_steps = 100000
        [[grid]]
        policy = "pytorch"
        [grid.params]
        max_split_size_mb = [32, 64, 128, 256]
        roundup_power2_divisions = [2, 8]
        "#,
        corpus("default/multistream.pickle.zst"),
        corpus("expand/multistream.pickle.zst"),
    );
    let path = folder.join("experiment.toml");
    fs::write(&path, text).unwrap();
    path
}

const CELLS: usize = 2 * 12 * 2;
const FILES: [&str; 3] = ["results.jsonl", "results.csv", "table.txt"];

fn sweep(experiment: &Path, out: &Path, more: &[&str]) {
    let args = ["sweep", experiment.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let left = run(&[&args[..], more].concat());
    assert_eq!(left.code, 0, "{}", left.err);
}

fn results(out: &Path) -> Vec<Vec<u8>> {
    FILES.map(|name| fs::read(out.join(name)).unwrap()).into()
}

fn frames(out: &Path) -> Vec<String> {
    let journal = fs::read_to_string(out.join("journal")).unwrap_or_default();
    journal.lines().map(String::from).collect()
}

fn keys(out: &Path) -> BTreeSet<String> {
    let key = |line: &String| line.split("\"key\":\"").nth(1).unwrap()[..64].to_string();
    frames(out).iter().map(key).collect()
}

#[test]
fn a_killed_sweep_goes_on_and_ends_in_the_same_bytes_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = experiment(folder.path());
    let [one, four, killed] = ["one", "four", "killed"].map(|name| folder.path().join(name));
    sweep(&experiment, &one, &["--jobs", "1"]);
    sweep(&experiment, &four, &["--jobs", "4"]);
    assert_eq!(frames(&one).len(), CELLS);
    assert!(results(&one) == results(&four), "1 and 4 threads differ");

    let mut kills = 0;
    for most in [1, 9, 25] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_poolsim"))
            .args(["sweep", experiment.to_str().unwrap(), "--jobs", "2", "--out"])
            .arg(&killed)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while frames(&killed).len() < most && child.try_wait().unwrap().is_none() {}
        // SIGKILL: nothing is tidied up.
        child.kill().unwrap();
        kills += i32::from(child.wait().unwrap().code().is_none());
    }
    assert!(kills > 0, "every child ended before it was killed");
    sweep(&experiment, &killed, &["--jobs", "2"]);
    assert_eq!(frames(&killed).len(), CELLS, "nothing is done twice");
    assert_eq!(keys(&killed), keys(&one), "nothing is lost");
    assert!(results(&killed) == results(&one), "a kill changed the results");
}

#[test]
fn a_budget_stops_and_the_same_command_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (experiment, out) = (experiment(folder.path()), folder.path().join("out"));
    let args = ["sweep", experiment.to_str().unwrap(), "--out", out.to_str().unwrap(), "--json"];
    let none = json(&[&args[..], &["--budget", "0"]].concat(), 0);
    assert_eq!((none["cells"].as_u64(), none["done"].as_u64()), (Some(CELLS as u64), Some(0)));
    let all = json(&args, 0);
    assert_eq!((all["done"].as_u64(), all["failed"].as_u64()), (Some(CELLS as u64), Some(0)));
    let again = json(&args, 0);
    assert!(again == all, "a finished sweep says the same again");
}

#[test]
fn what_cannot_run_is_a_result_that_says_why() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("seeded-7.csv"), "id,lower,upper,size\na,0,3,4096\n").unwrap();
    fs::write(folder.path().join("seeded-8.csv"), "id,lower,upper,size\na,0,3\n").unwrap();
    let text = r#"
        traces = ["seeded-{seed}.csv"]
        seeds = [7, 8]
        policies = ["bump", "recorded", "no-such-policy"]
    "#;
    let experiment = folder.path().join("e.toml");
    fs::write(&experiment, text).unwrap();
    let all = json(&["sweep", experiment.to_str().unwrap(), "--json"], 1);
    assert_eq!((all["done"].as_u64(), all["failed"].as_u64()), (Some(6), Some(5)));
    let results = all["results"].as_array().unwrap();
    assert_eq!(results[0]["trace"], "seeded-7.csv");
    assert_eq!(results[0]["metrics"]["live_bound_bytes"], 4096);
    let error = |n: usize| results[n]["error"].as_str().unwrap();
    assert!(error(1).contains("recorded"), "{}", error(1));
    assert!(error(2).contains("no-such-policy"), "{}", error(2));
    assert!(error(3).contains("line 2"), "{}", error(3));
    assert!(folder.path().join("e.sweep/results.csv").exists());
}

#[test]
fn an_experiment_that_is_wrong_is_an_error_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.toml");
    for (text, says) in [
        ("traces = ['a']\npolicy = ['bump']", "policy"),
        ("traces = ['*.none']\npolicies = ['bump']", "*.none"),
        ("traces = ['a'", "TOML"),
    ] {
        fs::write(&path, text).unwrap();
        let left = poolsim(&["sweep", path.to_str().unwrap()]).output().unwrap();
        let error = String::from_utf8(left.stderr).unwrap();
        assert_eq!(left.status.code(), Some(1), "{error}");
        assert!(error.contains("e.toml") || error.contains(says), "{error}");
        assert!(error.contains(says), "{error}");
    }
}
