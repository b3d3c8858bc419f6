//! Free blocks in lists by size class, the block freed last first.

use super::Placement;
use super::classes::{ClassSet, class_count, class_from, class_of};
use super::placement::ByLane;
use crate::arena::{Arena, LaneId};
use poolsim_core::{BlockId, Bytes};

const END: BlockId = BlockId(u32::MAX);

/// Lists of blocks by size, `2^bits` an octave, each the block freed last first.
///
/// The request's own list may hold blocks that are too small: some of its first ones are looked at. Then the
/// first block of the next list that has any serves, which needs no look. At most a constant number of steps, for up
/// to one list's step more memory in the chosen block.
#[derive(Clone, Debug)]
pub struct Bins {
    bits: u32,
    tries: usize,
    links: Vec<(BlockId, BlockId)>,
    lanes: ByLane<Heads>,
}

#[derive(Clone, Debug)]
struct Heads {
    heads: Vec<BlockId>,
    used: ClassSet,
}

impl Heads {
    fn new(bits: u32) -> Self {
        let count = class_count(bits);
        Heads { heads: vec![END; count], used: ClassSet::new(count) }
    }
}

impl Bins {
    /// `2^bits` lists an octave; up to `tries` blocks of the request's own list are looked at.
    pub fn new(bits: u32, tries: usize) -> Self {
        Bins { bits, tries, links: Vec::new(), lanes: ByLane::default() }
    }

    /// Eight lists an octave, the first eight blocks of the request's own looked at.
    pub fn quick() -> Self {
        Bins::new(3, 8)
    }

    /// Two-level segregated fit with a second-level index of `sli`: only lists in which every block is large enough
    /// are looked into.
    pub fn tlsf(sli: u32) -> Self {
        Bins::new(sli, 0)
    }

    /// A list for each power of two, for blocks that are powers of two.
    pub fn powers() -> Self {
        Bins::new(0, 0)
    }

    /// The blocks of a list from its head on.
    fn list(&self, head: BlockId) -> impl Iterator<Item = BlockId> {
        let some = |b: BlockId| (b != END).then_some(b);
        std::iter::successors(some(head), move |b| some(self.links[b.index()].1))
    }

    #[inline]
    fn heads(&mut self, lane: LaneId) -> &mut Heads {
        self.lanes.get_or_make_with(lane, || Heads::new(self.bits))
    }
}

impl Placement for Bins {
    #[inline]
    fn take(&mut self, arena: &Arena, size: Bytes, lane: LaneId) -> Option<BlockId> {
        let lists = self.lanes.peek(lane)?;
        let (own, sure) = (class_of(size, self.bits), class_from(size, self.bits));
        let tried = || self.list(lists.heads[own]).take(self.tries);
        let fits = if own < sure { tried().find(|&b| arena.size(b) >= size) } else { None };
        let block = fits.or_else(|| lists.used.at_least(sure).map(|class| lists.heads[class]))?;
        self.remove(arena, block);
        Some(block)
    }

    #[inline]
    fn insert(&mut self, arena: &Arena, block: BlockId) {
        if block.index() >= self.links.len() {
            self.links.resize(block.index() + 1, (END, END));
        }
        let class = class_of(arena.size(block), self.bits);
        let lists = self.heads(arena.lane_of(block));
        let next = std::mem::replace(&mut lists.heads[class], block);
        lists.used.insert(class);
        self.links[block.index()] = (END, next);
        if next != END {
            self.links[next.index()].0 = block;
        }
    }

    #[inline]
    fn remove(&mut self, arena: &Arena, block: BlockId) {
        let class = class_of(arena.size(block), self.bits);
        let (prev, next) = self.links[block.index()];
        if prev == END {
            let lists = self.heads(arena.lane_of(block));
            debug_assert_eq!(lists.heads[class], block, "block {block} is not in the index");
            lists.heads[class] = next;
            if next == END {
                lists.used.remove(class);
            }
        } else {
            self.links[prev.index()].1 = next;
        }
        if next != END {
            self.links[next.index()].0 = prev;
        }
    }

    fn largest(&self, arena: &Arena, lane: LaneId) -> Bytes {
        let Some(lists) = self.lanes.peek(lane) else { return 0 };
        let Some(class) = lists.used.highest() else { return 0 };
        self.list(lists.heads[class]).map(|b| arena.size(b)).max().unwrap_or(0)
    }
}
