//! Who holds the memory at the peak: by stack, and by how long.

use crate::data::{Run, RunSet};
use crate::quantity::{show_count, show_plural};
use minijinja::{Value, context};
use poolsim_core::stack::{Frame, StackId};
use poolsim_core::units::ShowBytes;
use poolsim_core::{BlockState, BlockView, Bytes, Keyframe, Life, Moment};
use std::collections::BTreeMap;

/// Stacks that are listed for each run.
const LISTED: usize = 12;

/// The heap of a run's peak.
pub(super) fn peak_of(run: &Run) -> Option<&Keyframe> {
    run.keyframes.iter().find(|frame| frame.moment == Moment::Peak)
}

/// Blocks in use with their lives.
pub(super) fn in_use(frame: &Keyframe) -> impl Iterator<Item = (&BlockView, Life)> {
    let blocks = frame.heap.blocks().map(|(_, block)| block);
    let lives = frame.lives.iter().copied();
    blocks.zip(lives).filter(|(block, _)| block.state != BlockState::Free)
}

/// The innermost frame that is not of the allocator itself, in words.
pub(super) fn place(frames: &[Frame]) -> String {
    frames.first().map_or("(no stack)".into(), frame_words)
}

/// `name file:line`.
pub(super) fn frame_words(frame: &Frame) -> String {
    match (frame.file.as_str(), frame.line) {
        ("" | "??", _) => frame.name.clone(),
        (file, 0) => format!("{} {file}", frame.name),
        (file, line) => format!("{} {file}:{line}", frame.name),
    }
}

/// What the page says of each run's peak.
pub(super) fn peaks(set: &RunSet) -> Vec<Value> {
    let with_peak =
        set.runs.iter().enumerate().filter_map(|(n, run)| Some((n, run, peak_of(run)?)));
    with_peak
        .map(|(n, run, frame)| {
            context! {
                run => n, label => run.label.as_str(), event => show_count(frame.event),
                lifetimes => lifetimes(frame), stacks => stacks(set, frame),
            }
        })
        .collect()
}

/// Classes of lifetimes in nanoseconds or, in traces without time, events.
const CLASSES: [(u64, &str, &str); 6] = [
    (1_000_000, "under 1 ms", "under 10 events"),
    (10_000_000, "1 to 10 ms", "10 to 100 events"),
    (100_000_000, "10 to 100 ms", "100 to 1,000 events"),
    (1_000_000_000, "0.1 to 1 s", "1,000 to 10,000 events"),
    (10_000_000_000, "1 to 10 s", "10,000 to 100,000 events"),
    (u64::MAX, "10 s and longer", "100,000 events and more"),
];

/// The events that stand for the first class's time.
const EVENTS_SCALE: u64 = 1_000_000 / 10;

fn lifetimes(frame: &Keyframe) -> Vec<Value> {
    let times = frame.lives.iter().any(|l| l.born.is_some_and(|(_, at)| at > 0));
    let mut sums: Vec<(String, Bytes, u64)> =
        CLASSES.iter().map(|c| (if times { c.1 } else { c.2 }.to_string(), 0, 0)).collect();
    sums.push(("until the end of the trace".into(), 0, 0));
    sums.push(("from before the trace".into(), 0, 0));
    for (block, life) in in_use(frame) {
        let class = match (life.born, life.died) {
            (None, _) => CLASSES.len() + 1,
            (_, None) => CLASSES.len(),
            (Some(born), Some(died)) => {
                let length = match times {
                    true => died.1.saturating_sub(born.1),
                    false => died.0.saturating_sub(born.0).saturating_mul(EVENTS_SCALE),
                };
                CLASSES.iter().position(|c| length < c.0).unwrap_or(CLASSES.len() - 1)
            }
        };
        sums[class].1 += block.size;
        sums[class].2 += 1;
    }
    let most = sums.iter().map(|sum| sum.1).max().unwrap_or(0).max(1) as f64;
    let held = sums.into_iter().filter(|sum| sum.2 > 0);
    held.map(|(title, bytes, blocks)| {
        context! {
            title, share => bytes as f64 / most * 100.0,
            text => format!("{} in {}", ShowBytes(bytes), show_plural(blocks, "block")),
        }
    })
    .collect()
}

/// Bytes and blocks by stack, largest first.
pub(super) fn by_stack(frame: &Keyframe) -> Vec<(StackId, Bytes, u64)> {
    let mut sums: BTreeMap<StackId, (Bytes, u64)> = BTreeMap::new();
    for (block, _) in in_use(frame) {
        let sum = sums.entry(block.stack).or_default();
        *sum = (sum.0 + block.size, sum.1 + 1);
    }
    let mut sums: Vec<_> = sums.into_iter().map(|(id, (bytes, n))| (id, bytes, n)).collect();
    sums.sort_by_key(|&(id, bytes, _)| (std::cmp::Reverse(bytes), id));
    sums
}

fn stacks(set: &RunSet, frame: &Keyframe) -> Vec<Value> {
    if set.stacks.is_empty() {
        return Vec::new();
    }
    let largest = by_stack(frame).into_iter().take(LISTED);
    largest
        .map(|(id, bytes, blocks)| {
            let frames = set.stacks.get(&id).map_or(&[][..], Vec::as_slice);
            let lines: Vec<String> = frames.iter().map(frame_words).collect();
            context! { bytes => ShowBytes(bytes).to_string(), blocks => show_count(blocks), place => place(frames), lines }
        })
        .collect()
}
