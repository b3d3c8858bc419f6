//! A naive judge of allocators: slow, simple, and independent of every policy's own bookkeeping.
//!
//! It keeps its own list of what was granted, and compares it with the heap that the policy shows and with what
//! the device backs. Every policy must satisfy it on every trace.

use crate::engine::{Heap, Observer, Outcome, RunEnd, Step};
use poolsim_core::device::{DeviceOp, show_range};
use poolsim_core::{
    BlockState, Bytes, DevAddr, EventKind, HeapImage, HeapVisitor, Policy, PoolId, PoolOp,
    PoolStats, ReplayTarget, Slot, SyncScope,
};
use std::collections::{BTreeMap, BTreeSet};

/// Alignment of every grant: what `cudaMalloc` promises.
pub const GRANT_ALIGN: Bytes = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Live,
    /// Freed, but other streams are not known to be done.
    Pending,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    size: Bytes,
    requested: Bytes,
    slot: Slot,
    hold: Hold,
}

/// The judge. As an [`Observer`] it looks at every step and at the whole heap every so many steps, and keeps the
/// first thing that was wrong.
#[derive(Clone, Debug)]
pub struct Judge {
    every: u64,
    /// Whether blocks must stay untouched until the other streams that use them are done.
    stream_safe: bool,
    held: BTreeMap<DevAddr, Held>,
    by_slot: BTreeMap<Slot, DevAddr>,
    /// Slots taken over from the initial heap, whose place the next walk shows.
    unplaced: BTreeMap<Slot, Bytes>,
    waits: u64,
    /// Private pools that were seen, with how many redirections to each are open.
    pools: BTreeMap<PoolId, i64>,
    dropped: BTreeSet<PoolId>,
    wrong: Option<String>,
}

impl Default for Judge {
    fn default() -> Self {
        Judge::new()
    }
}

impl Judge {
    /// Walks the heap after every event.
    pub fn new() -> Self {
        Judge::every(1)
    }

    /// Walks the heap after every `steps`-th event; single grants are checked always.
    pub fn every(steps: u64) -> Self {
        Judge {
            every: steps.max(1),
            stream_safe: true,
            held: BTreeMap::new(),
            by_slot: BTreeMap::new(),
            unplaced: BTreeMap::new(),
            waits: 0,
            pools: BTreeMap::new(),
            dropped: BTreeSet::new(),
            wrong: None,
        }
    }

    /// Does not ask for stream safety: for policies that say of themselves that they ignore streams.
    #[must_use]
    pub fn ignoring_streams(mut self) -> Self {
        self.stream_safe = false;
        self
    }

    /// The first thing that was wrong, with its event.
    pub fn verdict(&self) -> Result<(), String> {
        self.wrong.clone().map_or(Ok(()), Err)
    }

    /// Takes note of a step and checks its grant.
    pub fn see(&mut self, step: &Step<'_>) -> Result<(), String> {
        let slot = step.event.slot;
        let waits = step.ledger.calls[DeviceOp::Synchronize as usize]
            + step.ledger.calls[DeviceOp::Wait as usize];
        let waited = waits != self.waits;
        if waited {
            // Somebody waited for streams: what was pending may be done.
            self.waits = waits;
            self.forget_pending(None);
        }
        match (step.event.kind(), step.outcome) {
            (_, Outcome::Skipped | Outcome::Refused) => Ok(()),
            (EventKind::Preexisting, Outcome::Restored) => {
                self.unplaced.insert(slot, step.event.size);
                Ok(())
            }
            (kind, Outcome::Granted(grant)) => {
                if step.event.pool().is_private() {
                    self.pools.entry(step.event.pool()).or_default();
                }
                self.granted(grant.addr, grant.size, step.event.size)?;
                if kind != EventKind::AllocRefused {
                    let (size, requested) = (grant.size, step.event.size);
                    self.place(slot, grant.addr, size, requested);
                }
                Ok(())
            }
            (EventKind::Free, _) => {
                self.unplaced.remove(&slot);
                if let Some(addr) = self.by_slot.remove(&slot) {
                    self.held.remove(&addr);
                }
                Ok(())
            }
            (EventKind::FreeLater, _) => {
                self.unplaced.remove(&slot);
                if let Some(held) = self.by_slot.get(&slot).and_then(|a| self.held.get_mut(a)) {
                    held.hold = Hold::Pending;
                }
                if waited {
                    // The free itself waited, as one may that cannot take a fence.
                    self.forget_pending(Some(slot));
                }
                Ok(())
            }
            (EventKind::FreeDone, _) => {
                self.forget_pending(Some(slot));
                Ok(())
            }
            (kind, _) => {
                self.pool_event(kind, step.event.pool());
                Ok(())
            }
        }
    }

