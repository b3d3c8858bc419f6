//! What the page's scripts draw, as compressed JSON in base64: curves in bounded numbers of points with their extremes,
//! heaps in a bounded number of blocks, stacks as a tree. No text of a trace stands in the page as itself.

use super::peak::{by_stack, frame_words, peak_of};
use crate::data::{QUANTITIES, Run, RunSet, coarser};
use base64::Engine;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use poolsim_core::stack::StackId;
use poolsim_core::{BlockState, Bytes, DeviceOp, Keyframe, Moment, Point};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;

/// Points of memory over time in all runs together.
const POINTS: usize = 64_000;

/// Blocks in all runs' heaps together.
const BLOCKS: usize = 160_000;

/// Blocks of one heap; smaller neighbours of the same kind are shown as one beyond.
const BLOCKS_OF_ONE: usize = 6_000;

/// Spans that are shown, the longest first.
const SPANS: usize = 300;

/// Stacks whose text is there, those with the most bytes first.
const STACKS: usize = 1_500;

/// Points of one curve of latencies.
const STEPS: usize = 600;

/// Frames of a stack that are shown.
const FRAMES: usize = 40;

/// Share of the peak below which a branch of the icicle is not drawn.
const TWIG: f64 = 0.002;

/// The payload in base64.
pub(super) fn encode(set: &RunSet) -> String {
    let names = stack_numbers(set);
    let runs = set.runs.len().max(1);
    let run = |run: &Run| {
        json!({
            "label": run.label,
            "series": series(&run.series, POINTS / runs),
            "calls": calls(run),
            "frames": frames(run, BLOCKS / runs, &names),
            "icicle": icicle(set, run),
            "latency": latency(run),
        })
    };
    let mut spans: Vec<_> = set.annotations.iter().collect();
    spans.sort_by_key(|a| std::cmp::Reverse(a.end.unwrap_or(u64::MAX) - a.start));
    spans.truncate(SPANS);
    spans.sort_by_key(|a| a.start);
    let stacks: Vec<Vec<String>> = ordered(&names)
        .iter()
        .map(|id| set.stacks[id].iter().take(FRAMES).map(frame_words).collect())
        .collect();
    let document = json!({
        "runs": set.runs.iter().map(run).collect::<Vec<_>>(),
        "spans": spans.iter().map(|a| json!([a.name, a.start, a.end])).collect::<Vec<_>>(),
        "stacks": stacks,
    });
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    serde_json::to_writer(&mut encoder, &document).expect("writing to memory cannot fail");
    encoder.flush().expect("writing to memory cannot fail");
    base64::engine::general_purpose::STANDARD
        .encode(encoder.finish().expect("writing to memory cannot fail"))
}

/// Differences between neighbours: small numbers, which compress.
fn deltas(values: impl Iterator<Item = u64>) -> Vec<i64> {
    let mut before = 0;
    values
        .map(|value| {
            let delta = (value as i64).wrapping_sub(before);
            before = value as i64;
            delta
        })
        .collect()
}

fn series(points: &[Point], limit: usize) -> Value {
    let mut points = points.to_vec();
    while points.len() > limit.max(64) {
        points = coarser(&points, 2);
    }
    let column = |get: &dyn Fn(&Point) -> u64| deltas(points.iter().map(get));
    let mut object = json!({
        "first_event": column(&|p| p.first_event),
        "last_event": column(&|p| p.last_event),
        "first_at": column(&|p| p.first_at),
        "last_at": column(&|p| p.last_at),
    });
    for (name, get) in QUANTITIES {
        object[name] =
            json!([column(&|p| get(&p.low)), column(&|p| get(&p.high)), column(&|p| get(&p.last))]);
    }
    object
}

fn calls(run: &Run) -> Value {
    let Some(last) = run.calls.last() else { return Value::Null };
    let made = DeviceOp::ALL.iter().filter(|&&op| last.calls[op as usize] > 0);
    let by_op = made.map(|&op| {
        let counts = deltas(run.calls.iter().map(|p| p.calls[op as usize]));
        (op.name().to_string(), json!(counts))
    });
    json!({
        "last_event": deltas(run.calls.iter().map(|p| p.last_event)),
        "last_at": deltas(run.calls.iter().map(|p| p.last_at)),
        "by_call": Value::Object(by_op.collect()),
    })
}

/// Of each kind of call the share that took no longer, at up to [`STEPS`] times.
fn latency(run: &Run) -> Value {
    if run.distributions.is_empty() {
        return Value::Null;
    }
    let one = run.distributions.iter().map(|kind| {
        let (all, every) = (kind.calls().max(1) as f64, kind.steps.len().div_ceil(STEPS).max(1));
        let mut sum = 0;
        let mut times = Vec::new();
        let mut shares = Vec::new();
        for (i, (ns, calls)) in kind.steps.iter().enumerate() {
            sum += calls;
            if (i + 1) % every == 0 || i + 1 == kind.steps.len() {
                times.push(*ns);
                shares.push((sum as f64 / all * 1e7).round() / 1e5);
            }
        }
        (
            kind.call.clone(),
            json!({ "source": kind.source.name(), "times": times, "shares": shares }),
        )
    });
    Value::Object(one.collect())
}

