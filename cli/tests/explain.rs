//! Does it say of each report what those concerned found out by hand?

mod common;

use common::{corpus, json, run};
use serde_json::Value;
use std::path::PathBuf;

/// What a report came to: what there is to explain, the reason that weighs most, and what helps.
struct Case {
    name: &'static str,
    /// `refused`, `far_above` or `impossible`.
    finding: &'static str,
    /// The kind of unusable memory that weighs most, or a word for what else it is.
    reason: &'static str,
    /// Remedies that must be among those that help, as `kind` or `setting=CONF`.
    helps: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        name: "small-pin-large",
        finding: "refused",
        reason: "pieces",
        helps: &["setting=max_split_size_mb:200", "elsewhere", "earlier", "empty_cache"],
    },
    Case {
        name: "each-step-keeps-a-little",
        finding: "refused",
        reason: "pieces",
        helps: &["setting=max_split_size_mb:200", "empty_cache", "elsewhere"],
    },
    Case {
        name: "order-of-phases",
        finding: "refused",
        reason: "pieces",
        helps: &["setting=expandable_segments:True", "warm_up"],
    },
    Case { name: "two-fits", finding: "refused", reason: "pieces", helps: &["empty_cache"] },
    Case {
        name: "growing-batches",
        finding: "far_above",
        reason: "idle",
        helps: &["largest_first", "setting=expandable_segments:True"],
    },
    Case { name: "does-not-fit", finding: "impossible", reason: "live", helps: &[] },
    Case {
        name: "whole-segments",
        finding: "refused",
        reason: "segment",
        helps: &["setting=large_segment_size_mb:12"],
    },
    Case {
        name: "record-stream",
        finding: "far_above",
        reason: "pending",
        helps: &["complete_frees"],
    },
    Case {
        name: "split-with-expandable",
        finding: "far_above",
        reason: "warning",
        helps: &["setting=expandable_segments:True", "setting=max_split_size_mb:1024"],
    },
    Case {
        name: "threshold-without-fraction",
        finding: "far_above",
        reason: "warning",
        helps: &["setting=expandable_segments:True"],
    },
    Case { name: "rounded-up", finding: "far_above", reason: "rounding", helps: &["setting="] },
    Case {
        name: "nearly-equal-sizes",
        finding: "far_above",
        reason: "idle",
        helps: &["setting=roundup_power2_divisions:4", "setting=expandable_segments:True"],
    },
    Case {
        name: "loading-splits-segments",
        finding: "far_above",
        reason: "pieces",
        helps: &["setting=expandable_segments:True", "empty_cache"],
    },
];

