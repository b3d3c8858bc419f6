//! Two final heaps, block by block.

use super::{Parity, Replayed};
use poolsim_core::device::show_range;
use poolsim_core::event::PoolInfo;
use poolsim_core::{BlockState, Bytes, DevAddr, HeapImage, PoolId, RangeView, Recording, StreamId};
use std::collections::BTreeMap;

/// As many differences as are put into words.
const SHOWN: usize = 10;

/// What is compared of a range. Pools go by their recorded ids: numbers may differ between trace and recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RangeFacts {
    size: Bytes,
    stream: StreamId,
    pool: (u64, u64),
    small: bool,
    expandable: bool,
}

/// What is compared of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockFacts {
    size: Bytes,
    requested: Bytes,
    state: BlockState,
    /// First address of its range.
    range: DevAddr,
}

type Facts = (BTreeMap<DevAddr, RangeFacts>, BTreeMap<DevAddr, BlockFacts>);

fn pool_id(pools: &[PoolInfo], pool: PoolId) -> (u64, u64) {
    pools.get(pool.index()).map_or((0, u64::from(pool.0)), |p| p.id)
}

/// Sorts a heap's facts by address. Mapped ranges of an expandable segment that touch are one, as PyTorch lists them.
fn facts(heap: &HeapImage, pools: &[PoolInfo], stale: bool) -> Facts {
    let mut sorted: Vec<_> = heap.ranges.iter().collect();
    sorted.sort_by_key(|(r, _)| r.addr);
    let (mut ranges, mut blocks) = (BTreeMap::<DevAddr, RangeFacts>::new(), BTreeMap::new());
    for (range, inside) in sorted {
        let fact = RangeFacts {
            size: range.size,
            stream: range.stream,
            pool: pool_id(pools, range.pool),
            small: range.small,
            expandable: range.expandable,
        };
        let start = match ranges.last_entry() {
            Some(mut last) if continues(*last.key(), last.get(), range, &fact) => {
                last.get_mut().size += range.size;
                *last.key()
            }
            _ => {
                ranges.insert(range.addr, fact);
                range.addr
            }
        };
        for b in inside {
            let known = stale || b.state != BlockState::Free;
            let requested = if known { b.requested } else { 0 };
            let fact = BlockFacts { size: b.size, requested, state: b.state, range: start };
            blocks.insert(b.addr, fact);
        }
    }
    (ranges, blocks)
}

fn continues(addr: DevAddr, last: &RangeFacts, range: &RangeView, fact: &RangeFacts) -> bool {
    let kind = |f: &RangeFacts| (f.expandable, f.stream, f.pool, f.small);
    range.expandable && addr + last.size == range.addr && kind(last) == kind(fact)
}

pub(super) fn compare(recording: &Recording, replayed: &Replayed, parity: &mut Parity) {
    let stale = replayed.from_start;
    let recorded = facts(&recording.heap, &recording.header.pools, stale);
    let simulated = facts(&replayed.heap, &replayed.pools, stale);
    parity.blocks_compared = (recorded.0.len() + recorded.1.len()) as u64;
    diff("range", &recorded.0, &simulated.0, |f| f.size, parity);
    diff("block", &recorded.1, &simulated.1, |f| f.size, parity);
}

fn diff<T: PartialEq + std::fmt::Debug>(
    what: &str,
    recorded: &BTreeMap<DevAddr, T>,
    simulated: &BTreeMap<DevAddr, T>,
    size: impl Fn(&T) -> Bytes,
    parity: &mut Parity,
) {
    let mut found = |text: String| {
        parity.heap_mismatches += 1;
        if parity.heap_differences.len() < SHOWN {
            parity.heap_differences.push(text);
        }
    };
    for (&addr, fact) in recorded {
        match simulated.get(&addr) {
            Some(ours) if ours == fact => {}
            Some(ours) => found(format!(
                "{what} {}: recorded {fact:?}, simulated {ours:?}",
                show_range(addr, size(fact))
            )),
            None => found(format!(
                "{what} {}: recorded {fact:?}, not there in the simulation",
                show_range(addr, size(fact))
            )),
        }
    }
    for (&addr, ours) in simulated.iter().filter(|(addr, _)| !recorded.contains_key(addr)) {
        found(format!(
            "{what} {}: not there in the recording, simulated {ours:?}",
            show_range(addr, size(ours))
        ));
    }
}
