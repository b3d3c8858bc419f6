//! Best fit in order of arrival, in one range without end: the packing that costs next to nothing.

use super::Instance;
use poolsim_core::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Free stretches below the highest byte in use.
#[derive(Default)]
struct Gaps {
    by_start: BTreeMap<Bytes, Bytes>,
    by_size: BTreeSet<(Bytes, Bytes)>,
    top: Bytes,
}

impl Gaps {
    fn take(&mut self, size: Bytes) -> Bytes {
        let Some(&(gap, start)) = self.by_size.range((size, 0)..).next() else {
            let at = self.top;
            self.top += size;
            return at;
        };
        self.remove(start, gap);
        if gap > size {
            self.insert(start + size, gap - size);
        }
        start
    }

    fn give(&mut self, mut start: Bytes, mut size: Bytes) {
        if let Some((&below, &gap)) = self.by_start.range(..start).next_back()
            && below + gap == start
        {
            self.remove(below, gap);
            (start, size) = (below, size + gap);
        }
        if let Some(&gap) = self.by_start.get(&(start + size)) {
            self.remove(start + size, gap);
            size += gap;
        }
        if start + size == self.top {
            self.top = start;
        } else {
            self.insert(start, size);
        }
    }

    fn insert(&mut self, start: Bytes, size: Bytes) {
        self.by_start.insert(start, size);
        self.by_size.insert((size, start));
    }

    fn remove(&mut self, start: Bytes, size: Bytes) {
        self.by_start.remove(&start);
        self.by_size.remove(&(size, start));
    }
}

/// An offset for every piece, in time near linear in their number.
pub(super) fn best_fit(instance: &Instance) -> Vec<Bytes> {
    let pieces = &instance.pieces;
    let mut starts: Vec<u32> = (0..pieces.len() as u32).collect();
    starts.sort_by_key(|&i| (pieces[i as usize].lower, std::cmp::Reverse(pieces[i as usize].size)));
    let mut ends: Vec<u32> = (0..pieces.len() as u32).collect();
    ends.sort_by_key(|&i| pieces[i as usize].upper);
    let mut offsets = vec![0; pieces.len()];
    let (mut gaps, mut next) = (Gaps::default(), 0);
    for i in starts {
        let piece = &pieces[i as usize];
        while next < ends.len() && pieces[ends[next] as usize].upper <= piece.lower {
            let ended = ends[next] as usize;
            gaps.give(offsets[ended], pieces[ended].size);
            next += 1;
        }
        offsets[i as usize] = gaps.take(piece.size);
    }
    offsets
}
