//! What was there before the first entry, told from the heap after the last one.
//!
//! Segments are rewound: an allocation of one takes it away, a release puts it back. Blocks that are freed without
//! having been allocated, and blocks of the final heap that no entry mentions, were there at the start.

use super::super::config::Config;
use super::super::size::{SMALL_MAX, round_size};
use poolsim_core::heap::BlockState;
use poolsim_core::recording::{Action, Recording};
use poolsim_core::units::{Bytes, DevAddr, StreamId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// A mapped range that was there at the start: a segment, or a stretch of an expandable one.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartRange {
    pub addr: DevAddr,
    pub size: Bytes,
    pub stream: StreamId,
    pub expandable: bool,
}

/// An active block that was there at the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartBlock {
    pub addr: DevAddr,
    pub requested: Bytes,
    /// True length of the block.
    pub size: Bytes,
    pub stream: StreamId,
    /// Freed before the first entry, and still in use by another stream.
    pub pending: bool,
    /// The length was not to be seen: up to this much may be missing from `size`.
    pub slack: Bytes,
}

/// The state before the first entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Start {
    /// In address order.
    pub ranges: Vec<StartRange>,
    /// In address order.
    pub blocks: Vec<StartBlock>,
    /// Blocks that are freed without having been allocated.
    pub freed_unseen: usize,
    /// Blocks of the final heap that no entry mentions.
    pub never_mentioned: usize,
    /// Entries that do not fit the final heap.
    pub contradictions: usize,
}

impl Start {
    /// Rewinds a recording.
    pub fn of(rec: &Recording, config: &Config) -> Start {
        let mut start = Start::default();
        start.rewind_ranges(rec);
        start.find_blocks(rec);
        if !start.blocks.is_empty() {
            start.size_blocks(rec, config);
        }
        start
    }

