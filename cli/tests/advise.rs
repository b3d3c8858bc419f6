//! Is the advice right where the recordings can tell, and does it say when there is none to give?

mod common;

use common::{corpus, json, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn peak(measured: &Value) -> u64 {
    measured["measured"]["peak_reserved_bytes"].as_u64().unwrap()
}

/// Sidecars by job and settings, with the recording's path.
fn recordings(folder: &Path) -> BTreeMap<String, BTreeMap<String, (PathBuf, Value)>> {
    let mut jobs: BTreeMap<String, BTreeMap<String, (PathBuf, Value)>> = BTreeMap::new();
    for setting in fs::read_dir(folder).unwrap() {
        let Ok(files) = fs::read_dir(setting.unwrap().path()) else { continue };
        for file in files {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            let Some(job) = name.strip_suffix(".pickle.zst") else { continue };
            let Ok(text) = fs::read(path.with_file_name(format!("{job}.json"))) else { continue };
            let sidecar: Value = serde_json::from_slice(&text).unwrap();
            let conf = sidecar["conf"].as_str().unwrap().to_string();
            jobs.entry(job.into()).or_default().insert(conf, (path, sidecar));
        }
    }
    jobs
}

/// The peak that the advised setting really reached (or, where nobody recorded it, the simulated one) is at most 1 % above
/// the best that was recorded under any setting.
fn regret_is_small(folder: &Path) -> usize {
    let mut compared = 0;
    for (job, by_conf) in recordings(folder) {
        if by_conf.len() < 2 || !by_conf.contains_key("") || job.contains("-lim") {
            continue;
        }
        let stat = |sidecar: &Value| sidecar["stats"]["reserved_bytes.all.peak"].as_u64().unwrap();
        let best = by_conf.values().map(|(_, sidecar)| stat(sidecar)).min().unwrap();
        let advice = json(&["advise", by_conf[""].0.to_str().unwrap(), "--json"], 0);
        let conf = advice["conf"].as_str().unwrap();
        let got = match by_conf.get(conf) {
            Some((_, sidecar)) => stat(sidecar),
            None => peak(&advice["advised"]),
        };
        assert!(
            got as f64 <= best as f64 * 1.01,
            "{job}: {conf} reaches {got}, the best recorded {best}"
        );
        compared += 1;
    }
    compared
}

#[test]
fn the_advice_is_the_best_that_was_recorded() {
    assert_eq!(regret_is_small(Path::new(&corpus(""))), 4);
}

#[test]
fn the_advice_is_the_best_that_was_recorded_on_all_recordings() {
    let shared = std::env::var_os("POOLSIM_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let folder = shared.join("traces");
    if !folder.is_dir() {
        println!(
            "SKIPPED: no {}, so the advice was not checked on all recordings",
            folder.display()
        );
        return;
    }
    assert_eq!(regret_is_small(&folder), 5);
}

/// Where a job ran under a limit and its requests do not depend on it, simulated and recorded verdict are the same for
/// every setting that was recorded.
#[test]
fn verdicts_under_a_recorded_limit_are_right() {
    let base = corpus("default/unet_multires.pickle.zst");
    let mut settings = Vec::new();
    for (job, by_conf) in recordings(Path::new(&corpus(""))) {
        if job != "unet_multires-lim12.5" {
            continue;
        }
        for (conf, (_, sidecar)) in by_conf {
            let limit = sidecar["limit_gib"].as_f64().unwrap() * f64::from(1 << 30);
            let share = format!("{}", limit / sidecar["total_memory"].as_f64().unwrap());
            let recorded = sidecar["stats"]["num_ooms"].as_u64().unwrap() > 0;
            let policy = if conf.is_empty() { "pytorch" } else { &conf };
            let left = run(&["replay", &base, "-p", policy, "--memory-fraction", &share]);
            assert_eq!(left.code == 3, recorded, "{conf}: {}", left.out);
            settings.push(conf);
        }
    }
    assert!(settings.len() >= 4, "{settings:?}");
}

/// The job tried one algorithm after another when it was refused. Recorded under expandable segments it lived.
#[test]
fn what_followed_a_refusal_does_not_hide_the_setting_that_saved_the_job() {
    let file = corpus("default/unet_multires-lim12.5.pickle.zst");
    let saved = json(&["verify", &corpus("expand/unet_multires-lim12.5.pickle.zst"), "--json"], 0);
    assert_eq!(saved["files"][0]["mismatches"], 0);
    let advice = json(&["advise", &file, "--json"], 0);
    assert_eq!(advice["verdict"], "set");
    assert_eq!(advice["conf"], "expandable_segments:True");
    assert_eq!(advice["advised"]["measured"]["ooms"], 0);
    let explained = json(&["explain", &file, "--json"], 3);
    let helps = |remedy: &Value| {
        remedy["conf"] == "expandable_segments:True" && remedy["measured"]["ooms"] == 0
    };
    assert!(explained["remedies"].as_array().unwrap().iter().any(helps), "{explained}");
}

#[test]
fn the_same_question_gets_the_same_answer_on_any_number_of_threads() {
    let file = corpus("default/unet_multires.pickle.zst");
    let ask = |threads: &str| {
        let args = ["advise", &file, "--capacity", "12GiB", "--budget", "60", "--json"];
        let output = common::poolsim(&args).env("RAYON_NUM_THREADS", threads).output().unwrap();
        assert!(output.status.success());
        output.stdout
    };
    assert!(ask("1") == ask("3"));
}

#[test]
fn the_last_line_can_be_run_and_follows_the_version() {
    let file = corpus("default/unet_multires.pickle.zst");
    let last = |version: &str| {
        let left = run(&["advise", &file, "--torch", version, "--budget", "60"]);
        assert_eq!(left.code, 0, "{}", left.err);
        left.out.lines().last().unwrap().to_string()
    };
    assert_eq!(last("2.11"), "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    assert_eq!(last("2.12"), "export PYTORCH_ALLOC_CONF=expandable_segments:True");
    let old = last("2.0");
    assert!(!old.contains("expandable") && !old.contains("large_segment"), "{old}");
}

/// `setting` is in force already, or nothing helps: no line is printed.
#[test]
fn what_is_best_already_is_left_alone() {
    let left = run(&["advise", &corpus("expand/unet_multires.pickle.zst"), "--budget", "60"]);
    assert_eq!(left.code, 0, "{}", left.err);
    assert!(
        left.out.contains("The settings in force, expandable_segments:True, are best"),
        "{}",
        left.out
    );
    assert!(!left.out.contains("export "), "{}", left.out);
}

#[test]
fn a_job_that_needs_more_than_there_is_is_told_so_in_bytes() {
    let file = corpus("default/unet_multires.pickle.zst");
    let needs =
        json(&["bound", &file, "--steps", "1000", "--json"], 0)["live_bytes"].as_u64().unwrap();
    let document = json(&["advise", &file, "--capacity", "10GiB", "--json"], 3);
    assert_eq!(document["verdict"], "impossible");
    assert_eq!(document["needs"]["live_bytes"], needs);
    assert_eq!(document["tried"].as_array().unwrap().len(), 0);
    let left = run(&["advise", &file, "--capacity", "10GiB"]);
    assert_eq!(left.code, 3);
    assert!(left.out.contains("No setting can carry this job"), "{}", left.out);
}

#[test]
fn an_option_without_effect_is_never_advised() {
    let file = corpus("default/unet_multires.pickle.zst");
    let document = json(&["advise", &file, "--json"], 0);
    for tried in document["tried"].as_array().unwrap() {
        let conf = tried["conf"].as_str().unwrap();
        assert!(!conf.contains("garbage_collection"), "{conf}: there is no memory fraction");
        let both = conf.contains("expandable") && conf.contains("max_split");
        assert!(!both, "{conf}: it makes memory grow");
    }
    assert!(document["exhaustive"].as_bool().unwrap());
}

#[test]
fn ranks_get_one_setting_and_further_recordings_are_heard() {
    let folder = tempfile::tempdir().unwrap();
    for (rank, name) in ["default/unet_multires", "default/multistream"].into_iter().enumerate() {
        for ending in ["pickle.zst", "json"] {
            let to = folder.path().join(format!("rank{rank}.{ending}"));
            fs::copy(corpus(&format!("{name}.{ending}")), to).unwrap();
        }
    }
    let path = folder.path().to_str().unwrap();
    let document = json(&["advise", path, "--budget", "60", "--json"], 0);
    let ranks = document["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 2);
    let worst = ranks.iter().map(|r| r["now"]["peak_reserved_bytes"].as_u64().unwrap()).max();
    assert_eq!(Some(peak(&document["now"])), worst);
    let file = corpus("default/unet_multires.pickle.zst");
    let further = corpus("expand/unet_multires.pickle.zst");
    let document = json(&["advise", &file, &further, "--budget", "60", "--json"], 0);
    let rows = document["confidence"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["kind"] == "recording" && row["worse"] == 0), "{rows:?}");
}