/// The heaps that fit: all named moments, and of the regular ones every n-th.
fn frames(run: &Run, blocks: usize, names: &BTreeMap<StackId, usize>) -> Vec<Value> {
    let size = |frame: &Keyframe| frame.lives.len().min(BLOCKS_OF_ONE);
    let mut step = 1;
    let chosen = |step: usize| {
        let mut regular = 0;
        run.keyframes.iter().filter(move |frame| {
            regular += usize::from(frame.moment == Moment::Regular);
            frame.moment != Moment::Regular || (regular - 1).is_multiple_of(step)
        })
    };
    while step < run.keyframes.len() && chosen(step).map(size).sum::<usize>() > blocks {
        step *= 2;
    }
    chosen(step).map(|frame| one_frame(frame, names)).collect()
}

fn one_frame(frame: &Keyframe, names: &BTreeMap<StackId, usize>) -> Value {
    let mut least: Bytes = 0;
    let mut ranges = ranges(frame, least, names);
    while ranges.1 > BLOCKS_OF_ONE && least < 1 << 40 {
        least = (least * 2).max(512);
        ranges = self::ranges(frame, least, names);
    }
    json!({ "event": frame.event, "at": frame.at, "moment": frame.moment.name(), "ranges": ranges.0 })
}

/// Ranges with their blocks as flat lists, neighbours below `least` bytes in one; and how many blocks that makes.
fn ranges(frame: &Keyframe, least: Bytes, names: &BTreeMap<StackId, usize>) -> (Vec<Value>, usize) {
    let mut lives = frame.lives.iter();
    let mut count = 0;
    let event = |moment: Option<(u64, u64)>| moment.map_or(-1, |(event, _)| event as i64);
    let of_range = |(range, blocks): &(poolsim_core::RangeView, Vec<poolsim_core::BlockView>)| {
        // Size, requested, state, stack, born, died, blocks: see heap.js.
        let mut rows: Vec<[i64; 7]> = Vec::new();
        for block in blocks {
            let life = lives.next().copied().unwrap_or_default();
            let state = match block.state {
                BlockState::Free => 0,
                BlockState::Allocated => 1,
                BlockState::Pending => 2,
            };
            let stack = names.get(&block.stack).map_or(-1, |&n| n as i64);
            let (size, requested) = (block.size as i64, block.requested as i64);
            if let Some(last) = rows.last_mut()
                && last[2] == state
                && block.size < least
                && (last[0] as u64) < least
            {
                *last = [last[0] + size, last[1] + requested, state, -1, -1, -1, last[6] + 1];
            } else {
                rows.push([size, requested, state, stack, event(life.born), event(life.died), 1]);
            }
        }
        count += rows.len();
        json!({
            "a": format!("{:#x}", range.addr), "s": range.size, "t": range.stream.0, "p": range.pool.0,
            "e": range.expandable, "b": rows.concat(),
        })
    };
    let ranges = frame.heap.ranges.iter().map(of_range).collect();
    (ranges, count)
}

/// Numbers of the stacks whose text the page holds.
fn stack_numbers(set: &RunSet) -> BTreeMap<StackId, usize> {
    let mut bytes: BTreeMap<StackId, Bytes> = BTreeMap::new();
    for frame in set.runs.iter().flat_map(|run| &run.keyframes) {
        for (id, held, _) in by_stack(frame) {
            let most = bytes.entry(id).or_default();
            *most = held.max(*most);
        }
    }
    let mut ids: Vec<_> = bytes.into_iter().filter(|(id, _)| set.stacks.contains_key(id)).collect();
    ids.sort_by_key(|&(id, held)| (std::cmp::Reverse(held), id));
    ids.into_iter().take(STACKS).enumerate().map(|(n, (id, _))| (id, n)).collect()
}

/// The stacks by number.
fn ordered(names: &BTreeMap<StackId, usize>) -> Vec<StackId> {
    let mut ids: Vec<_> = names.iter().collect();
    ids.sort_by_key(|(_, number)| **number);
    ids.into_iter().map(|(id, _)| *id).collect()
}

/// A branch of the icicle: outermost frames first.
#[derive(Default)]
struct Branch {
    bytes: Bytes,
    blocks: u64,
    inner: BTreeMap<String, Branch>,
}

fn icicle(set: &RunSet, run: &Run) -> Value {
    let Some(frame) = peak_of(run).filter(|_| !set.stacks.is_empty()) else { return Value::Null };
    let mut root = Branch::default();
    for (id, bytes, blocks) in by_stack(frame) {
        let frames = set.stacks.get(&id).map_or(&[][..], Vec::as_slice);
        let mut branch = &mut root;
        (branch.bytes, branch.blocks) = (branch.bytes + bytes, branch.blocks + blocks);
        let none = ["(no stack)".to_string()];
        let names: Vec<String> = frames.iter().rev().take(FRAMES).map(frame_words).collect();
        for name in if names.is_empty() { &none[..] } else { &names } {
            branch = branch.inner.entry(name.clone()).or_default();
            (branch.bytes, branch.blocks) = (branch.bytes + bytes, branch.blocks + blocks);
        }
    }
    let least = (root.bytes as f64 * TWIG) as Bytes;
    branch_json("all blocks in use", &root, least)
}

fn branch_json(name: &str, branch: &Branch, least: Bytes) -> Value {
    let mut inner: Vec<_> = branch.inner.iter().filter(|(_, b)| b.bytes >= least).collect();
    inner.sort_by_key(|(name, b)| (std::cmp::Reverse(b.bytes), *name));
    let inner: Vec<Value> = inner.iter().map(|(name, b)| branch_json(name, b, least)).collect();
    json!([name, branch.bytes, branch.blocks, inner])
}
