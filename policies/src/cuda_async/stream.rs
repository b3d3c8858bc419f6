//! What the pool knows of one stream: its list of free blocks, and which of its frees the GPU has passed.

use super::blocks::{Block, Blocks, Home, NONE};
use crate::stage::size_index::{Nodes, SizeIndex};
use poolsim_core::{BlockId, Bytes};
use std::collections::VecDeque;

/// A free that may not be finished.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfinished {
    pub(super) stamp: u64,
    /// Fences that have not passed; those that the device refused to record count as well.
    pub(super) fences: u32,
}

/// One stream.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    index: SizeIndex,
    seq: u64,
    stamp: u64,
    /// Ends of the list in the order of stamps.
    oldest: u32,
    newest: u32,
    /// Frees that are not known to be finished, in order. The stream runs in order, so the first that is not finished
    /// stands for all after it.
    unfinished: VecDeque<Unfinished>,
    /// Nothing but frees and waits runs on it.
    only_frees: bool,
}

impl Stream {
    /// An empty list. `only_frees` is for a stream on which nothing but frees and waits runs.
    pub(super) fn new(only_frees: bool) -> Self {
        Stream {
            only_frees,
            index: SizeIndex::default(),
            seq: 0,
            stamp: 0,
            oldest: NONE,
            newest: NONE,
            unfinished: VecDeque::new(),
        }
    }

    /// The newest stamp so far.
    pub(super) fn stamp(&self) -> u64 {
        self.stamp
    }

    /// The newest stamp that counts as passed by the GPU; above all stamps if nothing is tracked.
    ///
    /// A free counts when what runs behind it has started. Where only frees and waits run, nothing has while a wait at
    /// the end is open, and then not even frees count that counted before.
    #[inline]
    pub(super) fn finished(&self) -> u64 {
        match self.unfinished.front() {
            None => u64::MAX,
            Some(_) if self.only_frees => 0,
            Some(free) => free.stamp - 1,
        }
    }

    /// The smallest block of at least `size`, the oldest insertion among equals.
    #[inline]
    pub(super) fn best_fit(&self, nodes: &Nodes, size: Bytes) -> Option<u32> {
        self.index.smallest_at_least(nodes, size).map(|b| b.0)
    }

    /// The largest block.
    pub(super) fn largest(&self, nodes: &Nodes) -> Option<u32> {
        self.index.largest(nodes).map(|b| b.0)
    }

    /// The block with the oldest stamp of those of at least `size`.
    pub(super) fn oldest_fit(&self, blocks: &Blocks, size: Bytes) -> Option<u32> {
        let some = |b: u32| (b != NONE).then_some(b);
        std::iter::successors(some(self.oldest), |&b| some(blocks.get(b).newer))
            .find(|&b| blocks.get(b).size() >= size)
    }

    pub(super) fn newest(&self) -> u32 {
        self.newest
    }

    #[inline]
    fn enter(&mut self, block: &mut Block, nodes: &mut Nodes, id: u32) {
        self.seq += 1;
        block.seq = self.seq;
        self.index.insert(nodes, BlockId(id), block.size(), block.seq);
    }

    /// Takes a block in as the newest, free or merged by a free. `home` is this stream's list.
    #[inline]
    pub(super) fn put(&mut self, blocks: &mut Blocks, nodes: &mut Nodes, id: u32, home: Home) {
        let newest = std::mem::replace(&mut self.newest, id);
        let block = blocks.get_mut(id);
        self.stamp += 1;
        block.stamp = self.stamp;
        block.home = home;
        (block.older, block.newer) = (newest, NONE);
        self.enter(block, nodes, id);
        match newest {
            NONE => self.oldest = id,
            older => blocks.get_mut(older).newer = id,
        }
    }

    /// Takes a block out of the list.
    #[inline]
    pub(super) fn remove(&mut self, blocks: &mut Blocks, nodes: &mut Nodes, id: u32) {
        self.index.remove(nodes, BlockId(id));
        let Block { older, newer, .. } = *blocks.get(id);
        match older {
            NONE => self.oldest = newer,
            older => blocks.get_mut(older).newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => blocks.get_mut(newer).older = older,
        }
    }

    /// Cuts `size` bytes off the low end of a block of the list; the rest keeps its stamp and its place in the order
    /// of stamps.
    #[inline]
    pub(super) fn cut(
        &mut self,
        blocks: &mut Blocks,
        nodes: &mut Nodes,
        id: u32,
        size: Bytes,
    ) -> u32 {
        if blocks.get(id).size() == size {
            self.remove(blocks, nodes, id);
            blocks.get_mut(id).home = Home::Live;
            return id;
        }
        self.index.remove(nodes, BlockId(id));
        let low = blocks.cut_low(id, size);
        self.enter(blocks.get_mut(id), nodes, id);
        low
    }

    /// Notes that the newest free waits for so many fences.
    pub(super) fn track(&mut self, fences: u32) {
        self.unfinished.push_back(Unfinished { stamp: self.stamp, fences });
    }

    /// Whether anything is tracked.
    pub(super) fn tracks(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// A fence of the free with this stamp has passed.
    pub(super) fn fence_passed(&mut self, stamp: u64) {
        let found = self.unfinished.binary_search_by_key(&stamp, |free| free.stamp);
        if let Ok(at) = found {
            self.unfinished[at].fences -= 1;
        }
    }

    /// Forgets the frees whose fences have passed.
    pub(super) fn settle(&mut self) {
        while self.unfinished.front().is_some_and(|free| free.fences == 0) {
            self.unfinished.pop_front();
        }
    }

    /// The host knows that everything up to this stamp is done.
    pub(super) fn finish_up_to(&mut self, stamp: u64) {
        while self.unfinished.front().is_some_and(|free| free.stamp <= stamp) {
            self.unfinished.pop_front();
        }
    }

    /// How many fences stand between now and the moment when this stamp is finished.
    pub(super) fn fences_up_to(&self, stamp: u64) -> usize {
        let before = self.unfinished.iter().take_while(|free| free.stamp <= stamp);
        before.map(|free| free.fences as usize).sum()
    }
}
