//! The blocks that tile the pool's address range.

use poolsim_core::{Bytes, Slot, StreamId};

/// No block.
pub(super) const NONE: u32 = u32::MAX;

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// The program holds it.
    Live,
    /// In the common list.
    Common,
    /// In the list of this stream.
    Stream(u32),
}

/// A stretch of the address range. Addresses are relative to the range's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) start: Bytes,
    pub(super) end: Bytes,
    pub(super) home: Home,
    /// Neighbours in address order.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// Number of the insertion into its list.
    pub(super) seq: u64,
    /// Age of its youngest free, counted by its stream; without meaning in the common list.
    pub(super) stamp: u64,
    /// Neighbours in the order of stamps, in a stream's list.
    pub(super) older: u32,
    pub(super) newer: u32,
    /// Unbacked pages in it; 0 outside the common list.
    pub(super) holes: u32,
    /// What the program asked for, with which name and on which stream; stale unless it is live.
    pub(super) requested: Bytes,
    pub(super) slot: Slot,
    pub(super) stream: StreamId,
    /// Whether other streams use it ([`poolsim_core::Policy::record_stream`]).
    pub(super) shared: bool,
}

impl Block {
    pub(super) fn size(&self) -> Bytes {
        self.end - self.start
    }
}

/// All blocks by number. Numbers are used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    spare: Vec<u32>,
    first: u32,
}

impl Blocks {
    /// One block of the common list over `[0, len)`, number 0, unbacked.
    pub(super) fn whole(len: Bytes, pages: usize) -> Self {
        let block = Block {
            start: 0,
            end: len,
            home: Home::Common,
            prev: NONE,
            next: NONE,
            seq: 0,
            stamp: 0,
            older: NONE,
            newer: NONE,
            holes: u32::try_from(pages).expect("fewer than 2^32 pages"),
            requested: 0,
            slot: Slot(0),
            stream: StreamId(0),
            shared: false,
        };
        Blocks { blocks: vec![block], spare: Vec::new(), first: 0 }
    }

    #[inline]
    pub(super) fn get(&self, block: u32) -> &Block {
        &self.blocks[block as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, block: u32) -> &mut Block {
        &mut self.blocks[block as usize]
    }

    /// Cuts the first `size` bytes off a larger block. They become a live block, whose number is returned; the rest
    /// keeps its number.
    #[inline]
    pub(super) fn cut_low(&mut self, block: u32, size: Bytes) -> u32 {
        let rest = self.get_mut(block);
        debug_assert!(size > 0 && rest.size() > size);
        let low = Block {
            end: rest.start + size,
            home: Home::Live,
            next: block,
            holes: 0,
            shared: false,
            ..*rest
        };
        rest.start = low.end;
        let id = match self.spare.pop() {
            Some(id) => {
                self.blocks[id as usize] = low;
                id
            }
            None => {
                self.blocks.push(low);
                u32::try_from(self.blocks.len() - 1).expect("fewer than 2^32 blocks")
            }
        };
        self.get_mut(block).prev = id;
        match low.prev {
            NONE => self.first = id,
            prev => self.get_mut(prev).next = id,
        }
        id
    }

    /// Joins two neighbours into the first one named; the other number is free again.
    #[inline]
    pub(super) fn join(&mut self, keep: u32, gone: u32) {
        let g = *self.get(gone);
        let k = self.get_mut(keep);
        k.holes += g.holes;
        if g.start == k.end {
            k.end = g.end;
            k.next = g.next;
            if g.next != NONE {
                self.get_mut(g.next).prev = keep;
            }
        } else {
            debug_assert_eq!(g.end, k.start);
            k.start = g.start;
            k.prev = g.prev;
            match g.prev {
                NONE => self.first = keep,
                prev => self.get_mut(prev).next = keep,
            }
        }
        self.spare.push(gone);
    }

    /// The neighbours of a block that are in `home` too.
    #[inline]
    pub(super) fn neighbours_in(&self, home: Home, block: u32) -> [u32; 2] {
        let b = self.get(block);
        let if_there = |n: u32| if n != NONE && self.get(n).home == home { n } else { NONE };
        [if_there(b.prev), if_there(b.next)]
    }

    /// All blocks in address order.
    pub(super) fn in_order(&self) -> impl Iterator<Item = u32> {
        let first = (!self.blocks.is_empty()).then_some(self.first);
        std::iter::successors(first, |&b| Some(self.get(b).next).filter(|&b| b != NONE))
    }
}
