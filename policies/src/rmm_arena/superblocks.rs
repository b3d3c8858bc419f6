//! Superblocks: the pieces of the global arena that streams take over whole.
//!
//! ```text
//! range   | superblock 0 (stream 1)     | superblock 1 (global) | superblock 2 (global)  |
//!         | in use | free  | in use     | in use        | free  | free                   |
//! ```
//!
//! Superblocks tile the range. Blocks of different superblocks never merge; two *empty* superblocks of the
//! global arena that touch do, and then their blocks. Every free block is in the lane of its superblock's owner.

use crate::arena::{Arena, LaneId};
use crate::stage::Placement;
use crate::stage::placement::FirstFit;
use poolsim_core::units::MIB;
use poolsim_core::{BlockId, Bytes, DevAddr};
use std::collections::BTreeMap;

/// No superblock is smaller. Larger requests are served by the global arena itself.
pub const MIN_SIZE: Bytes = MIB;

#[derive(Clone, Copy, Debug)]
struct Superblock {
    /// The block at its first address.
    first: BlockId,
    addr: DevAddr,
    size: Bytes,
    /// Bytes of blocks in use.
    used: Bytes,
    /// The lane that may cut blocks from it.
    owner: LaneId,
}

/// All superblocks, and the free blocks in them by owner and address.
#[derive(Clone, Debug, Default)]
pub struct Superblocks {
    free: FirstFit,
    list: Vec<Superblock>,
    spare: Vec<u32>,
    by_addr: BTreeMap<DevAddr, u32>,
    /// The superblock of each block.
    of: Vec<u32>,
}

impl Superblocks {
    /// The whole range, one free block, as a superblock of `owner`.
    pub fn add_range(&mut self, arena: &mut Arena, first: BlockId, owner: LaneId) {
        let (addr, size) = (arena.addr(first), arena.size(first));
        self.add(Superblock { first, addr, size, used: 0, owner });
        arena.move_to_lane(first, owner);
        self.free.insert(arena, first);
    }

    fn add(&mut self, superblock: Superblock) -> u32 {
        let number = match self.spare.pop() {
            Some(number) => {
                self.list[number as usize] = superblock;
                number
            }
            None => {
                self.list.push(superblock);
                u32::try_from(self.list.len() - 1).expect("fewer than 2^32 superblocks")
            }
        };
        self.by_addr.insert(superblock.addr, number);
        self.set_of(superblock.first, number);
        number
    }

    fn set_of(&mut self, block: BlockId, superblock: u32) {
        if block.index() >= self.of.len() {
            self.of.resize(block.index() + 1, 0);
        }
        self.of[block.index()] = superblock;
    }

    #[inline]
    fn number_of(&self, block: BlockId) -> u32 {
        self.of[block.index()]
    }

    #[inline]
    fn superblock(&mut self, number: u32) -> &mut Superblock {
        &mut self.list[number as usize]
    }

    /// The owner of a block's superblock.
    pub fn owner(&self, block: BlockId) -> LaneId {
        self.list[self.number_of(block) as usize].owner
    }

    /// The free block of `owner` at the lowest address that has at least `size` bytes, out of the index.
    #[inline]
    pub fn take(&mut self, arena: &Arena, size: Bytes, owner: LaneId) -> Option<BlockId> {
        self.free.take(arena, size, owner)
    }

    /// The same from the first superblock of `global` that has such a block. If that superblock is empty and
    /// leaves a whole one over, only what is needed of it is used.
    pub fn take_from_global(
        &mut self,
        arena: &mut Arena,
        size: Bytes,
        global: LaneId,
    ) -> Option<BlockId> {
        let block = self.free.take(arena, size, global)?;
        let keep = size.max(MIN_SIZE);
        let number = self.number_of(block);
        let whole = *self.superblock(number);
        if whole.used == 0 && whole.size >= keep + MIN_SIZE {
            let first = arena.split(block, keep);
            self.superblock(number).size = keep;
            let (addr, size) = (whole.addr + keep, whole.size - keep);
            self.add(Superblock { first, addr, size, ..whole });
            self.free.insert(arena, first);
        }
        Some(block)
    }

