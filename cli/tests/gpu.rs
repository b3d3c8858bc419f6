//! `--on gpu` and `compare`, as far as a machine without a GPU can tell; scripts/gpu-check does the rest.

mod common;

use common::{corpus, json, poolsim};
use predicates::str::contains;

const UNET: &str = "default/unet_multires.pickle.zst";

fn has_gpu() -> bool {
    poolsim(&["devices"]).output().unwrap().status.success()
}

#[test]
fn without_a_driver_one_sentence_says_what_is_missing_and_how_to_check_it() {
    if has_gpu() {
        println!("SKIPPED: there is a GPU here");
        return;
    }
    let file = corpus(UNET);
    for args in [
        &["replay", &file, "--on", "gpu"][..],
        &["compare", &file, "--on", "sim,gpu", "--policies", "pytorch,cuda-async"],
        &["compare", &file, "--repeat", "3"],
        &["calibrate"],
        &["devices"],
    ] {
        let said = poolsim(args).assert().code(1).stderr(contains("nvidia-smi"));
        let said = String::from_utf8(said.get_output().stderr.clone()).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_comparison_that_nobody_gave_a_place_falls_back_to_simulation_and_says_so_in_one_line() {
    if has_gpu() {
        println!("SKIPPED: there is a GPU here");
        return;
    }
    let file = corpus(UNET);
    let args = ["compare", &file, "-p", "recorded", "--json"];
    let said = poolsim(&args).assert().code(0).stderr(contains("IN SIMULATION ONLY"));
    let said = said.get_output().clone();
    assert_eq!(String::from_utf8_lossy(&said.stderr).lines().count(), 1, "{said:?}");
    let simulated = poolsim(&["compare", &file, "-p", "recorded", "--json", "--on", "sim"]);
    assert_eq!(said.stdout, { simulated }.output().unwrap().stdout);
}

#[test]
fn options_of_the_gpu_are_refused_in_simulation() {
    let file = corpus(UNET);
    for option in [&["--touch"][..], &["--paced"], &["--work", "20us"], &["--repeat", "3"]] {
        let args = [&["replay", &file][..], option].concat();
        poolsim(&args).assert().code(2).stderr(contains(option[0]));
        let args = [&["compare", &file, "--on", "sim"][..], option].concat();
        poolsim(&args).assert().code(2).stderr(contains(option[0]));
    }
    poolsim(&["replay", &file, "--on", "gpu", "--capacity", "1GiB"])
        .assert()
        .code(2)
        .stderr(contains("--capacity"));
}

#[test]
fn a_comparison_in_simulation_alone_is_the_replay() {
    let file = corpus(UNET);
    let policies = ["-p", "recorded", "-p", "cuda-async"];
    let compared = json(&[&["compare", &file, "--on", "sim", "--json"][..], &policies].concat(), 0);
    let mut replayed = json(&[&["replay", &file, "--json"][..], &policies].concat(), 0);
    for run in replayed["runs"].as_array_mut().unwrap() {
        run.as_object_mut().unwrap().remove("verdict");
    }
    assert_eq!(compared["runs"], replayed["runs"]);
    assert_eq!(compared["comparisons"].as_array().map(Vec::len), Some(0));
}
