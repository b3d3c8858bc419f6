//! `convert` and `info`: the same trace in every container.

mod common;

use common::{corpus, json, run};

#[test]
fn a_trace_is_the_same_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let original = corpus("default/fuzz_streams.pickle.zst");
    let digest = json(&["info", &original, "--json"], 0)["trace_digest"].clone();
    let mut input = original.clone();
    for name in ["a.pst", "b.json", "c.jsonl.zst", "d.pst"] {
        let output = path(name);
        let said = json(&["convert", &input, &output, "--json"], 0);
        assert_eq!(said["trace_digest"], digest, "{name}");
        let info = json(&["info", &output, "--json"], 0);
        assert_eq!(info["trace_digest"], digest, "{name}");
        input = output;
    }
    let run_of = |file: &str| {
        let mut run = json(&["replay", file, "-p", "pytorch", "--json"], 0)["runs"][0].take();
        run["trace"].take();
        run
    };
    assert_eq!(run_of(&original)["metrics"], run_of(&path("d.pst"))["metrics"]);
}

#[test]
fn pst_takes_at_most_6_bytes_an_event() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["gpt2_varlen", "unet_multires", "fuzz_streams"] {
        let output = folder.path().join("x.pst");
        let input = corpus(&format!("default/{name}.pickle.zst"));
        let said = json(&["convert", &input, output.to_str().unwrap(), "--json"], 0);
        assert!(said["bytes_per_event"].as_f64() <= Some(6.0), "{said}");
    }
}

#[test]
fn a_converted_trace_keeps_what_the_sidecar_said() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("limited.pst");
    let output = output.to_str().unwrap();
    let input = corpus("default/unet_multires-lim12.5.pickle.zst");
    json(&["convert", &input, output, "--json"], 0);
    let info = json(&["info", output, "--json"], 0);
    assert_eq!(info["machine"]["total_bytes"], 150_109_880_320u64);
    assert_eq!(info["machine"]["memory_fraction_said_by"], "trace");
    assert_eq!(info["settings"], "");
}

#[test]
fn info_says_what_is_in_a_recording() {
    let info = json(&["info", &corpus("default/mid_pools-lim0.9.pickle.zst"), "--json"], 0);
    assert_eq!(info["format"], "torch-pickle");
    assert_eq!(info["starts_empty"], true);
    assert!(info["pools"].as_array().unwrap().len() > 1, "{}", info["pools"]);
    assert!(info["recording"]["by_action"]["oom"].is_u64());
    assert_eq!(info["machine"]["total_bytes_said_by"], "sidecar");

    let left = run(&["info", &corpus("frames/resnet50_amp.pickle.zst")]);
    assert_eq!(left.code, 0, "{}", left.err);
    assert!(left.out.contains("distinct"), "{}", left.out);
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    use std::io::Read;
    use std::process::{Command, Stdio};
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("poolsim"))
        .args(["convert", &corpus("default/gpt2_varlen.pickle.zst"), "-", "--to", "native-jsonl"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut head = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut head).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_rmm_log_replays_through_every_kind_of_allocator_in_one_table() {
    let log = corpus("rmm/unet_multires.rmm.csv");
    let args = ["replay", &log, "-p", "rmm-pool", "-p", "pytorch", "-p", "cuda-async", "--json"];
    let document = json(&args, 0);
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for run in runs {
        let metric = |name: &str| run["metrics"][name].as_u64().unwrap();
        assert_eq!(metric("peak_requested_bytes"), runs[0]["metrics"]["peak_requested_bytes"]);
        assert!(metric("peak_reserved_bytes") >= metric("peak_requested_bytes"));
        assert_eq!(run["verdict"], "fits");
    }
}

#[test]
fn what_a_source_could_not_see_is_said_by_info_replay_and_convert() {
    let folder = tempfile::tempdir().unwrap();
    let timeline = folder.path().join("x");
    std::fs::write(&timeline, "[[1000, 2, 512, 0], [2000, 4, -512, 0]]").unwrap();
    let timeline = timeline.to_str().unwrap();
    let words = ["does not know streams", "had to wait", "youngest allocation", "private pools"];
    let copy = folder.path().join("copy.pst");
    let info = run(&["info", timeline]).out.replace('\n', " ").replace("    ", "");
    let replay = run(&["replay", timeline, "-p", "pytorch"]).err;
    let convert = run(&["convert", timeline, copy.to_str().unwrap()]).err;
    for text in [info, replay, convert] {
        for word in words {
            assert!(text.contains(word), "{word:?} not in {text}");
        }
    }
    let again = run(&["replay", copy.to_str().unwrap(), "-p", "pytorch"]).err;
    assert!(again.contains("youngest allocation"), "{again}");
}

#[test]
fn a_timeline_lies_on_the_clock_of_the_profile_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let trace = r#"{"poolsim_trace": 1, "start_unix_us": 1790000000000005,
        "events": [{"alloc": 1, "size": 512}, {"free": 1, "t": 1500}]}"#;
    std::fs::write(path("a.json"), trace).unwrap();
    let profile = r#"{"baseTimeNanoseconds": 1790000000000000000, "traceEvents": []}"#;
    std::fs::write(path("profile.json"), profile).unwrap();
    let times = |name: &str| -> Vec<f64> {
        let text = std::fs::read(path(name)).unwrap();
        let timeline: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let rows = timeline["traceEvents"].as_array().unwrap();
        let memory = rows.iter().filter(|row| row["name"] == "[memory]");
        memory.map(|row| row["ts"].as_f64().unwrap()).collect()
    };
    assert_eq!(run(&["convert", &path("a.json"), &path("own.trace.json")]).code, 0);
    assert_eq!(times("own.trace.json"), [0.0, 1.5]);
    for input in ["a.json", "a.pst"] {
        assert_eq!(run(&["convert", &path("a.json"), &path("a.pst")]).code, 0);
        let out = path("beside.trace.json");
        let left = run(&["convert", &path(input), &out, "--beside", &path("profile.json")]);
        assert_eq!(left.code, 0, "{}", left.err);
        assert_eq!(times("beside.trace.json"), [5.0, 6.5]);
    }
    let left =
        run(&["convert", &path("a.json"), &path("x.pst"), "--beside", &path("profile.json")]);
    assert_eq!(left.code, 2, "{}", left.err);
}
