//! `replay`: results, limits, files.

mod common;

use common::{corpus, json, run};
use poolsim_core::metric::METRICS;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

const GPT2: &str = "default/gpt2_varlen.pickle.zst";

/// A number of the sidecar's `stats`.
fn recorded(trace: &str, name: &str) -> u64 {
    let path = corpus(&trace.replace(".pickle.zst", ".json"));
    let sidecar: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    sidecar["stats"][name].as_u64().unwrap()
}

#[test]
fn every_run_describes_itself_and_holds_every_metric() {
    let file = corpus(GPT2);
    let args = ["replay", &file, "-p", "recorded", "-p", "expandable", "--bound", "--json"];
    let document = json(&args, 0);
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        for metric in METRICS {
            assert!(run["metrics"][metric.name].is_number(), "{} in {run}", metric.name);
        }
        assert_eq!(run["trace_digest"].as_str().map(str::len), Some(64));
        assert_eq!(run["verdict"], "fits");
        assert_eq!(run["policy_version"], "pytorch 2.11");
        assert!(run["device_profile"].as_str().unwrap().contains("driver"));
    }
    assert_eq!(runs[1]["policy"], "pytorch,expandable_segments:True");
    assert_eq!(runs[0]["trace_digest"], runs[1]["trace_digest"]);
}

#[test]
fn under_the_recorded_settings_the_peaks_are_the_recorded_ones() {
    for (trace, code) in
        [(GPT2, 0), ("split128/fuzz_small.pickle.zst", 0), ("expand/multistream.pickle.zst", 0)]
    {
        let document = json(&["replay", &corpus(trace), "--json"], code);
        let metrics = &document["runs"][0]["metrics"];
        for name in ["allocated", "active", "reserved", "requested"] {
            assert_eq!(
                metrics[format!("peak_{name}_bytes")].as_u64(),
                Some(recorded(trace, &format!("{name}_bytes.all.peak"))),
                "{name} of {trace}"
            );
        }
    }
}

#[test]
fn what_if_runs_give_the_peak_that_was_recorded_under_those_settings() {
    let document = json(&["replay", &corpus(GPT2), "-p", "expandable", "--json"], 0);
    let simulated = document["runs"][0]["metrics"]["peak_reserved_bytes"].as_u64();
    assert_eq!(
        simulated,
        Some(recorded("expand/gpt2_varlen.pickle.zst", "reserved_bytes.all.peak"))
    );
}

#[test]
fn a_job_without_enough_memory_exits_with_3_and_says_why() {
    let left = run(&["replay", &corpus(GPT2), "--capacity", "8GiB"]);
    assert_eq!(left.code, 3, "{}", left.err);
    for words in ["out of memory at event", "were reserved", "asked on stream"] {
        assert!(left.out.contains(words), "{words} in {}", left.out);
    }
    let document = json(&["replay", &corpus(GPT2), "--capacity", "8GiB", "--json"], 3);
    let run = &document["runs"][0];
    assert_eq!(run["capacity"], 8u64 << 30);
    assert!(run["metrics"]["ooms"].as_u64() > Some(0));
    assert_eq!(run["ooms"][0]["cause"], "device_full");
}

#[test]
fn a_hand_written_report_shows_fragmentation() {
    let file = corpus("by-hand.json");
    let document = json(&["replay", &file, "-p", "pytorch", "-p", "expandable", "--json"], 3);
    let ooms: Vec<_> = (0..2).map(|i| document["runs"][i]["metrics"]["ooms"].as_u64()).collect();
    assert_eq!(ooms, [Some(1), Some(0)]);
    assert_eq!(document["runs"][0]["capacity"], 14u64 << 30);
}

#[test]
fn torchs_own_words_hold_the_recorded_numbers() {
    let left = run(&["replay", &corpus(GPT2), "--stats"]);
    let stats: BTreeMap<&str, &str> =
        left.out.lines().filter_map(|line| line.split_once("  ")).collect();
    assert_eq!(stats.len(), 122);
    let peak = recorded(GPT2, "reserved_bytes.all.peak").to_string();
    assert_eq!(stats["reserved_bytes.all.peak"].trim(), peak);

    let left = run(&["replay", &corpus(GPT2), "--summary"]);
    assert!(left.out.lines().all(|line| line.len() == 77), "{}", left.out);
    assert!(left.out.contains("| Allocated memory      |  66560 KiB |  11385 MiB | 385396 MiB |"));
}

#[test]
fn files_hold_a_row_for_every_moment_and_decision() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (series, decisions) = (path("series.csv"), path("decisions.csv"));
    let trace = corpus("default/multistream.pickle.zst");
    let args = [
        "replay",
        &trace,
        "-p",
        "pytorch",
        "-p",
        "best-fit",
        "--series",
        &series,
        "--decisions",
        &decisions,
        "--json",
    ];
    let document = json(&args, 0);
    let events = document["runs"][0]["metrics"]["events"].as_u64().unwrap() as usize;
    let series = fs::read_to_string(series).unwrap();
    assert_eq!(series.lines().count(), 1 + 2 * events);
    assert!(
        series.starts_with("policy,event,at_ns,requested,allocated,active,reserved\npytorch,0,")
    );
    let decisions = fs::read_to_string(decisions).unwrap();
    let allocs =
        decisions.lines().filter(|l| l.starts_with("pytorch,") && l.contains(",alloc,")).count();
    assert_eq!(Some(allocs as u64), document["runs"][0]["metrics"]["allocs"].as_u64());
}

#[test]
fn a_simulated_run_is_a_snapshot_that_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("what-if.pickle");
    let out = out.to_str().unwrap();
    for policy in ["expandable", "max_split_size_mb:128", "pytorch"] {
        let trace = corpus("default/fuzz_streams.pickle.zst");
        let document = json(&["replay", &trace, "-p", policy, "--snapshot-out", out, "--json"], 0);
        let info = json(&["info", out, "--json"], 0);
        assert_eq!(info["format"], "torch-pickle");
        let peak = document["runs"][0]["metrics"]["peak_reserved_bytes"].clone();
        let again = json(&["replay", out, "--json"], 0);
        assert_eq!(again["runs"][0]["metrics"]["peak_reserved_bytes"], peak, "{policy}");
        let verified = json(&["verify", out, "--json"], 0);
        assert_eq!(verified["files"][0]["mismatches"], 0, "{verified}");
    }
}

/// Recorded near its limit, the job tried further algorithms after each refusal. With the whole card it would not have tried them.
#[test]
fn a_job_recorded_under_a_limit_is_itself_without_it() {
    let limited = corpus("default/unet_multires-lim12.5.pickle.zst");
    for setting in ["default", "expand"] {
        let sidecar = corpus(&format!("{setting}/unet_multires.json"));
        let recorded: serde_json::Value =
            serde_json::from_slice(&std::fs::read(sidecar).unwrap()).unwrap();
        let policy = if setting == "expand" { "expandable" } else { "pytorch" };
        let replay =
            json(&["replay", &limited, "-p", policy, "--memory-fraction", "1", "--json"], 0);
        let peak = &replay["runs"][0]["metrics"]["peak_reserved_bytes"];
        assert_eq!(*peak, recorded["stats"]["reserved_bytes.all.peak"], "{setting}");
    }
    // As it was recorded it lived under expandable segments, in the same limit.
    json(&["replay", &limited, "-p", "expandable", "--json"], 0);
}