fn bytes(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn reasons(document: &Value) -> Vec<String> {
    let scene = &document["scenes"][0];
    let mut reasons = Vec::new();
    let parts = scene["unusable"].as_array().cloned().unwrap_or_default();
    if let Some(largest) = parts.iter().max_by_key(|part| bytes(&part["bytes"])) {
        reasons.push(largest["why"].as_str().unwrap().to_string());
    }
    let largest = parts.iter().map(|part| bytes(&part["bytes"])).max().unwrap_or(0);
    for other in ["pending", "rounding"] {
        if bytes(&scene[other]) > largest {
            reasons.insert(0, other.into());
        }
    }
    let asked = &scene["asked"];
    let (room, segment) = (bytes(&asked["room"]), bytes(&asked["segment"]));
    if asked.is_object() && room >= bytes(&asked["rounded"]) && room < segment {
        reasons.push("segment".into());
    }
    if !document["warnings"].as_array().unwrap().is_empty() {
        reasons.push("warning".into());
    }
    if document["impossible"] == true {
        reasons.push("live".into());
    }
    reasons
}

fn helping(document: &Value) -> Vec<String> {
    let remedies = document["remedies"].as_array().unwrap();
    let mut all: Vec<String> = remedies
        .iter()
        .map(|remedy| match remedy["kind"].as_str().unwrap() {
            "setting" => format!("setting={}", remedy["conf"].as_str().unwrap()),
            kind => kind.to_string(),
        })
        .collect();
    all.dedup();
    all
}

fn check(case: &Case, document: &Value) {
    let name = case.name;
    let finding = match document["impossible"] == true {
        true => "impossible",
        false => document["finding"].as_str().unwrap(),
    };
    assert_eq!(finding, case.finding, "{name}");
    let reasons = reasons(document);
    assert!(reasons.iter().any(|r| r == case.reason), "{name}: {reasons:?}");
    let helping = helping(document);
    for wanted in case.helps {
        assert!(helping.iter().any(|h| h == wanted), "{name}: {wanted} is not in {helping:?}");
    }
}

#[test]
fn reports_get_the_explanation_that_those_concerned_arrived_at() {
    for case in CASES {
        let code = i32::from(case.finding != "far_above") * 3;
        let file = corpus(&format!("reports/{}.json", case.name));
        check(case, &json(&["explain", &file, "--json"], code));
    }
}

/// Each remedy that helps was replayed: making the change by hand gives the same result.
#[test]
fn a_setting_that_is_said_to_help_does() {
    for name in ["small-pin-large", "two-fits", "whole-segments"] {
        let file = corpus(&format!("reports/{name}.json"));
        let document = json(&["explain", &file, "--json"], 3);
        for remedy in document["remedies"].as_array().unwrap() {
            let Some(conf) = remedy["conf"].as_str().filter(|conf| !conf.is_empty()) else {
                continue;
            };
            let ooms = remedy["measured"]["ooms"].as_u64().unwrap();
            let code = if ooms == 0 { 0 } else { 3 };
            let replay = json(&["replay", &file, "-p", conf, "--json"], code);
            assert_eq!(replay["runs"][0]["metrics"]["ooms"], ooms, "{name} {conf}");
            let peak = &replay["runs"][0]["metrics"]["peak_reserved_bytes"];
            assert_eq!(*peak, remedy["measured"]["peak_reserved_bytes"], "{name} {conf}");
        }
    }
}

/// The parts of a scene are all of the reservation, to the byte.
#[test]
fn what_was_reserved_is_accounted_for() {
    for (file, extra, code) in [
        ("default/gpt2_varlen.pickle.zst", &["--capacity", "12GiB"][..], 3),
        ("default/gpt2_varlen.pickle.zst", &[][..], 0),
        ("pow2d4/unet_multires-lim12.5.pickle.zst", &[][..], 3),
        ("default/multistream.pickle.zst", &[][..], 0),
        ("default/mid_pools-lim0.9.pickle.zst", &[][..], 3),
        ("seg64/mid2-lim0.2.pickle.zst", &[][..], 3),
    ] {
        let path = corpus(file);
        let document = json(&[&["explain", &path, "--json"], extra].concat(), code);
        for scene in document["scenes"].as_array().unwrap() {
            let parts = scene["unusable"].as_array().unwrap();
            let free: u64 = parts.iter().map(|part| bytes(&part["bytes"])).sum();
            let sum =
                free + bytes(&scene["live"]) + bytes(&scene["rounding"]) + bytes(&scene["pending"]);
            assert_eq!(sum, bytes(&scene["reserved"]), "{file} {}", scene["event"]);
        }
    }
}

#[test]
fn what_cannot_be_concluded_is_said() {
    let left =
        run(&["explain", &corpus("default/unet_multires.pickle.zst"), "--capacity", "12GiB"]);
    assert_eq!(left.code, 3, "{}", left.err);
    assert!(left.out.contains("holds no stacks"), "{}", left.out);
    // Nothing was refused and nothing is far above.
    let left = run(&["explain", &corpus("expand/gpt2_varlen.pickle.zst")]);
    assert_eq!(left.code, 0, "{}", left.err);
    assert!(left.out.contains("nothing to explain"), "{}", left.out);
    // Less memory than a single request.
    let left = run(&["explain", &corpus("default/unet_multires.pickle.zst"), "--capacity", "1MiB"]);
    assert_eq!(left.code, 3, "{}", left.err);
    assert!(left.out.contains("No setting can help"), "{}", left.out);
    // An allocator that it does not know.
    assert_eq!(run(&["explain", &corpus("by-hand.json"), "-p", "best-fit"]).code, 2);
}

#[test]
fn a_state_without_history_says_what_to_do() {
    let shared = std::env::var_os("POOLSIM_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let file = shared.join("public/state_only_at_oom.pickle.zst");
    if !file.is_file() {
        println!("SKIPPED: no {}, so a state without history was not tried", file.display());
        return;
    }
    for command in ["explain", "advise"] {
        let left = run(&[command, file.to_str().unwrap()]);
        assert_eq!(left.code, 1, "{}", left.out);
        assert!(left.err.contains("holds a state but no history"), "{}", left.err);
    }
}

/// Each phase's figures fit together, and a setting that is said to help only at first does so by its own figures and by those
/// of a replay with it throughout.
#[test]
fn phases_say_where_emptying_pays_and_which_settings_help_only_at_first() {
    let file = corpus("default/gpt2_varlen.pickle.zst");
    let document = json(&["explain", &file, "--json"], 0);
    let phases = &document["phases"];
    let peak = document["measured"]["peak_reserved_bytes"].as_u64().unwrap();
    let all = phases["phases"].as_array().unwrap();
    assert_eq!(all.len(), 17, "16 optimizer steps, and what follows the last");
    assert_eq!(all.iter().map(|p| bytes(&p["reserved"])).max(), Some(peak));
    for pair in all.windows(2) {
        assert_eq!(pair[0]["to"], pair[1]["from"]);
    }
    let pays =
        |e: &Value| e["pays"] == true && e["saves_bytes"].as_i64().unwrap() * 100 >= peak as i64;
    assert!(pays(&phases["everywhere"]) && pays(&phases["once"][0]), "{phases}");
    let resets = phases["resets"].as_array().unwrap();
    assert!(!resets.is_empty());
    for reset in resets {
        let conf = reset["conf"].as_str().unwrap();
        let replay = json(&["replay", &file, "-p", conf, "--json"], 0);
        let throughout = bytes(&reset["throughout"]["peak_reserved_bytes"]);
        assert_eq!(replay["runs"][0]["metrics"]["peak_reserved_bytes"], throughout, "{conf}");
        let worth = |other: u64| (other as f64 * 0.99) as u64;
        let now = bytes(&reset["measured"]["peak_reserved_bytes"]);
        assert!(now <= worth(peak) && now <= worth(throughout), "{reset}");
    }
}

#[test]
fn odd_traces_are_answered_or_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.json");
    for (events, advised, explained) in [
        ("", 0, 0),
        (r#"{"alloc": 1, "size": 0}"#, 0, 0),
        (r#"{"alloc": 1, "size": "18446744073709551615"}"#, 1, 1),
        (r#"{"alloc_refused": 1, "size": "18446744073709551615"}, {"alloc": 2, "size": 5}"#, 3, 3),
        (r#"{"preexisting": 1, "size": "1GiB"}, {"free_later": 1}, {"empty_cache": true}"#, 0, 0),
    ] {
        let text =
            format!(r#"{{"poolsim_trace": 1, "device_memory": "8GiB", "events": [{events}]}}"#);
        std::fs::write(&path, text).unwrap();
        let file = path.to_str().unwrap();
        for (command, code) in [("advise", advised), ("explain", explained)] {
            let left = run(&[command, file]);
            assert_eq!(left.code, code, "{command} {events}: {}{}", left.out, left.err);
            assert!(!left.err.contains("panicked"), "{}", left.err);
        }
    }
}

/// A trace that starts in the middle of a run, from a recorded heap: all settings start alike all the same, so the settings in
/// force (the defaults here) and the defaults come to the same.
#[test]
fn a_trace_that_starts_late_is_not_compared_with_one_that_starts_empty() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("late.pst");
    let (file, whole) = (path.to_str().unwrap(), corpus("default/unet_multires.pickle.zst"));
    let slice = ["trace", "slice", &whole, file, "--first-event", "2000", "--last-event", "4000"];
    let left = run(&slice);
    assert_eq!(left.code, 0, "{}", left.err);
    let document = json(&["advise", file, "--budget", "48", "--json"], 0);
    assert_eq!(document["now"]["measured"], document["default"]["measured"]);
    let left = run(&["explain", file]);
    assert_eq!(left.code, 0, "{}", left.err);
}
