//! Segments and blocks at the end of the recording.

use super::assemble::{Streams, pool_number};
use super::fold::BLOCK;
use super::rows::{BlockRow, Rows, SegmentRow};
use crate::pickle::{Folded, Objects, Value};
use poolsim_core::TraceError;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::heap::{BlockState, BlockView, HeapImage, RangeView};
use poolsim_core::units::PoolId;

/// The heap that these segments make up.
pub fn build(
    segments: &[u32],
    objects: &Objects,
    rows: &Rows,
    streams: &Streams,
    pool_ids: &[(u64, u64)],
    length: u64,
    notes: &mut Vec<String>,
) -> Result<HeapImage, TraceError> {
    let mut heap = HeapImage::default();
    let (mut most, mut listed, mut uneven) = (0u64, 0u64, 0u64);
    for &index in segments {
        let row = &rows.segments[index as usize];
        let blocks = blocks(row, objects, rows, &mut listed, length)?;
        let held = sum(row, blocks.iter().map(|b| b.size))?;
        let requested = sum(row, blocks.iter().map(|b| b.requested))?;
        let size = row.total_size.unwrap_or(held);
        uneven += u64::from(held != size);
        let addr = row.address.or(blocks.first().map(|b| b.addr)).unwrap_or(0);
        // Whatever is summed over the heap later, it fits.
        most = match most.checked_add(size.max(held).max(requested)) {
            Some(most) if addr.checked_add(size).is_some() && most < 1 << 62 => most,
            _ => return Err(too_large(row, "segments")),
        };
        let pool = pool_number(pool_ids, rows.pools.values[row.pool as usize]);
        let range = RangeView {
            addr,
            size,
            stream: streams.id(row.stream),
            pool: PoolId(pool as u16),
            small: row.small,
            expandable: row.expandable,
            stack: row.stack,
        };
        heap.ranges.push((range, blocks));
    }
    heap.sort();
    if uneven > 0 {
        notes.push(format!(
            "the blocks of {uneven} of {} segments do not add up to the segment's size: the file \
             was changed after it was recorded",
            segments.len()
        ));
    }
    Ok(heap)
}

fn blocks(
    row: &SegmentRow,
    objects: &Objects,
    rows: &Rows,
    listed: &mut u64,
    length: u64,
) -> Result<Vec<BlockView>, TraceError> {
    let wrong = || {
        TraceError::new(
            TraceErrorKind::Malformed,
            Place::Byte(row.at),
            "a segment's `blocks` is no list of blocks (dicts with `size` and `state`)",
        )
    };
    let items = objects.items(row.blocks).ok_or_else(wrong)?;
    // A file can name one list of blocks in many segments; then there are more blocks than bytes.
    *listed += items.len() as u64;
    if *listed > length {
        return Err(TraceError::new(
            TraceErrorKind::Refused,
            Place::Byte(row.at),
            "the segments share their lists of blocks and hold more blocks than the file has bytes; \
             no snapshot does that",
        ));
    }
    let mut blocks = Vec::with_capacity(items.len());
    let mut next = row.address;
    for n in 0..items.len() {
        let Value::Folded(Folded { kind: BLOCK, index }) = items.get(n) else {
            return Err(wrong());
        };
        let block = &rows.blocks[index as usize];
        let view = view(block, next);
        next = Some(view.addr.checked_add(view.size).ok_or_else(|| too_large(row, "blocks"))?);
        blocks.push(view);
    }
    Ok(blocks)
}

/// A block; old snapshots give no address, and blocks of a segment follow one another.
fn view(block: &BlockRow, next: Option<u64>) -> BlockView {
    let requested = match block.state {
        BlockState::Free => block.requested.unwrap_or(0),
        _ => block.requested.unwrap_or(block.size),
    };
    BlockView {
        addr: block.address.or(next).unwrap_or(0),
        size: block.size,
        requested,
        state: block.state,
        slot: None,
        stack: block.stack,
    }
}

fn sum(row: &SegmentRow, mut sizes: impl Iterator<Item = u64>) -> Result<u64, TraceError> {
    sizes.try_fold(0u64, |sum, size| sum.checked_add(size)).ok_or_else(|| too_large(row, "blocks"))
}

fn too_large(row: &SegmentRow, what: &str) -> TraceError {
    TraceError::new(
        TraceErrorKind::Malformed,
        Place::Byte(row.at),
        format!(
            "the sizes of {what} add up beyond what any address space holds; the snapshot is damaged"
        ),
    )
}
