//! Proof of the pool's invariants, for debug builds.

use super::backing::{PAGE, inside, touched};
use super::blocks::{Home, NONE};
use super::pool::Pool;
use poolsim_core::Bytes;

impl Pool {
    /// Walks everything.
    ///
    /// # Panics
    /// At whatever does not hold.
    pub(super) fn check(&self) {
        let backed = self.backing.backed();
        let (mut at, mut before, mut loose) = (0, NONE, 0);
        for id in self.blocks.in_order() {
            let b = self.blocks.get(id);
            assert_eq!((b.start, b.prev), (at, before), "block {id}: {b:?}");
            assert!(b.size() > 0 && b.size().is_multiple_of(super::QUANTUM), "{b:?}");
            if before != NONE {
                let same = self.blocks.get(before).home == b.home;
                assert!(b.home == Home::Live || !same, "blocks {before} and {id} are not merged");
            }
            let pages = touched(b.start, b.end);
            let holes = pages.len() - backed.count(pages);
            assert_eq!(b.holes as usize, holes, "holes of {b:?}");
            if b.home == Home::Common {
                let pages = inside(b.start, b.end);
                loose += pages.len();
                assert!(self.backing.all_loose(pages, id), "pages of {b:?}");
            } else {
                assert_eq!(holes, 0, "{b:?}");
            }
            (at, before) = (b.end, id);
        }
        assert_eq!(at, self.backing.len());
        let pages = (self.backing.len() / PAGE) as usize;
        assert_eq!(self.backing.loose(), loose);
        assert_eq!(backed.count(0..pages) as Bytes * PAGE, self.reserved());
        (0..self.streams.len() as u32).for_each(|number| self.check_stream(number));
    }

    /// Every block of a stream is on its list by age, and the list has no other.
    fn check_stream(&self, number: u32) {
        let home = Home::Stream(number);
        let of_stream = |&id: &u32| self.blocks.get(id).home == home;
        let mut left: Vec<u32> = self.blocks.in_order().filter(of_stream).collect();
        let (mut id, mut stamp) = (self.streams[number as usize].newest(), u64::MAX);
        while id != NONE {
            let b = self.blocks.get(id);
            assert!(b.home == home && b.stamp < stamp, "{b:?}");
            left.retain(|&other| other != id);
            (id, stamp) = (b.older, b.stamp);
        }
        assert!(left.is_empty(), "blocks {left:?} are not listed");
    }
}
