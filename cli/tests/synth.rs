//! Does `synth` make traces that the other commands take, the same for a seed, and say what is wrong otherwise?

mod common;

use common::{corpus, json, run};

#[test]
fn made_traces_replay() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_string();
    let (one, two, fitted) = (path("one.pst"), path("two.pst"), path("fitted.jsonl"));
    for out in [&one, &two] {
        json(&["synth", "serve", "--set", "requests=20", "--seed", "4", "-o", out, "--json"], 0);
    }
    assert!(std::fs::read(&one).expect("made") == std::fs::read(&two).expect("made"));
    let recording = corpus("default/unet_multires.pickle.zst");
    let args = [
        "synth", "--fit", &recording, "--cycles", "20", "--order", "drawn", "-o", &fitted, "--json",
    ];
    let made = json(&args, 0);
    assert_eq!((&made["recorded_cycles"], &made["cycles"]), (&9.into(), &20.into()), "{made}");
    assert!(made["closeness"]["sizes"]["distance"].as_f64().expect("a number") < 0.1, "{made}");
    for trace in [&one, &fitted] {
        json(&["replay", trace, "--policy", "best-fit", "--json"], 0);
    }
}

/// Nothing changed, in the recorded order: a replay has the same figures.
#[test]
fn an_unchanged_fit_is_the_recording() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("same.pst");
    let recording = corpus("default/multistream.pickle.zst");
    json(&["synth", "--fit", &recording, "-o", out.to_str().expect("UTF-8"), "--json"], 0);
    let figures = |path: &str| {
        json(&["replay", path, "--policy", "bump", "--json"], 0)["runs"][0]["metrics"].clone()
    };
    let same = figures(out.to_str().expect("UTF-8"));
    assert!(same.is_object(), "{same}");
    assert_eq!(same, figures(&recording));
}

#[test]
fn mistakes_are_named() {
    for (args, word) in [
        (&["synth", "trian"][..], "train"),
        (&["synth", "train", "--set", "layers=0", "-o", "x.pst"], "layers"),
        (&["synth", "train", "--set", "depth=2", "-o", "x.pst"], "depth"),
        (&["synth", "train", "--set", "layers"], "KEY=NUMBER"),
        (&["synth", "train", "--fit", "x"], "--fit"),
        (&["synth", "--fit", "x", "--lengths", "2..1"], "0.5..2"),
    ] {
        let left = run(args);
        assert_eq!(left.code, 2, "{args:?}: {}{}", left.out, left.err);
        assert!(left.err.contains(word), "{args:?}: {}", left.err);
    }
}
