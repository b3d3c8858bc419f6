//! The state that led to a mismatch, in a few lines.

use crate::machine::Machine;
use poolsim_core::record::Decision;
use poolsim_core::units::ShowBytes;
use poolsim_core::{BlockState, BlockView, Event, HeapImage, RangeView};
use poolsim_reports::quantity::{show_count, show_plural};

/// Free blocks that are listed at most, from the smallest that could serve the request up.
const LISTED: usize = 6;

/// What the heap was before the event: how full, and which free blocks lay near the request's size.
pub fn describe(
    heap: &HeapImage,
    asked: Option<&Event>,
    decision: Option<&Decision>,
    machine: &Machine,
) -> Vec<String> {
    let limit = match machine.memory_fraction {
        Some(share) => {
            let limit = (share * machine.caps.total as f64) as u64;
            format!("limit {}", ShowBytes(limit))
        }
        None => "no limit".into(),
    };
    let mut lines = vec![format!(
        "before it: {} in {} reserved ({limit}), {} in use, {} free",
        ShowBytes(heap.reserved()),
        show_plural(heap.ranges.len() as u64, "range"),
        ShowBytes(heap.bytes_in(BlockState::Allocated) + heap.bytes_in(BlockState::Pending)),
        ShowBytes(heap.bytes_in(BlockState::Free)),
    )];
    let Some(asked) = asked else { return lines };
    lines.push(format!(
        "event: {} of {} bytes on stream {} in pool {}",
        asked.kind().name(),
        show_count(asked.size),
        asked.stream,
        asked.pool()
    ));
    let stream = decision.map_or(asked.stream, |d| d.stream);
    let mut free: Vec<(&RangeView, &BlockView)> = heap
        .blocks()
        .filter(|(range, block)| {
            block.state == BlockState::Free && range.stream == stream && range.pool == asked.pool()
        })
        .collect();
    free.sort_by_key(|(_, block)| (block.size, block.addr));
    let fits = free.partition_point(|(_, block)| block.size < asked.size);
    // One below shows how narrowly it did not fit.
    let start = fits.saturating_sub(1);
    for (range, block) in free.iter().skip(start).take(LISTED) {
        lines.push(format!(
            "free {:#x} {:>13} bytes in a {} {} range at {:#x}",
            block.addr,
            show_count(block.size),
            ShowBytes(range.size),
            if range.small { "small" } else { "large" },
            range.addr
        ));
    }
    let rest = free.len().saturating_sub(start + LISTED);
    if rest > 0 {
        lines.push(format!("and {} that are larger", show_plural(rest as u64, "free block")));
    }
    lines
}
