//! Reads a snapshot and says what that cost, and writes it again if asked to:
//! `cargo run --release -p poolsim-traces --example read_snapshot FILE [OUT.pickle]`.
//!
//! Prints the entries read, the CPU and wall seconds taken, and the peak memory of the process (Linux).

use poolsim_traces::export::write_torch_snapshot;
use poolsim_traces::{OpenOptions, Source, open};
use std::path::Path;
use std::time::Instant;

fn main() {
    let path = std::env::args().nth(1).expect("usage: read_snapshot FILE [OUT.pickle]");
    let started = Instant::now();
    let opened = open(Path::new(&path), &OpenOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let wall = started.elapsed().as_secs_f64();
    if let Source::Recording(recording) = &opened.source {
        println!(
            "{} entries, {} ranges, {} frames, {} stacks, {} annotations",
            recording.entries.len(),
            recording.heap.ranges.len(),
            recording.stacks.frames().len(),
            recording.stacks.stack_count(),
            recording.annotations.len()
        );
        for note in &recording.header.notes {
            println!("note: {note}");
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or("VmHWM: unknown");
    println!(
        "{}: {wall:.3} s wall, peak {}",
        opened.format,
        peak.trim_start_matches("VmHWM:").trim()
    );
    if let (Source::Recording(recording), Some(out)) = (&opened.source, std::env::args().nth(2)) {
        let mut file = std::fs::File::create(out).expect("the output can be created");
        write_torch_snapshot(&mut file, recording).expect("the output can be written");
    }
}
