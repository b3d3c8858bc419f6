//! The exact allocator against real recordings: every entry and every block.

mod recordings;

use std::path::{Path, PathBuf};
use std::time::Instant;

fn shared() -> Option<PathBuf> {
    let dir = std::env::var_os("POOLSIM_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"), PathBuf::from);
    dir.is_dir().then_some(dir)
}

fn exact(path: &Path) -> Result<(), String> {
    let Some(rec) = recordings::read(path) else { return Ok(()) };
    let started = Instant::now();
    let config = recordings::config_of(&rec);
    let inferred = poolsim_policies::pytorch::infer::infer(&rec, &config);
    let took = started.elapsed();
    let parity = recordings::verify(&rec, &config, &inferred);
    println!(
        "{}: {} entries in {took:.1?}, {} + {} differ; {:?}",
        path.display(),
        rec.entries.len(),
        parity.entry_mismatches,
        parity.heap_mismatches,
        inferred.notes,
    );
    if let Some(u) = &inferred.unexplained {
        return Err(format!("{}: entry {}: {}", path.display(), u.entry, u.what));
    }
    if parity.mismatches() > 0 {
        return Err(format!(
            "{}: {:?} {:?}",
            path.display(),
            parity.first_mismatch,
            parity.heap_differences
        ));
    }
    Ok(())
}

fn all_exact(paths: &[PathBuf]) {
    let failures: Vec<String> = paths.iter().filter_map(|p| exact(p).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn the_corpus_is_exact() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/corpus");
    all_exact(&recordings::snapshots(&corpus));
}

#[test]
fn shared_recordings_are_exact() {
    let Some(shared) = shared() else {
        println!("SKIPPED: no shared recordings (set POOLSIM_SHARED)");
        return;
    };
    all_exact(&recordings::snapshots(&shared.join("traces")));
}

/// Recordings that other people published: complete ones and some that start late.
#[test]
fn public_recordings_are_exact() {
    let Some(shared) = shared() else {
        println!("SKIPPED: no shared recordings (set POOLSIM_SHARED)");
        return;
    };
    let names = [
        "complete_forward_amp",
        "complete_train_step",
        "tiny_complete",
        "starts_mid_run",
        "expandable_warm_start",
    ];
    let paths = names.map(|n| shared.join("public").join(format!("{n}.pickle.zst")));
    all_exact(&paths);
}
