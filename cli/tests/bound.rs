//! `bound`: minimalloc's published instances, the corpus, and the CSV both ways.

mod common;

use common::{corpus, json, run};
use std::path::PathBuf;

fn public(name: &str) -> Option<String> {
    let folder = std::env::var_os("POOLSIM_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let path = folder.join("public").join(name);
    if path.exists() {
        return Some(path.to_str().unwrap().into());
    }
    println!("SKIPPED: no {} (set POOLSIM_SHARED)", path.display());
    None
}

/// Reads `id,lower,upper,size,offset` and fails if two buffers share time and bytes; returns the height.
fn height_of(csv: &str) -> u64 {
    let rows: Vec<[u64; 4]> = csv
        .lines()
        .skip(1)
        .map(|line| {
            let field = |n: usize| line.split(',').nth(n).unwrap().parse().unwrap();
            [field(1), field(2), field(3), field(4)]
        })
        .collect();
    for (i, [lower, upper, size, offset]) in rows.iter().enumerate() {
        for [l, u, s, o] in &rows[..i] {
            let time = l < upper && lower < u;
            assert!(!time || offset + size <= *o || o + s <= *offset, "buffer {i} overlaps");
        }
    }
    rows.iter().map(|[_, _, size, offset]| size + offset).max().unwrap()
}

#[test]
fn minimallocs_instances_pack_into_their_stated_capacity_and_nothing_less() {
    for (name, capacity) in [
        ("minimalloc_A.1048576.csv", 1_048_576),
        ("minimalloc_K.1048576.csv", 1_048_576),
        ("minimalloc_input.12.csv", 12),
    ] {
        let Some(file) = public(name) else { continue };
        let folder = tempfile::tempdir().unwrap();
        let plan = folder.path().join("plan.csv");
        let bound = json(&["bound", &file, "--json", "--offsets", plan.to_str().unwrap()], 0);
        assert_eq!(bound["packing"]["bytes"], capacity, "{name}");
        assert_eq!(bound["packing"]["proof"], "proven", "{name}");
        assert_eq!(height_of(&std::fs::read_to_string(plan).unwrap()), capacity, "{name}");
    }
}

#[test]
fn the_bound_is_below_every_run_of_the_corpus_that_lives() {
    for name in ["default/multistream", "default/compiled", "frames/resnet50_amp"] {
        let file = corpus(&format!("{name}.pickle.zst"));
        let bound = json(&["bound", &file, "--json", "--steps", "2000000"], 0);
        let number = |key: &str| bound[key].as_u64().unwrap();
        let packed = bound["packing"]["bytes"].as_u64().unwrap();
        assert!(number("live_without_waiting_bytes") <= number("live_bytes"));
        assert!(number("live_bytes") <= number("rounded_bytes"));
        assert!(number("rounded_bytes") <= packed);
        let args = ["replay", &file, "--bound", "--json", "-p", "recorded", "-p", "best-fit"];
        let document = json(&args, 0);
        for run in document["runs"].as_array().unwrap() {
            let metric = |name: &str| run["metrics"][name].as_f64().unwrap();
            assert_eq!(metric("live_bound_bytes"), number("live_bytes") as f64, "{name}");
            assert!(metric("peak_requested_bytes") >= metric("live_bound_bytes"), "{name}");
            assert!(metric("over_bound") >= 0.0, "{name}");
        }
    }
}

#[test]
fn a_trace_written_as_lifetimes_has_the_same_bound() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("lifetimes.csv");
    let (file, csv) = (corpus("default/compiled.pickle.zst"), csv.to_str().unwrap());
    assert_eq!(run(&["convert", &file, csv]).code, 0);
    let (of_trace, of_csv) = (
        json(&["bound", &file, "--json", "--align", "256"], 0),
        json(&["bound", csv, "--json", "--align", "256"], 0),
    );
    for key in ["lifetimes", "live_bytes", "rounded_bytes"] {
        assert_eq!(of_trace[key], of_csv[key], "{key}");
    }
    assert_eq!(of_trace["packing"]["bytes"], of_csv["packing"]["bytes"]);
}

#[test]
fn lifetimes_that_cannot_be_are_errors_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    for (rows, says) in [
        ("a,0,3,4\nb,3,3,4", "line 3"),
        ("a,0,x,4", "line 2"),
        ("a,0,3,-4", "line 2"),
        ("a,0,3,4\na,1,2,4", "still live"),
    ] {
        let path = folder.path().join("bad.csv");
        std::fs::write(&path, format!("id,lower,upper,size\n{rows}\n")).unwrap();
        let left = run(&["bound", path.to_str().unwrap()]);
        assert_eq!(left.code, 1, "{rows}");
        assert!(left.err.contains(says), "{rows}: {}", left.err);
    }
}

#[test]
fn a_time_limit_of_nothing_is_said() {
    let file = corpus("default/fuzz_streams.pickle.zst");
    let left = run(&["bound", &file, "--time-limit", "0"]);
    assert!(left.out.contains("timed out"), "{}", left.out);
    let bound = json(&["bound", &file, "--json", "--steps", "1000"], 0);
    assert_eq!(bound["packing"]["proof"], "best_found");
}
