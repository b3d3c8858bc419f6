//! Starting a run from the heap that was there before the first entry.

use super::facts::Facts;
use super::labels::Labels;
use super::run::{Choices, Run};
use poolsim_core::event::{Event, EventKind};
use poolsim_core::heap::{BlockState, BlockView, HeapImage, RangeView};
use poolsim_core::policy::Policy;
use poolsim_core::stack::StackId;
use poolsim_core::units::{PoolId, Slot, StreamId};
use std::collections::BTreeSet;

/// The heap before the first entry; `None` if the history starts from an empty allocator.
pub(super) fn image(facts: &Facts, labels: &Labels, choices: &Choices) -> Option<HeapImage> {
    if facts.start.is_empty() {
        return None;
    }
    let mut image = HeapImage::default();
    let mut next = 0;
    let mut started = BTreeSet::new();
    for range in &facts.start.ranges {
        let lot = lot_at(facts, range.addr);
        let view = RangeView {
            addr: range.addr,
            size: range.size,
            stream: range.stream,
            pool: lot.map_or(PoolId::DEFAULT, |l| labels.pool[l]),
            small: lot.is_some_and(|l| facts.lots[l].small == Some(true)),
            expandable: range.expandable,
            stack: StackId::NONE,
        };
        if let Some(l) = lot.filter(|&l| started.insert(l)) {
            let base = facts.lots[l].base;
            if range.expandable && base < range.addr {
                // Its first pages were not mapped.
                image.ranges.push((RangeView { addr: base, size: 0, ..view }, Vec::new()));
            }
        }
        let end = range.addr + range.size;
        let mut blocks = Vec::new();
        let mut at = range.addr;
        while let Some(b) = facts.start.blocks.get(next).filter(|b| b.addr < end) {
            if b.addr > at {
                blocks.push(free(at, b.addr));
            }
            let size = b.size + choices.slack.get(&next).copied().unwrap_or(0);
            blocks.push(BlockView {
                addr: b.addr,
                size,
                requested: b.requested,
                state: if b.pending { BlockState::Pending } else { BlockState::Allocated },
                slot: Some(Slot(facts.start_slots[next].0)),
                stack: StackId::NONE,
            });
            at = b.addr + size;
            next += 1;
        }
        if at < end {
            blocks.push(free(at, end));
        }
        image.ranges.push((view, blocks));
    }
    Some(image)
}

fn free(addr: u64, end: u64) -> BlockView {
    BlockView {
        addr,
        size: end - addr,
        requested: 0,
        state: BlockState::Free,
        slot: None,
        stack: StackId::NONE,
    }
}

/// The lot that held an address at the start. Lots of the start come first, in address order.
fn lot_at(facts: &Facts, addr: u64) -> Option<usize> {
    let n = facts.lots.partition_point(|l| l.at_start());
    let i = facts.lots[..n].partition_point(|l| l.base <= addr).checked_sub(1)?;
    (addr < facts.lots[i].end).then_some(i)
}

/// Gives the start's heap to the run's policy, and the events that stand for its blocks to the run. False if no such
/// heap can be.
pub(super) fn restore(run: &mut Run) -> bool {
    let Some(image) = image(run.facts, &run.labels, &run.choices) else { return true };
    let bases: Vec<u64> = reserved_in_order(&image);
    run.state.dev.restoring = Some(bases.into_iter());
    let restored = run.state.policy.restore(&mut run.state.dev, &image);
    run.state.dev.restoring = None;
    let Some(live) = restored else { return false };
    for (slot, block) in live {
        run.state.blocks[slot.index()] = block;
    }
    let at = run.start_time();
    let blocks: Vec<(PoolId, StreamId, BlockView)> = image
        .blocks()
        .filter(|(_, b)| b.slot.is_some())
        .map(|(r, b)| (r.pool, r.stream, *b))
        .collect();
    for &(pool, stream, b) in &blocks {
        let slot = b.slot.unwrap_or_default();
        run.push(Event::new(EventKind::Preexisting, at, slot, b.requested, stream, pool), b.stack);
    }
    let half = run.facts.starts_in_free().then(|| Slot(run.facts.slot[0]));
    let pending = |b: &BlockView| b.state == BlockState::Pending && b.slot != half;
    for &(pool, stream, b) in blocks.iter().filter(|(_, _, b)| pending(b)) {
        let slot = b.slot.unwrap_or_default();
        let block = run.state.blocks[slot.index()];
        let (policy, dev) = (&mut run.state.policy, &mut run.state.dev);
        policy.record_stream(dev, block, StreamId::FOREIGN);
        dev.hold(slot);
        policy.free(dev, block);
        run.push(Event::new(EventKind::FreeLater, at, slot, b.requested, stream, pool), b.stack);
    }
    true
}

/// Addresses in the order in which a policy that restores the heap reserves them: each segment, and each
/// reservation at its first stretch.
fn reserved_in_order(image: &HeapImage) -> Vec<u64> {
    let mut seen = BTreeSet::new();
    image
        .ranges
        .iter()
        .filter(|(r, _)| !r.expandable || seen.insert((r.pool, r.stream, r.small)))
        .map(|(r, _)| r.addr)
        .collect()
}