    fn place(&mut self, slot: Slot, addr: DevAddr, size: Bytes, requested: Bytes) {
        self.by_slot.insert(slot, addr);
        self.held.insert(addr, Held { size, requested, slot, hold: Hold::Live });
    }

    fn pool_event(&mut self, kind: EventKind, pool: PoolId) {
        match kind {
            EventKind::PoolOpen => *self.pools.entry(pool).or_default() += 1,
            EventKind::PoolClose => *self.pools.entry(pool).or_default() -= 1,
            EventKind::PoolDrop | EventKind::PoolDestroy => {
                self.dropped.insert(pool);
            }
            _ => {}
        }
    }

    fn forget_pending(&mut self, only: Option<Slot>) {
        let by_slot = &mut self.by_slot;
        self.held.retain(|_, h| {
            let done = h.hold == Hold::Pending && only.is_none_or(|slot| slot == h.slot);
            if done {
                by_slot.remove(&h.slot);
            }
            !done
        });
    }

    fn granted(&mut self, addr: DevAddr, size: Bytes, asked: Bytes) -> Result<(), String> {
        let shown = show_range(addr, size);
        if size < asked {
            return Err(format!("{asked} bytes were asked for and {shown} was granted"));
        }
        if !addr.is_multiple_of(GRANT_ALIGN) {
            return Err(format!("{shown} is not aligned to {GRANT_ALIGN} bytes"));
        }
        let end = addr.checked_add(size).ok_or_else(|| format!("{shown} wraps around"))?;
        let clash = self.held.iter().find(|&(&a, h)| a < end && a + h.size > addr);
        match clash.map(|(&a, h)| (a, *h)) {
            Some((a, h)) if h.hold == Hold::Live => Err(format!(
                "{shown} was granted over {} of slot {}, which is live",
                show_range(a, h.size),
                h.slot
            )),
            Some((a, h)) if self.stream_safe => Err(format!(
                "{shown} was granted over {} of slot {}, which other streams still use",
                show_range(a, h.size),
                h.slot
            )),
            Some((a, h)) => {
                self.held.remove(&a);
                self.by_slot.remove(&h.slot);
                self.granted(addr, size, asked)
            }
            None => Ok(()),
        }
    }

    /// Checks a policy's whole heap against its numbers, the grants and the device.
    pub fn after_step(
        &mut self,
        policy: &dyn Policy,
        device: &dyn ReplayTarget,
    ) -> Result<(), String> {
        let mut image = HeapImage::default();
        policy.visit(&mut image);
        self.check(image, policy.stats(), device)
    }

    fn check(
        &mut self,
        mut image: HeapImage,
        stats: &PoolStats,
        device: &dyn ReplayTarget,
    ) -> Result<(), String> {
        image.sort();
        tiles(&image, device)?;
        self.place_restored(&image);
        numbers(&image, stats)?;
        if stats.reserved.current != device.used_bytes() {
            return Err(format!(
                "the policy counts {} reserved bytes, the device {}",
                stats.reserved.current,
                device.used_bytes()
            ));
        }
        let mut allocated: BTreeMap<DevAddr, _> = image
            .blocks()
            .filter(|(_, b)| b.state == BlockState::Allocated)
            .map(|(_, b)| (b.addr, *b))
            .collect();
        for (&addr, held) in self.held.iter().filter(|(_, h)| h.hold == Hold::Live) {
            let shown = show_range(addr, held.size);
            let Some(block) = allocated.remove(&addr) else {
                return Err(format!("slot {} at {shown} is not in the heap", held.slot));
            };
            if (block.size, block.requested) != (held.size, held.requested)
                || block.slot.is_some_and(|slot| slot != held.slot)
            {
                return Err(format!(
                    "slot {} at {shown} asked for {} bytes; the heap shows {block:?}",
                    held.slot, held.requested
                ));
            }
        }
        match allocated.values().next() {
            Some(block) => Err(format!("nobody holds the allocated block {block:?}")),
            None => Ok(()),
        }
    }

