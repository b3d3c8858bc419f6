//! Sweeps: the same bytes whoever runs them, on however many threads, and however often they are killed.

mod common;

use common::{corpus, json, poolsim, run};
use polars_core::prelude::{AnyValue, DataFrame};
use polars_io::prelude::{ParquetReader, SerReader};
use poolsim_core::metric::{METRICS, Unit};
use serde_json::{Map, Value, json};
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
const FILES: [&str; 4] = ["results.jsonl", "results.csv", "results.parquet", "table.txt"];

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
fn synthetic_traces_are_made_for_each_seed_and_the_same_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, out) = (folder.path().join("experiment.toml"), folder.path().join("out"));
    let text = r#"
        policies = ["pytorch", "expandable"]
        seeds = [3, 4, 5]
        bound = false
        [[synth]]
        program = "train-moe"
        set = { layers = 2 }
    "#;
    fs::write(&path, text).unwrap();
    sweep(&path, &out, &[]);
    let (first, lines) = (results(&out), frames(&out));
    assert_eq!(lines.len(), 2 * 3);
    let records = String::from_utf8(first[0].clone()).unwrap();
    let of: Vec<Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let distinct = |key: &str| of.iter().map(|r| r[key].to_string()).collect::<BTreeSet<_>>();
    assert_eq!(distinct("seed").len(), 3);
    assert_eq!(distinct("trace_digest").len(), 3, "another seed is another trace");
    assert!(distinct("trace").contains("\"synth/train-moe,layers=2,seed=4.pst\""));

    sweep(&path, &out, &["--jobs", "2"]);
    assert_eq!(frames(&out), lines, "nothing is done twice");
    assert_eq!(results(&out), first);

    fs::write(&path, text.replace("layers = 2", "layers = 0")).unwrap();
    let left = run(&["sweep", path.to_str().unwrap()]);
    assert_eq!(left.code, 1, "{}", left.err);
    assert!(left.err.contains("`layers=0` is not possible"), "{}", left.err);
}

#[test]
fn a_killed_sweep_goes_on_and_ends_in_the_same_bytes_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = experiment(folder.path());
    let [one, many, killed] = ["one", "many", "killed"].map(|name| folder.path().join(name));
    sweep(&experiment, &one, &["--jobs", "1"]);
    sweep(&experiment, &many, &["--jobs", "16"]);
    assert_eq!(frames(&one).len(), CELLS);
    assert!(results(&one) == results(&many), "1 and 16 threads differ");
    the_parquet_table_holds_the_results(&one);

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

/// Every value of the JSON lines, in the type that docs/lab.md says.
fn the_parquet_table_holds_the_results(out: &Path) {
    let frame = ParquetReader::new(fs::File::open(out.join("results.parquet")).unwrap());
    let frame = frame.finish().unwrap();
    let lines = fs::read_to_string(out.join("results.jsonl")).unwrap();
    let results: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(frame.height(), results.len());
    let facts =
        ["trace", "trace_digest", "label", "policy", "capacity", "seed", "verdict", "error"];
    let of_record = ["format", "record"];
    assert_eq!(frame.width(), facts.len() + METRICS.len() + of_record.len());
    for (i, result) in results.iter().enumerate() {
        for fact in facts {
            assert_eq!(value(&frame, fact, i), result[fact], "row {i}, {fact}");
        }
        for metric in METRICS {
            let wanted = &result["metrics"][metric.name];
            let wanted = match wanted.as_f64() {
                Some(x) if metric.unit != Unit::Ratio => json!(x.round() as u64),
                Some(x) => json!(x),
                None => Value::Null,
            };
            assert_eq!(value(&frame, metric.name, i), wanted, "row {i}, {}", metric.name);
        }
        match value(&frame, "record", i) {
            Value::String(text) => {
                let record: Map<String, Value> = serde_json::from_str(&text).unwrap();
                assert!(!record.is_empty());
                for (key, value) in record {
                    assert_eq!(value, result[&key], "row {i}, {key} of the record");
                }
            }
            _ => assert!(result["error"].is_string(), "row {i} has no record"),
        }
    }
}

fn value(frame: &DataFrame, column: &str, row: usize) -> Value {
    match frame.column(column).unwrap().get(row).unwrap() {
        AnyValue::Null => Value::Null,
        AnyValue::UInt64(n) => json!(n),
        AnyValue::Float64(x) => json!(x),
        AnyValue::String(text) => json!(text),
        AnyValue::StringOwned(text) => json!(text.as_str()),
        other => panic!("{column}: {other:?}"),
    }
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
    the_parquet_table_holds_the_results(&folder.path().join("e.sweep"));
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
