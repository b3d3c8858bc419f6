//! The naive judge of the arena: walks everything and believes nothing.

use super::{Arena, NONE};
use poolsim_core::{BlockState, Bytes};

impl Arena {
    /// Proves that blocks tile their ranges, that lists agree with what they list and that the statistics
    /// are the sums of the blocks; with `coalesced`, also that no two free blocks touch.
    ///
    /// # Panics
    /// If anything is wrong.
    pub fn check(&self, coalesced: bool) {
        let mut in_use = 0;
        let mut reserved: Bytes = 0;
        let [mut allocated, mut active, mut requested] = [0; 3];
        let mut spans = Vec::new();
        for range in self.ranges() {
            let r = self.ranges[range];
            spans.push((r.addr, r.size));
            reserved += r.size;
            let (mut at, mut prev) = (r.addr, NONE);
            for id in self.blocks_of(range) {
                let b = self.block(id);
                assert_eq!((b.addr, b.prev, b.range), (at, prev, range), "{id} {b:?}");
                assert!(self.lanes_move || b.lane == r.lane, "{id} {b:?} left its lane");
                assert!(b.size > 0, "empty block {id}");
                let beside_free = prev != NONE && self.is_free(prev);
                let free = b.state == BlockState::Free;
                assert!(!(coalesced && free && beside_free), "free blocks {prev} and {id} touch");
                if !free {
                    assert!((1..=b.size).contains(&b.requested), "{id} {b:?}");
                    active += b.size;
                    requested += b.requested;
                }
                if b.state == BlockState::Allocated {
                    allocated += b.size;
                }
                in_use += 1;
                (at, prev) = (at + b.size, id);
            }
            assert_eq!(at, r.addr + r.size, "the blocks of {range:?} do not fill it");
        }
        assert_eq!(in_use + self.spare_blocks.len(), self.blocks.len(), "a block got lost");
        spans.sort_unstable();
        let apart = spans.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0);
        assert!(apart, "ranges overlap: {spans:x?}");
        let s = &self.stats;
        let counted = [&s.reserved, &s.active, &s.allocated, &s.requested].map(|g| g.current);
        assert_eq!(
            counted,
            [reserved, active, allocated, requested],
            "statistics are not the sums"
        );
        self.check_idle(coalesced);
    }

    fn check_idle(&self, coalesced: bool) {
        let listed: Vec<_> = self.idle_ranges().collect();
        let marked: Vec<_> = self.ranges().filter(|&r| self.marked_idle(r)).collect();
        let mut sorted = listed.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, marked, "the idle list and its marks differ");
        let bytes: Bytes = listed.iter().map(|&r| self.range_size(r)).sum();
        assert_eq!(bytes, self.idle_bytes(), "idle bytes are not the sum of the idle ranges");
        if coalesced {
            let whole = |&r: &_| {
                self.is_free(self.first_block(r))
                    && self.size(self.first_block(r)) == self.range_size(r)
                    && !self.is_kept(r)
            };
            let idle: Vec<_> = self.ranges().filter(whole).collect();
            assert_eq!(idle, marked, "ranges are wholly free but not idle, or the reverse");
        }
    }
}
