//! Why a request was refused: what was free where, and what stood in the way.

use super::peak::place;
use crate::data::{Run, RunSet};
use crate::prose;
use crate::quantity::{show_count, show_plural};
use minijinja::{Value, context};
use poolsim_core::record::OomRecord;
use poolsim_core::units::ShowBytes;
use poolsim_core::{BlockState, BlockView, Bytes, Keyframe, Moment, RangeView};

/// Ranges that are listed.
const LISTED: usize = 15;

/// Blocks that are named as standing in the way.
const NAMED: usize = 8;

/// What the page says of each run that was refused memory.
pub(super) fn ooms(set: &RunSet) -> Vec<Value> {
    let refused = set.runs.iter().filter_map(|run| Some((run, run.record.ooms.first()?)));
    refused
        .map(|(run, oom)| {
            let words = prose::ooms(&run.label, &run.record);
            let heap = frame_of(run, oom);
            context! {
                label => run.label.as_str(), words,
                ranges => heap.map(ranges), miss => heap.map(|frame| miss(set, frame, oom)),
            }
        })
        .collect()
}

fn frame_of<'a>(run: &'a Run, oom: &OomRecord) -> Option<&'a Keyframe> {
    let refused = |frame: &&Keyframe| frame.moment == Moment::Refused && frame.event == oom.event;
    run.keyframes.iter().find(refused)
}

/// Ranges with the most free bytes.
fn ranges(frame: &Keyframe) -> Value {
    let free = |blocks: &[BlockView]| -> (Bytes, Bytes) {
        let free = blocks.iter().filter(|b| b.state == BlockState::Free).map(|b| b.size);
        (free.clone().sum(), free.max().unwrap_or(0))
    };
    let mut ranges: Vec<_> =
        frame.heap.ranges.iter().map(|(range, blocks)| (range, blocks, free(blocks))).collect();
    ranges.sort_by_key(|(range, _, (bytes, _))| (std::cmp::Reverse(*bytes), range.addr));
    let rest = ranges.len().saturating_sub(LISTED);
    let rows: Vec<_> = ranges
        .iter()
        .take(LISTED)
        .map(|(range, blocks, (bytes, largest))| {
            let in_use = blocks.iter().filter(|b| b.state != BlockState::Free).count() as u64;
            context! {
                address => format!("{:#x}", range.addr), size => ShowBytes(range.size).to_string(),
                free => ShowBytes(*bytes).to_string(), largest => ShowBytes(*largest).to_string(),
                in_use => show_count(in_use), stream => range.stream.0, pool => range.pool.0,
                share => *bytes as f64 / range.size.max(1) as f64 * 100.0,
            }
        })
        .collect();
    context! { rows, rest }
}

/// A stretch of a range that would have been long enough.
#[derive(Debug, PartialEq)]
struct Stretch<'a> {
    range: &'a RangeView,
    blocks: &'a [BlockView],
    pinned: Bytes,
}

/// The stretch of at least `size` bytes, in ranges of this request's stream and pool, in which the fewest bytes are in use.
fn nearest<'a>(frame: &'a Keyframe, oom: &OomRecord, size: Bytes) -> Option<Stretch<'a>> {
    let mut best: Option<Stretch<'a>> = None;
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
            if length >= size && best.as_ref().is_none_or(|best| pinned < best.pinned) {
                best = Some(Stretch { range, blocks: &blocks[start..=end], pinned });
            }
        }
    }
    best
}

fn miss(set: &RunSet, frame: &Keyframe, oom: &OomRecord) -> Value {
    let Some(stretch) = nearest(frame, oom, oom.rounded) else {
        let words = format!(
            "No range of this stream and pool is as long as {}: only memory from the device could have served the \
             request.",
            ShowBytes(oom.rounded)
        );
        return context! { words };
    };
    let mut pins: Vec<&BlockView> =
        stretch.blocks.iter().filter(|b| b.state != BlockState::Free).collect();
    pins.sort_by_key(|block| (std::cmp::Reverse(block.size), block.addr));
    let at = stretch.blocks.first().map_or(0, |block| block.addr);
    let words = if pins.is_empty() {
        format!(
            "A free stretch at {at:#x} was long enough; the policy's rules kept it from this request."
        )
    } else {
        format!(
            "The nearest miss lies at {at:#x}, in the range of {} at {:#x}: {} there, {} in all, pin it; without them \
             the request had fitted.",
            ShowBytes(stretch.range.size),
            stretch.range.addr,
            show_plural(pins.len() as u64, "block"),
            ShowBytes(stretch.pinned),
        )
    };
    let named: Vec<_> = pins
        .iter()
        .take(NAMED)
        .map(|block| {
            let frames = set.stacks.get(&block.stack).map_or(&[][..], Vec::as_slice);
            context! {
                address => format!("{:#x}", block.addr), size => ShowBytes(block.size).to_string(),
                place => place(frames),
            }
        })
        .collect();
    context! { words, pins => named, rest => pins.len().saturating_sub(NAMED) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolsim_core::error::OomCause;
    use poolsim_core::stack::StackId;
    use poolsim_core::{HeapImage, PoolId, StreamId};
    use proptest::prelude::*;

    fn oom() -> OomRecord {
        OomRecord {
            event: 0,
            at: 0,
            requested: 1,
            rounded: 1,
            stream: StreamId(0),
            pool: PoolId::DEFAULT,
            cause: OomCause::Limit,
            active: 0,
            reserved: 0,
            device_free: 0,
            largest_free: 0,
            cached: 0,
            recorded: false,
        }
    }

    proptest! {
        /// The nearest miss is no worse than any stretch that trying all of them finds.
        #[test]
        fn the_nearest_miss_is_the_best_of_all_stretches(
            sizes in prop::collection::vec((1u64..9, any::<bool>()), 1..24),
            size in 1u64..40,
        ) {
            let mut addr = 0;
            let blocks: Vec<BlockView> = sizes
                .iter()
                .map(|&(size, used)| {
                    addr += size;
                    let state = if used { BlockState::Allocated } else { BlockState::Free };
                    BlockView { addr: addr - size, size, requested: size, state, slot: None, stack: StackId::NONE }
                })
                .collect();
            let range = RangeView {
                addr: 0, size: addr, stream: StreamId(0), pool: PoolId::DEFAULT, small: false,
                expandable: false, stack: StackId::NONE,
            };
            let heap = HeapImage { ranges: vec![(range, blocks.clone())] };
            let frame = Keyframe { event: 0, at: 0, moment: Moment::Refused, heap, lives: vec![] };
            let mut least = None;
            for start in 0..blocks.len() {
                for end in start..blocks.len() {
                    let part = &blocks[start..=end];
                    let used = part.iter().filter(|b| b.state != BlockState::Free);
                    let pinned: u64 = used.map(|b| b.size).sum();
                    if part.iter().map(|b| b.size).sum::<u64>() >= size {
                        least = Some(least.map_or(pinned, |l: u64| l.min(pinned)));
                    }
                }
            }
            prop_assert_eq!(nearest(&frame, &oom(), size).map(|s| s.pinned), least);
        }
    }
}