    fn place_restored(&mut self, image: &HeapImage) {
        for (_, block) in image.blocks().filter(|(_, b)| b.state == BlockState::Allocated) {
            if let Some(slot) = block.slot
                && let Some(requested) = self.unplaced.remove(&slot)
            {
                self.place(slot, block.addr, block.size, requested);
            }
        }
    }

    /// Frees what is still held, drops the pools that the trace left, empties the cache, and checks that every byte
    /// is back at the device.
    pub fn drain(
        &mut self,
        policy: &mut dyn Policy,
        device: &mut impl ReplayTarget,
        end: &RunEnd,
    ) -> Result<(), String> {
        device.synchronize(SyncScope::Device).map_err(|e| e.to_string())?;
        policy.synchronized(device, None);
        for (&pool, &open) in &self.pools {
            for _ in 0..open.max(0) {
                policy.pool(device, pool, PoolOp::Close);
            }
        }
        for &(_, block) in &end.live {
            policy.free(device, block);
        }
        for &pool in self.pools.keys().filter(|pool| !self.dropped.contains(pool)) {
            policy.pool(device, pool, PoolOp::Drop);
        }
        policy.empty_cache(device);
        let stats = policy.stats();
        let left = [stats.requested, stats.allocated, stats.active, stats.reserved];
        if left.iter().any(|gauge| gauge.current != 0) || device.used_bytes() != 0 {
            return Err(format!(
                "after freeing everything the device still has {} bytes out and the policy says {stats:?}",
                device.used_bytes()
            ));
        }
        Ok(())
    }

    fn keep(&mut self, event: u64, result: Result<(), String>) {
        if let Err(what) = result {
            self.wrong.get_or_insert_with(|| format!("event {event}: {what}"));
        }
    }
}

/// Whether ranges lie apart, are backed, and are tiled by their blocks.
fn tiles(image: &HeapImage, device: &dyn ReplayTarget) -> Result<(), String> {
    let mut reached = 0;
    for (range, blocks) in &image.ranges {
        let shown = show_range(range.addr, range.size);
        if range.addr < reached {
            return Err(format!("range {shown} overlaps the one before"));
        }
        reached = range.addr + range.size;
        if device.backed(range.addr, range.size) == Some(false) {
            return Err(format!("range {shown} is not backed by the device"));
        }
        let mut at = range.addr;
        for block in blocks {
            if block.addr != at || block.size == 0 {
                return Err(format!("range {shown}: a block should start at {at:#x}: {block:?}"));
            }
            at += block.size;
        }
        if at != reached {
            return Err(format!("range {shown}: blocks end at {at:#x}"));
        }
    }
    Ok(())
}

/// Whether a policy's numbers are those of its heap.
fn numbers(image: &HeapImage, stats: &PoolStats) -> Result<(), String> {
    let allocated = image.bytes_in(BlockState::Allocated);
    let active = allocated + image.bytes_in(BlockState::Pending);
    let requested: Bytes =
        image.blocks().filter(|(_, b)| b.state != BlockState::Free).map(|(_, b)| b.requested).sum();
    for (name, gauge, walked) in [
        ("requested", stats.requested, requested),
        ("allocated", stats.allocated, allocated),
        ("active", stats.active, active),
        ("reserved", stats.reserved, image.reserved()),
    ] {
        if gauge.current != walked || gauge.peak < walked {
            return Err(format!("{name}: the policy says {gauge:?}, its heap has {walked} bytes"));
        }
    }
    if requested > active {
        return Err(format!("{requested} bytes are requested by {active} active bytes"));
    }
    Ok(())
}

impl Observer for Judge {
    fn on_step(&mut self, step: &Step<'_>) {
        let result = self.see(step);
        self.keep(step.index, result);
    }

    fn wants_heap(&self, step: &Step<'_>) -> bool {
        self.wrong.is_none() && (step.index + 1).is_multiple_of(self.every)
    }

    fn on_heap(&mut self, step: &Step<'_>, heap: &dyn Heap, device: &dyn ReplayTarget) {
        let mut image = HeapImage::default();
        heap.visit(&mut image as &mut dyn HeapVisitor);
        let result = self.check(image, step.stats, device);
        self.keep(step.index, result);
    }
}
