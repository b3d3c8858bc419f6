//! What a recording does not show of the history before its first entry.

use super::settings::says_overflowed;
use hashbrown::{HashMap, HashSet};
use poolsim_core::recording::{Action, Entry, Recording};
use poolsim_core::{BlockState, Bytes, DevAddr};

/// What is missing from a recording's history. All zero and `starts_empty` for a complete one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryGaps {
    /// Blocks that are freed without having been allocated in the recording.
    pub frees_of_unseen: u64,
    /// Of these, blocks whose free was requested before the recording and completed in it.
    pub pending_at_start: u64,
    /// Blocks in use at the end whose allocation is not in the recording.
    pub live_never_mentioned: u64,
    /// Bytes of final segments that the recording does not see being taken from the device.
    pub segments_never_taken: Bytes,
    /// Bytes given back to the device that the recording does not see being taken.
    pub segments_of_unseen: Bytes,
    /// Blocks that are in use after the last entry and not in the final heap.
    pub lost_at_end: u64,
    /// Whether the history starts from an empty allocator: nothing is unseen.
    pub starts_empty: bool,
    /// Whether older entries were probably overwritten: the recorder says so, the history starts in the
    /// middle of a free, or it starts late and has a length that people choose for ring buffers.
    pub ring_buffer_probably_cut: bool,
}

/// Compares the entries with each other and with the final heap.
pub fn history_gaps(recording: &Recording) -> HistoryGaps {
    let mut gaps = HistoryGaps::default();
    let live = follow_blocks(&recording.entries, &mut gaps);
    let mut final_live = HashSet::new();
    for (_, block) in recording.heap.blocks().filter(|(_, b)| b.state != BlockState::Free) {
        gaps.live_never_mentioned += u64::from(!live.contains_key(&block.addr));
        final_live.insert(block.addr);
    }
    gaps.lost_at_end = live.keys().filter(|addr| !final_live.contains(*addr)).count() as u64;
    follow_segments(recording, &mut gaps);
    gaps.starts_empty = gaps.frees_of_unseen == 0
        && gaps.live_never_mentioned == 0
        && gaps.segments_never_taken == 0
        && gaps.segments_of_unseen == 0;
    let len = recording.entries.len();
    let round = len >= 1000 && (len.is_multiple_of(1000) || len.is_power_of_two());
    gaps.ring_buffer_probably_cut = says_overflowed(&recording.header.attributes)
        || !gaps.starts_empty && (round || starts_inside_a_free(&recording.entries));
    gaps
}

/// Pairs allocations and frees by address; gives back what is in use after the last entry.
fn follow_blocks(entries: &[Entry], gaps: &mut HistoryGaps) -> HashMap<DevAddr, bool> {
    // The value says whether the free was requested.
    let mut live: HashMap<DevAddr, bool> = HashMap::new();
    for entry in entries {
        match entry.action {
            Action::Alloc => {
                live.insert(entry.addr, false);
            }
            Action::FreeRequested => {
                let unseen = live.insert(entry.addr, true).is_none();
                gaps.frees_of_unseen += u64::from(unseen);
            }
            Action::FreeCompleted => {
                let unseen = live.remove(&entry.addr).is_none();
                gaps.frees_of_unseen += u64::from(unseen);
                gaps.pending_at_start += u64::from(unseen);
            }
            _ => {}
        }
    }
    live
}

fn follow_segments(recording: &Recording, gaps: &mut HistoryGaps) {
    let mut held = Ranges::default();
    for entry in &recording.entries {
        match entry.action {
            Action::SegmentAlloc | Action::SegmentMap => held.add(entry.addr, entry.size),
            Action::SegmentFree | Action::SegmentUnmap => {
                gaps.segments_of_unseen += entry.size - held.remove(entry.addr, entry.size);
            }
            _ => {}
        }
    }
    for (range, _) in &recording.heap.ranges {
        gaps.segments_never_taken += range.size - held.remove(range.addr, range.size);
    }
}

/// A set of addresses as disjoint ranges, start to end.
#[derive(Default)]
struct Ranges(std::collections::BTreeMap<DevAddr, DevAddr>);

impl Ranges {
    fn add(&mut self, addr: DevAddr, size: Bytes) {
        self.remove(addr, size);
        if size > 0 {
            self.0.insert(addr, addr.saturating_add(size));
        }
    }

    /// Takes a range out; gives back how much of it was there.
    fn remove(&mut self, addr: DevAddr, size: Bytes) -> Bytes {
        let end = addr.saturating_add(size);
        let mut there = 0;
        while let Some((&start, &stop)) = self.0.range(..end).next_back() {
            if stop <= addr {
                break;
            }
            self.0.remove(&start);
            there += stop.min(end) - start.max(addr);
            if stop > end {
                self.0.insert(end, stop);
            }
            if start < addr {
                self.0.insert(start, addr);
                break;
            }
        }
        there
    }
}

/// True if the first entry completes a free that was requested in the entry before it: a free without
/// other streams makes both at once.
fn starts_inside_a_free(entries: &[Entry]) -> bool {
    let pairs = entries.iter().any(|e| e.action == Action::FreeRequested);
    pairs && entries.first().is_some_and(|e| e.action == Action::FreeCompleted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_where_they_are_taken() {
        let mut ranges = Ranges::default();
        ranges.add(0, 100);
        ranges.add(200, 100);
        assert_eq!(ranges.remove(50, 200), 100);
        assert_eq!(ranges.0.clone().into_iter().collect::<Vec<_>>(), [(0, 50), (250, 300)]);
        assert_eq!(ranges.remove(10, 10), 10);
        assert_eq!(ranges.0.into_iter().collect::<Vec<_>>(), [(0, 10), (20, 50), (250, 300)]);
    }
}
