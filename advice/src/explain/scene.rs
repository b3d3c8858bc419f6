//! One moment of a run: what was asked, what was held, and why the rest could not be used.

use crate::job::Job;
use crate::space::Setting;
use poolsim_core::error::OomCause;
use poolsim_core::record::OomRecord;
use poolsim_core::stack::StackId;
use poolsim_core::{
    BlockState, BlockView, Bytes, Keyframe, Moment, Nanos, RangeView, Trace, TraceError,
};
use poolsim_policies::pytorch::Config;
use poolsim_policies::pytorch::size::segment_size;
use poolsim_sim::observe::{Keyframes, Ooms, Totals};
use poolsim_sim::{Placement, ReplayOptions};
use serde::Serialize;
use std::collections::BTreeMap;

/// Why free memory that is held cannot serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unusable {
    /// It lies in pieces, between blocks in use of the same stream and pool.
    Pieces,
    /// Its blocks are large enough, but a rule keeps them for larger requests (max_split_size_mb).
    SetAside,
    /// It belongs to ranges of other streams.
    OtherStreams,
    /// It belongs to a private pool.
    PrivatePools,
    /// It belongs to the pool of small requests, or of large ones.
    OtherClass,
    /// Nothing keeps it: ranges without a block in use, which an empty_cache would give back.
    Idle,
}

/// Memory that is held and cannot be used, by reason.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Part {
    /// The reason.
    pub why: Unusable,
    /// Free bytes.
    pub bytes: Bytes,
    /// In so many ranges.
    pub ranges: u64,
}

/// Blocks in use that one place of the program asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Owner {
    /// The stack; the empty one where none is known.
    pub stack: StackId,
    /// The innermost call of the program, in words; empty where no stack is known.
    pub place: String,
    /// Bytes.
    pub bytes: Bytes,
    /// Blocks.
    pub blocks: u64,
    /// The events that asked for them, oldest first.
    pub births: Vec<u64>,
    /// The last of them to be freed was so at this event; `None` if one lived to the end.
    pub freed: Option<u64>,
}

/// The stretch of a range that came nearest to serving a request.
#[derive(Clone, Debug, Serialize)]
pub struct Miss {
    /// Length of the range.
    pub range_bytes: Bytes,
    /// Free bytes of the stretch.
    pub free_bytes: Bytes,
    /// Bytes in use there: without them the request would have fitted.
    pub pinned_bytes: Bytes,
    /// Who holds them.
    pub pins: Vec<Owner>,
}

/// A range with free memory that its blocks in use keep from being given back.
#[derive(Clone, Debug, Serialize)]
pub struct Pinned {
    /// Length of the range.
    pub range_bytes: Bytes,
    /// Free bytes in it.
    pub free_bytes: Bytes,
    /// Who holds blocks in it, most bytes first.
    pub owners: Vec<Owner>,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    /// Bytes asked for.
    pub requested: Bytes,
    /// After rounding.
    pub rounded: Bytes,
    /// What the device would have had to give: a whole segment.
    pub segment: Bytes,
    /// The stream.
    pub stream: u16,
    /// The pool; 0 is the default one.
    pub pool: u16,
    /// The call that asked, in words; empty where no stack is known.
    pub place: String,
    /// What the allocator could still have taken from the device.
    pub room: Bytes,
    /// Which bound that is.
    pub cause: OomCause,
    /// Whether the recorded run was refused here too.
    pub recorded: bool,
}

/// One moment.
#[derive(Clone, Debug, Serialize)]
pub struct Scene {
    /// After this event.
    pub event: u64,
    /// When.
    pub at: Nanos,
    /// Spans of the program that were open, innermost first.
    pub phases: Vec<String>,
    /// The request that was refused; `None` for a moment at which nothing was.
    pub asked: Option<Asked>,
    /// Bytes asked for by blocks that the program holds.
    pub live: Bytes,
    /// Bytes of blocks above what was asked for.
    pub rounding: Bytes,
    /// Bytes of blocks that the program freed and other streams still use.
    pub pending: Bytes,
    /// Free bytes held, by why they cannot be used.
    pub unusable: Vec<Part>,
    /// Bytes held from the device.
    pub reserved: Bytes,
    /// The nearest miss of a refused request.
    pub miss: Option<Miss>,
    /// The ranges with the most memory that is free and pinned.
    pub pinned: Vec<Pinned>,
    /// The heap, for what else is asked of it.
    #[serde(skip)]
    pub frame: Keyframe,
}

/// A run, with the moments that matter.
pub struct Looked {
    /// Refused requests, at most the first thousand.
    pub ooms: Vec<OomRecord>,
    /// How many were refused.
    pub refused: u64,
    /// The first refusals, or, where nothing was refused, the peak.
    pub scenes: Vec<Scene>,
}

/// Refusals of which the whole scene is looked at.
const SCENES: usize = 8;
/// Pinned ranges that are listed.
const PINNED: usize = 5;

