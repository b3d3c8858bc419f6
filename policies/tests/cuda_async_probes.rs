//! `cuda-async` against programs that were run against a real pool, with and without work in flight.

#[path = "cuda_async/program.rs"]
mod program;
#[path = "cuda_async/mod.rs"]
mod support;

use program::Program;
use std::path::Path;
use support::{corpus, shared};

/// Runs every program of a file; returns how many there are.
fn all_agree(path: &Path) -> usize {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let programs: Vec<Program> = text.lines().filter_map(Program::parse).collect();
    let mut wrong = Vec::new();
    for program in &programs {
        let (ours, real) = (program.run(), program.recorded());
        if ours != real {
            let Program { name, options, code, .. } = program;
            wrong.push(format!("{name}|{options}|{code}\n  ours {ours:?}\n  real {real:?}"));
        }
    }
    let count = programs.len();
    println!("{}: {} of {count} programs exact", path.display(), count - wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    count
}

/// Worked examples. One stream where none is named; sizes in pages (`p`) or MiB (`m`).
const WORKED: &str = "\
pages||a0:0.375p a1:1.25p a2:0.375p a3:4p a4:1p a5:2p a6:1p a7:3p f3 f7 D a8:5p f5 f1 D a9:3p a10:0.5p|\
0/1 0.375/2 1.625/2 2/6 6/7 7/9 9/10 10/13 10/13 2/13 0.375/13
the own list comes first||a0:4m a1:1m a2:6m a3:1m f0 D f2 a4:3m|0/1 0.125/1 0.15625/1 0.34375/1 0.15625/1
a host wait moves it||a0:4m a1:1m a2:6m a3:1m f0 D f2 Y0 a4:3m|0/1 0.125/1 0.15625/1 0.34375/1 0/1
another stream's does not||a0:4m a1:1m a2:6m a3:1m f0 D f2 Y1 a4:3m|0/1 0.125/1 0.15625/1 0.34375/1 0.15625/1
unfinished, not ordered||a0:4m a1:1m G0 f0 a2:4m@1 O0|0/1 0.125/1 0.15625/1
ordered over two steps||a0:4m a1:1m G0 f0 W01 W12 a2:4m@2 O0|0/1 0.125/1 0/1
the free is after the record||a0:4m a1:1m G0 W01 f0 a2:4m@1 O0|0/1 0.125/1 0.15625/1
events before finished frees||a9:1m@1 a0:4m@2 a1:1m@2 a2:4m@0 a3:1m@0 G0 f2@0 f0@2 U W01 a4:4m@1 a5:4m@1 O0|\
0/1 0.03125/1 0.15625/1 0.1875/1 0.3125/1 0.1875/1 0.03125/1
finished frees are flushed||a0:16m f0 U a1:32m|0/1 0/1
not opportunistic|opp=0|a0:16m f0 U a1:32m|0/1 0.5/2
second choice||a0:119m a1:9m a2:116m a3:12m a4:114m a5:14m f0 f2 G0 f4 a6:82m@2 a7:83m@2 O0|\
0/4 3.71875/4 4/8 7.625/8 8/12 11.5625/12 0/12 4/12";

#[test]
fn the_worked_examples_hold() {
    for line in WORKED.lines() {
        let program = Program::parse(line).expect("four fields");
        assert_eq!(program.run(), program.recorded(), "{}", program.name);
    }
}

#[test]
fn the_committed_programs_are_reproduced() {
    assert_eq!(all_agree(&corpus().join("probe1.txt")), 97);
    assert_eq!(all_agree(&corpus().join("probe2.txt")), 50);
}

#[test]
fn every_recorded_program_is_reproduced() {
    let Some(dir) = shared("traces/cuda-async") else { return };
    let mut files = 0;
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ext| ext == "txt") {
            assert!(all_agree(&path) > 0, "{} has no programs", path.display());
            files += 1;
        }
    }
    assert!(files > 0, "the folder has no programs");
}