    /// True if the history starts from an empty allocator.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.blocks.is_empty()
    }

    fn rewind_ranges(&mut self, rec: &Recording) {
        let mut whole: BTreeMap<DevAddr, (Bytes, StreamId)> = BTreeMap::new();
        let mut mapped = Mapped::default();
        for (r, _) in &rec.heap.ranges {
            if r.expandable {
                mapped.put(r.addr, r.size, r.stream);
            } else {
                whole.insert(r.addr, (r.size, r.stream));
            }
        }
        for e in rec.entries.iter().rev() {
            let fits = match e.action {
                Action::SegmentAlloc => {
                    whole.remove(&e.addr).is_some_and(|(size, _)| size == e.size)
                }
                Action::SegmentFree => whole.insert(e.addr, (e.size, e.stream)).is_none(),
                Action::SegmentMap => mapped.cut(e.addr, e.size),
                Action::SegmentUnmap => {
                    mapped.put(e.addr, e.size, e.stream);
                    true
                }
                _ => true,
            };
            self.contradictions += usize::from(!fits);
        }
        let whole = whole.into_iter().map(|(addr, (size, stream))| (addr, size, stream, false));
        let mapped = mapped.0.into_iter().map(|(addr, (size, stream))| (addr, size, stream, true));
        self.ranges = whole
            .chain(mapped)
            .map(|(addr, size, stream, expandable)| StartRange { addr, size, stream, expandable })
            .collect();
        self.ranges.sort_unstable_by_key(|r| r.addr);
    }

    fn find_blocks(&mut self, rec: &Recording) {
        #[derive(Clone, Copy, PartialEq)]
        enum Seen {
            Live,
            Pending,
            Free,
        }
        let mut seen: FxHashMap<DevAddr, Seen> = FxHashMap::default();
        let mut unseen = |e: &poolsim_core::Entry, pending| {
            self.freed_unseen += 1;
            self.blocks.push(StartBlock {
                addr: e.addr,
                requested: e.size,
                size: 0,
                stream: e.stream,
                pending,
                slack: 0,
            });
        };
        for e in &rec.entries {
            match e.action {
                Action::Alloc => drop(seen.insert(e.addr, Seen::Live)),
                Action::FreeRequested if seen.insert(e.addr, Seen::Pending).is_none() => {
                    unseen(e, false);
                }
                Action::FreeCompleted if seen.insert(e.addr, Seen::Free).is_none() => {
                    unseen(e, true);
                }
                _ => {}
            }
        }
        for (range, block) in rec.heap.blocks() {
            if block.state == BlockState::Free {
                continue;
            }
            let pending = block.state == BlockState::Pending;
            match seen.get(&block.addr) {
                None => {
                    self.never_mentioned += 1;
                    self.blocks.push(StartBlock {
                        addr: block.addr,
                        requested: block.requested,
                        size: block.size,
                        stream: range.stream,
                        pending,
                        slack: 0,
                    });
                }
                Some(&s) => {
                    let wanted = if pending { Seen::Pending } else { Seen::Live };
                    self.contradictions += usize::from(s != wanted);
                }
            }
        }
        self.blocks.sort_by_key(|b| b.addr);
    }

    /// Finds the true length of blocks that the final heap does not hold any more.
    ///
    /// Small and expandable blocks are exactly as long as their rounded request. A large block may own up to 1 MiB more,
    /// because a remainder of that size is not split off. What lies behind it tells: the next block, or the first
    /// allocation behind it while it lives (allocations take the low end of a free block).
    fn size_blocks(&mut self, rec: &Recording, config: &Config) {
        let mut open: BTreeMap<DevAddr, usize> = BTreeMap::new();
        for i in 0..self.blocks.len() {
            let b = self.blocks[i];
            if b.size != 0 {
                continue;
            }
            let rounded = round_size(config, b.requested);
            let range = self.range_at(b.addr);
            let range_end = range.map_or(b.addr + rounded, |r| r.addr + r.size);
            let next = self.blocks.get(i + 1).map_or(range_end, |n| n.addr.min(range_end));
            let gap = next.saturating_sub(b.addr + rounded);
            let exact =
                rounded <= SMALL_MAX || config.expandable || range.is_none_or(|r| r.expandable);
            let (size, slack) = if exact {
                (rounded, 0)
            } else if config.max_split_size.is_some_and(|m| rounded >= m) {
                (range_end - b.addr, 0)
            } else if gap <= SMALL_MAX {
                (rounded + gap, 0)
            } else {
                open.insert(b.addr, i);
                (rounded, SMALL_MAX)
            };
            self.blocks[i].size = size;
            self.blocks[i].slack = slack;
        }
        for e in &rec.entries {
            if open.is_empty() {
                break;
            }
            match e.action {
                Action::Alloc => {
                    let Some((&addr, &i)) = open.range(..=e.addr).next_back() else { continue };
                    let b = &mut self.blocks[i];
                    if (b.size..=b.size + SMALL_MAX).contains(&(e.addr - addr)) {
                        b.size = e.addr - addr;
                        b.slack = 0;
                        open.remove(&addr);
                    }
                }
                Action::FreeCompleted => drop(open.remove(&e.addr)),
                _ => {}
            }
        }
    }

    /// The start range that holds an address.
    pub fn range_at(&self, addr: DevAddr) -> Option<&StartRange> {
        let i = self.ranges.partition_point(|r| r.addr <= addr).checked_sub(1)?;
        let r = &self.ranges[i];
        (addr - r.addr < r.size).then_some(r)
    }
}

/// Mapped stretches of expandable segments: start → (length, stream).
#[derive(Default)]
struct Mapped(BTreeMap<DevAddr, (Bytes, StreamId)>);

impl Mapped {
    /// Adds a stretch, joined with its neighbours of the same stream.
    fn put(&mut self, mut addr: DevAddr, mut size: Bytes, stream: StreamId) {
        if let Some((&a, &(s, st))) = self.0.range(..addr).next_back()
            && a.saturating_add(s) == addr
            && st == stream
        {
            self.0.remove(&a);
            addr = a;
            size += s;
        }
        let end = addr.saturating_add(size);
        if let Some(&(s, st)) = self.0.get(&end)
            && st == stream
        {
            self.0.remove(&end);
            size += s;
        }
        self.0.insert(addr, (size, stream));
    }

    /// Takes a stretch away; false if it was not mapped as a whole.
    fn cut(&mut self, addr: DevAddr, size: Bytes) -> bool {
        let Some((&a, &(s, stream))) = self.0.range(..=addr).next_back() else { return false };
        let (end, cut_end) = (a.saturating_add(s), addr.saturating_add(size));
        if cut_end > end {
            return false;
        }
        self.0.remove(&a);
        if a < addr {
            self.0.insert(a, (addr - a, stream));
        }
        if cut_end < end {
            self.0.insert(cut_end, (end - cut_end, stream));
        }
        true
    }
}