    /// Gives the superblock of `block`, which is out of the index, to another owner.
    pub fn give_to(&mut self, arena: &mut Arena, block: BlockId, owner: LaneId) {
        let number = self.number_of(block);
        self.superblock(number).owner = owner;
        let mut next = Some(self.superblock(number).first);
        while let Some(at) = next.filter(|&at| self.number_of(at) == number) {
            if arena.is_free(at) {
                if at != block {
                    self.free.remove(arena, at);
                }
                arena.move_to_lane(at, owner);
                if at != block {
                    self.free.insert(arena, at);
                }
            }
            next = arena.following(at);
        }
    }

    /// The block, taken before, is in use, and `rest` of it is not.
    pub fn cut(&mut self, arena: &Arena, block: BlockId, rest: Option<BlockId>) {
        let number = self.number_of(block);
        self.superblock(number).used += arena.size(block);
        if let Some(rest) = rest {
            self.set_of(rest, number);
            self.free.insert(arena, rest);
        }
    }

    /// A block is free: merges it with its neighbours in its superblock, and the superblock, if it is empty and
    /// `global`'s, with its neighbours.
    pub fn put(&mut self, arena: &mut Arena, block: BlockId, global: LaneId) {
        let (number, size) = (self.number_of(block), arena.size(block));
        let owner = self.superblock(number).owner;
        arena.move_to_lane(block, owner);
        let (prev, next) = arena.free_neighbours(block);
        let prev = prev.filter(|&b| self.number_of(b) == number);
        let next = next.filter(|&b| self.number_of(b) == number);
        for neighbour in [prev, next].into_iter().flatten() {
            self.free.remove(arena, neighbour);
        }
        let whole = arena.merge(block, prev, next);
        self.free.insert(arena, whole);
        self.superblock(number).used -= size;
        if owner == global {
            self.join(arena, number);
        }
    }

    /// Gives all superblocks to `global`.
    pub fn collect(&mut self, arena: &mut Arena, global: LaneId) {
        let numbers: Vec<u32> = self.by_addr.values().copied().collect();
        for number in numbers {
            let Superblock { first, owner, .. } = *self.superblock(number);
            if owner == global || self.by_addr.get(&arena.addr(first)) != Some(&number) {
                continue;
            }
            if arena.is_free(first) {
                self.free.remove(arena, first);
            }
            self.give_to(arena, first, global);
            if arena.is_free(first) {
                self.free.insert(arena, first);
            }
            self.join(arena, number);
        }
    }

    /// Merges a superblock of the global arena with its neighbours if both are empty.
    fn join(&mut self, arena: &mut Arena, number: u32) {
        let Superblock { addr, used, owner, .. } = *self.superblock(number);
        if used > 0 {
            return;
        }
        let next = self.by_addr.range(addr + 1..).next().map(|(_, &next)| next);
        let prev = self.by_addr.range(..addr).next_back().map(|(_, &prev)| prev);
        let mergeable = |list: &[Superblock], other: u32| {
            let other = &list[other as usize];
            other.used == 0 && other.owner == owner
        };
        if let Some(next) = next.filter(|&next| mergeable(&self.list, next)) {
            self.absorb(arena, number, next);
        }
        if let Some(prev) = prev.filter(|&prev| mergeable(&self.list, prev)) {
            self.absorb(arena, prev, number);
        }
    }

    fn absorb(&mut self, arena: &mut Arena, number: u32, next: u32) {
        let Superblock { first, addr, size, .. } = *self.superblock(next);
        let into = self.superblock(number).first;
        self.free.remove(arena, first);
        self.free.remove(arena, into);
        let whole = arena.merge(into, None, Some(first));
        self.free.insert(arena, whole);
        self.superblock(number).size += size;
        self.by_addr.remove(&addr);
        self.spare.push(next);
    }

    /// How many superblocks there are.
    pub fn len(&self) -> usize {
        self.by_addr.len()
    }
}
