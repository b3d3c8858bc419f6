//! Address space: which addresses are free.

use poolsim_core::{Bytes, DevAddr};
use std::collections::BTreeMap;

/// The free stretches of an address space, coalesced.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    /// End by start.
    free: BTreeMap<DevAddr, DevAddr>,
}

impl Gaps {
    /// A space in which `[start, end)` is free.
    pub(super) fn new(start: DevAddr, end: DevAddr) -> Self {
        Gaps { free: BTreeMap::from([(start, end)]) }
    }

    /// Takes `len` bytes from the upper end of the highest gap that is longer than `len`.
    pub(super) fn take_highest_longer(&mut self, len: Bytes) -> Option<DevAddr> {
        let (&start, end) = self.free.iter_mut().rev().find(|(s, e)| **e - **s > len)?;
        debug_assert!(start < *end);
        *end -= len;
        Some(*end)
    }

    /// Takes `len` bytes at the lowest multiple of `align` (a power of two) where they fit.
    pub(super) fn take_lowest(&mut self, len: Bytes, align: Bytes) -> Option<DevAddr> {
        let at = self.free.iter().find_map(|(&start, &end)| {
            let at = start.checked_next_multiple_of(align)?;
            (at.checked_add(len)? <= end).then_some(at)
        })?;
        self.carve(at, len);
        Some(at)
    }

    /// Marks `[at, at + len)` as taken, whatever of it was free.
    pub(super) fn carve(&mut self, at: DevAddr, len: Bytes) {
        let end = at.saturating_add(len);
        let hit: Vec<(DevAddr, DevAddr)> = self
            .free
            .range(..end)
            .rev()
            .take_while(|&(_, &e)| e > at)
            .map(|(&s, &e)| (s, e))
            .collect();
        for (s, e) in hit {
            self.free.remove(&s);
            if s < at {
                self.free.insert(s, at);
            }
            if e > end {
                self.free.insert(end, e);
            }
        }
    }

    /// Gives `[at, at + len)` back.
    pub(super) fn give_back(&mut self, at: DevAddr, len: Bytes) {
        let mut start = at;
        let mut end = at + len;
        if let Some((&s, &e)) = self.free.range(..at).next_back() {
            debug_assert!(e <= at, "given back twice");
            if e == at {
                start = s;
            }
        }
        if let Some(e) = self.free.remove(&end) {
            end = e;
        }
        self.free.insert(start, end);
    }

    /// Marks everything from `at` up to the end of the gap that holds it as taken.
    #[cfg(test)]
    pub(super) fn carve_above(&mut self, at: DevAddr) {
        if let Some((_, &end)) = self.free.range(..=at).next_back().filter(|&(_, &end)| end > at) {
            self.carve(at, end - at);
        }
    }
}