/// Runs a job under a setting and looks at its refusals, or at its peak.
///
/// # Errors
/// Those of the trace.
pub fn look(job: &Job, setting: &Setting) -> Result<Looked, TraceError> {
    let mut first = (Totals::default(), Ooms::default());
    let options = ReplayOptions::default();
    let (end, _) = job.replay(&setting.resolved, Placement::Driver, &mut first, options)?;
    let (totals, Ooms(ooms)) = first;
    let peak = totals.peak_event().map(|event| (event, Moment::Peak));
    let named: Vec<(u64, Moment)> = match ooms.is_empty() {
        true => peak.into_iter().collect(),
        false => ooms.iter().take(SCENES).map(|oom| (oom.event, Moment::Refused)).collect(),
    };
    let mut frames = Keyframes::new(u64::MAX, usize::MAX, named.clone());
    job.replay(&setting.resolved, Placement::Driver, &mut frames, options)?;
    let frames = frames.into_frames().into_iter().filter(|frame| frame.moment != Moment::Regular);
    let scenes = frames.map(|frame| {
        let oom = ooms.iter().find(|oom| oom.event == frame.event);
        scene(job, setting, frame, oom)
    });
    Ok(Looked { refused: end.ooms, scenes: scenes.collect(), ooms })
}

fn scene(job: &Job, setting: &Setting, frame: Keyframe, oom: Option<&OomRecord>) -> Scene {
    let trace = &job.trace;
    let asked = oom.map(|oom| asked(job, setting, oom));
    let of_interest = trace.events.get(frame.event as usize);
    let (stream, pool) = of_interest.map_or_else(Default::default, |e| (e.stream, e.pool()));
    let small = oom.is_some_and(|oom| is_small(setting, oom.rounded));
    let wanted = oom.map_or(Bytes::MAX, |oom| oom.rounded);
    let mut parts: BTreeMap<Unusable, (Bytes, u64)> = BTreeMap::new();
    for (range, blocks) in &frame.heap.ranges {
        let free = |block: &&BlockView| block.state == BlockState::Free;
        let bytes: Bytes = blocks.iter().filter(free).map(|block| block.size).sum();
        if bytes == 0 {
            continue;
        }
        let largest = blocks.iter().filter(free).map(|block| block.size).max().unwrap_or(0);
        let why = if blocks.iter().all(|block| free(&block)) {
            Unusable::Idle
        } else if range.pool != pool {
            Unusable::PrivatePools
        } else if range.stream != stream {
            Unusable::OtherStreams
        } else if oom.is_some() && range.small != small {
            Unusable::OtherClass
        } else if largest >= wanted {
            Unusable::SetAside
        } else {
            Unusable::Pieces
        };
        let sum = parts.entry(why).or_default();
        *sum = (sum.0 + bytes, sum.1 + 1);
    }
    let in_state = |state: BlockState| {
        frame.heap.blocks().map(|(_, block)| block).filter(move |block| block.state == state)
    };
    let live: Bytes = in_state(BlockState::Allocated).map(|block| block.requested).sum();
    let rounding = in_state(BlockState::Allocated)
        .map(|block| block.size.saturating_sub(block.requested))
        .sum();
    Scene {
        event: frame.event,
        at: frame.at,
        phases: phases_at(trace, frame.at),
        live,
        rounding,
        pending: in_state(BlockState::Pending).map(|block| block.size).sum(),
        unusable: parts
            .into_iter()
            .map(|(why, (bytes, ranges))| Part { why, bytes, ranges })
            .collect(),
        reserved: frame.heap.reserved(),
        miss: oom.and_then(|oom| miss(trace, &frame, oom)),
        pinned: pinned(trace, &frame),
        asked,
        frame,
    }
}

fn config(setting: &Setting) -> Config {
    Config::from_params(&setting.resolved.params).expect("settings are built when they are made")
}

fn is_small(setting: &Setting, rounded: Bytes) -> bool {
    setting.is_native() && rounded <= config(setting).small_max
}

fn asked(job: &Job, setting: &Setting, oom: &OomRecord) -> Asked {
    // Requests of 2^60 bytes and more are refused as they come.
    let served = setting.is_native() && oom.rounded < 1 << 60;
    let segment = if served { segment_size(&config(setting), oom.rounded) } else { oom.rounded };
    let stack = job.trace.event_stacks.get(oom.event as usize).copied().unwrap_or_default();
    let room = match oom.cause {
        OomCause::Limit => job.limit().saturating_sub(oom.reserved),
        _ => oom.device_free,
    };
    Asked {
        requested: oom.requested,
        rounded: oom.rounded,
        segment,
        stream: oom.stream.0,
        pool: oom.pool.0,
        place: place(&job.trace, stack),
        room,
        cause: oom.cause,
        recorded: oom.recorded,
    }
}

/// Names of the spans that are open at a time, innermost first.
fn phases_at(trace: &Trace, at: Nanos) -> Vec<String> {
    let mut open: Vec<_> = trace
        .annotations
        .iter()
        .filter(|span| span.start <= at && span.end.is_none_or(|end| at <= end))
        .collect();
    open.sort_by_key(|span| std::cmp::Reverse(span.start));
    open.into_iter().take(4).map(|span| span.name.clone()).collect()
}

/// The innermost call that is the program's own rather than PyTorch's, in words: `name file:line`.
pub fn place(trace: &Trace, stack: StackId) -> String {
    let is_own = |file: &str| {
        !file.is_empty() && !file.contains("/torch/") && !file.starts_with("torch/") && file != "??"
    };
    let own = trace.stacks.stack(stack).find(|frame| is_own(&frame.file));
    let Some(frame) = own.or_else(|| trace.stacks.stack(stack).next()) else {
        return String::new();
    };
    match (frame.file.as_str(), frame.line) {
        ("" | "??", _) => frame.name.clone(),
        (file, 0) => format!("{} {file}", frame.name),
        (file, line) => format!("{} {file}:{line}", frame.name),
    }
}

/// Blocks in use by where they were asked for, most bytes first. Without stacks, by size.
pub fn owners<'a>(
    trace: &Trace,
    frame: &Keyframe,
    wanted: impl Fn(&RangeView, &BlockView) -> bool + 'a,
) -> Vec<Owner> {
    let mut found: BTreeMap<(StackId, Bytes), Owner> = BTreeMap::new();
    for ((range, block), life) in frame.heap.blocks().zip(&frame.lives) {
        if block.state == BlockState::Free || !wanted(range, block) {
            continue;
        }
        let size = if block.stack == StackId::NONE { block.requested } else { 0 };
        let owner = found.entry((block.stack, size)).or_insert_with(|| Owner {
            stack: block.stack,
            place: place(trace, block.stack),
            bytes: 0,
            blocks: 0,
            births: Vec::new(),
            freed: Some(0),
        });
        owner.bytes += block.size;
        owner.blocks += 1;
        owner.births.extend(life.born.map(|(event, _)| event));
        owner.freed = owner.freed.zip(life.died).map(|(freed, (event, _))| freed.max(event));
    }
    let mut owners: Vec<Owner> = found.into_values().collect();
    owners.iter_mut().for_each(|owner| owner.births.sort_unstable());
    owners.sort_by_key(|owner| (std::cmp::Reverse(owner.bytes), owner.stack, owner.births.clone()));
    owners
}

/// The stretch of at least the rounded size and at most three quarters in use, in ranges of the request's stream and pool, in which the fewest bytes are in use.
fn miss(trace: &Trace, frame: &Keyframe, oom: &OomRecord) -> Option<Miss> {
    let size = oom.rounded;
    let mut best: Option<(Bytes, &RangeView, &[BlockView])> = None;
    let ours = |range: &RangeView| {
        range.stream == oom.stream && range.pool == oom.pool && range.size >= size
    };
    for (range, blocks) in frame.heap.ranges.iter().filter(|(range, _)| ours(range)) {
        let used = |block: &BlockView| if block.state == BlockState::Free { 0 } else { block.size };
        let (mut start, mut length, mut pinned) = (0, 0, 0);
        for end in 0..blocks.len() {
            length += blocks[end].size;
            pinned += used(&blocks[end]);
            while length - blocks[start].size >= size {
                length -= blocks[start].size;
                pinned -= used(&blocks[start]);
                start += 1;
            }
            if length >= size && best.is_none_or(|(least, ..)| pinned < least) {
                best = Some((pinned, range, &blocks[start..=end]));
            }
        }
    }
    let (pinned_bytes, range, blocks) = best?;
    // Where nearly all is in use, nothing was near.
    if pinned_bytes > size / 4 * 3 {
        return None;
    }
    let (from, to) = (blocks.first()?.addr, blocks.last()?.addr);
    let free = blocks.iter().filter(|block| block.state == BlockState::Free);
    Some(Miss {
        range_bytes: range.size,
        free_bytes: free.map(|block| block.size).sum(),
        pinned_bytes,
        pins: owners(trace, frame, |_, block| (from..=to).contains(&block.addr)),
    })
}

fn pinned(trace: &Trace, frame: &Keyframe) -> Vec<Pinned> {
    let mut ranges: Vec<(Bytes, &RangeView)> = Vec::new();
    for (range, blocks) in &frame.heap.ranges {
        let free: Bytes =
            blocks.iter().filter(|b| b.state == BlockState::Free).map(|b| b.size).sum();
        if free > 0 && blocks.iter().any(|block| block.state != BlockState::Free) {
            ranges.push((free, range));
        }
    }
    ranges.sort_by_key(|(free, range)| (std::cmp::Reverse(*free), range.addr));
    let largest = ranges.into_iter().take(PINNED);
    largest
        .map(|(free_bytes, range)| Pinned {
            range_bytes: range.size,
            free_bytes,
            owners: owners(trace, frame, |other, _| other.addr == range.addr),
        })
        .collect()
}
