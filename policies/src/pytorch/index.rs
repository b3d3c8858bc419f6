//! The index over the free blocks of one (pool, stream, size class): an ordered set by (size, address).
//!
//! ```text
//! units:   1   2 … 255 | 256 257 | 258 259 | … | 510 511 | 512 … 515 | …
//! class:   1   2 … 255 | 256     | 257     | … | 383     | 384         | …     128 classes an octave above 127 units
//! ```
//!
//! A two-level bitmap tells which classes hold blocks. A class is a linked list in (size, address) order while it is
//! short, so that taking a block out needs no search; past [`LIST_MAX`] blocks it becomes a
//! sorted vector, because a list is quadratic when thousands of blocks share a size. The order is the
//! same either way, and the same as a `BTreeSet<(size, address)>`: tests hold the two against each other.

use std::hint::select_unpredictable;

use super::blocks::{Block, Blocks, INDEXED, NONE, key};

const _: () = assert!(CLASSES / 64 < WORDS);

/// A list never gets longer than this: the class turns into a vector …
const LIST_MAX: u32 = 48;
/// … and turns back when it is as short as this.
const LIST_AGAIN: u32 = 24;
/// Sizes keep this many bits below their leading one; those with fewer have a class of their own.
const MANTISSA: u32 = 7;
const CLASSES: usize = ((32 - MANTISSA as usize) + 1) << MANTISSA;
/// Words of the bitmap: [`CLASSES`] bits, and an empty word at the end that a search finds when nothing else is left.
const WORDS: usize = 64;
const BIG: u32 = 1 << 31;

#[derive(Clone, Copy, Debug)]
struct Class {
    /// First block of the list, or the vector's number.
    head: u32,
    /// Number of blocks, with [`BIG`] set if it is a vector.
    count: u32,
}

/// The free blocks of one heap, ordered by size and then address.
#[derive(Clone, Debug)]
pub struct FreeIndex {
    classes: Box<[Class]>,
    words: [u64; WORDS],
    /// Which words are not 0.
    top: u64,
    vectors: Vec<Vec<u128>>,
    spare: Vec<u32>,
}

/// Monotone in the size, and free of branches.
#[inline]
fn class_of(units: u32) -> u32 {
    let shift = (units | 1).ilog2().saturating_sub(MANTISSA);
    (shift << MANTISSA) + (units >> shift)
}

#[inline]
fn packed(blocks: &Blocks, id: u32) -> u128 {
    let Block { units, addr, .. } = *blocks.get(id);
    u128::from(units) << 96 | u128::from(addr >> 9) << 32 | u128::from(id)
}

impl Default for FreeIndex {
    fn default() -> Self {
        FreeIndex {
            classes: vec![Class { head: NONE, count: 0 }; CLASSES].into(),
            words: [0; WORDS],
            top: 0,
            vectors: Vec::new(),
            spare: Vec::new(),
        }
    }
}

impl FreeIndex {
    /// The smallest block of at least `units`; among equals the one with the lowest address.
    #[inline(always)]
    pub fn best_fit(&self, blocks: &Blocks, units: u32) -> Option<u32> {
        let class = self.class_from(class_of(units))?;
        match self.first_at_least(blocks, class, units, 0) {
            NONE => self.class_from(class + 1).map(|c| self.first_in(c)),
            id => Some(id),
        }
    }

    /// The block after `id` in order.
    pub fn after(&self, blocks: &Blocks, id: u32) -> Option<u32> {
        let Block { units, addr, .. } = *blocks.get(id);
        let class = class_of(units);
        let next = match self.vector(class) {
            None => Some(blocks.get(id).after).filter(|&n| n != NONE),
            Some(_) => {
                Some(self.first_at_least(blocks, class, units, addr + 1)).filter(|&n| n != NONE)
            }
        };
        next.or_else(|| self.class_from(class + 1).map(|c| self.first_in(c)))
    }

    /// The block before `id` in order. Not on a hot path.
    pub fn before(&self, blocks: &Blocks, id: u32) -> Option<u32> {
        let class = class_of(blocks.get(id).units);
        let prev = match self.vector(class) {
            None => Some(blocks.get(id).before).filter(|&n| n != NONE),
            Some(v) => {
                let at = v.partition_point(|&k| k < packed(blocks, id));
                at.checked_sub(1).map(|i| v[i] as u32)
            }
        };
        prev.or_else(|| (0..class).rev().find(|&c| self.holds(c)).map(|c| self.last_in(blocks, c)))
    }

    /// The last block in order: a largest one. Not on a hot path.
    pub fn last(&self, blocks: &Blocks) -> Option<u32> {
        (0..CLASSES as u32).rev().find(|&c| self.holds(c)).map(|c| self.last_in(blocks, c))
    }

    /// All blocks in order.
    pub fn in_order(&self, blocks: &Blocks) -> Vec<u32> {
        let mut all = Vec::new();
        let mut from = 0;
        while let Some(class) = self.class_from(from) {
            match self.vector(class) {
                Some(v) => all.extend(v.iter().map(|&k| k as u32)),
                None => {
                    let mut id = self.classes[class as usize].head;
                    while id != NONE {
                        all.push(id);
                        id = blocks.get(id).after;
                    }
                }
            }
            from = class + 1;
        }
        all
    }

    /// Puts a block in.
    #[inline]
    pub fn insert(&mut self, blocks: &mut Blocks, id: u32) {
        let block = blocks.get_mut(id);
        debug_assert!(!block.is(INDEXED), "a block is in the index once");
        block.flags |= INDEXED;
        let key = block.key();
        let c = class_of(block.units);
        let class = &mut self.classes[c as usize];
        if class.count >= LIST_MAX {
            return self.insert_in_long(blocks, c, id);
        }
        class.count += 1;
        let mut before = NONE;
        let mut at = class.head;
        while blocks.get(at).key() < key {
            before = at;
            at = blocks.get(at).after;
        }
        class.head = select_unpredictable(before == NONE, id, class.head);
        let block = blocks.get_mut(id);
        (block.before, block.after) = (before, at);
        blocks.get_mut(before).after = id;
        blocks.get_mut(at).before = id;
        self.words[c as usize / 64] |= 1 << (c % 64);
        self.top |= 1 << (c / 64);
    }

    /// Takes a block out. Its size and address must be those with which it was put in.
    #[inline]
    pub fn remove(&mut self, blocks: &mut Blocks, id: u32) {
        let block = blocks.get_mut(id);
        debug_assert!(block.is(INDEXED), "the block is in the index");
        block.flags &= !INDEXED;
        let (before, after) = (block.before, block.after);
        let c = class_of(block.units);
        let class = &mut self.classes[c as usize];
        if class.count & BIG != 0 {
            return self.remove_from_vector(blocks, c, id);
        }
        class.count -= 1;
        let empty = class.count == 0;
        class.head = select_unpredictable(before == NONE, after, class.head);
        blocks.get_mut(before).after = after;
        blocks.get_mut(after).before = before;
        self.clear_bit_if(c, empty);
    }

    /// Forgets a class if it is empty, without a branch.
    #[inline]
    fn clear_bit_if(&mut self, c: u32, empty: bool) {
        let word = &mut self.words[c as usize / 64];
        *word &= !(u64::from(empty) << (c % 64));
        let none_left = u64::from(*word == 0);
        self.top &= !(none_left << (c / 64));
    }

    #[inline]
    fn holds(&self, class: u32) -> bool {
        self.words[class as usize / 64] >> (class % 64) & 1 != 0
    }

    /// The first class from `class` on that holds a block.
    #[inline(always)]
    fn class_from(&self, class: u32) -> Option<u32> {
        let word = class as usize / 64;
        // Whether the class's own word holds one is a coin toss: both answers are computed, and one is taken.
        let here = self.words[word] & (!0 << (class % 64));
        let later = (self.top & (!1 << word)).trailing_zeros().min(WORDS as u32 - 1) as usize;
        let bits = select_unpredictable(here != 0, here, self.words[later]);
        let word = select_unpredictable(here != 0, word, later);
        (bits != 0).then(|| word as u32 * 64 + bits.trailing_zeros())
    }

    #[inline]
    fn vector(&self, class: u32) -> Option<&Vec<u128>> {
        let c = self.classes[class as usize];
        (c.count & BIG != 0).then(|| &self.vectors[c.head as usize])
    }

    #[inline]
    fn first_in(&self, class: u32) -> u32 {
        let c = self.classes[class as usize];
        if c.count & BIG == 0 { c.head } else { self.vectors[c.head as usize][0] as u32 }
    }

    fn last_in(&self, blocks: &Blocks, class: u32) -> u32 {
        match self.vector(class) {
            Some(v) => v[v.len() - 1] as u32,
            None => {
                let mut id = self.classes[class as usize].head;
                while blocks.get(id).after != NONE {
                    id = blocks.get(id).after;
                }
                id
            }
        }
    }

    /// The first block of a class that is at least (`units`, `addr`) in order.
    #[inline]
    fn first_at_least(&self, blocks: &Blocks, class: u32, units: u32, addr: u64) -> u32 {
        if let Some(v) = self.vector(class) {
            let key = u128::from(units) << 96 | u128::from(addr.div_ceil(512)) << 32;
            return v.get(v.partition_point(|&k| k < key)).map_or(NONE, |&k| k as u32);
        }
        let mut id = self.classes[class as usize].head;
        while blocks.get(id).key() < key(units, addr) {
            id = blocks.get(id).after;
        }
        id
    }

    /// Puts a block into a class that is a vector, or is too long to stay a list.
    #[inline(never)]
    fn insert_in_long(&mut self, blocks: &Blocks, c: u32, id: u32) {
        if self.classes[c as usize].count & BIG == 0 {
            self.make_vector(blocks, c);
        }
        let class = &mut self.classes[c as usize];
        class.count += 1;
        let v = &mut self.vectors[class.head as usize];
        let key = packed(blocks, id);
        v.insert(v.partition_point(|&k| k < key), key);
    }

    #[cold]
    fn make_vector(&mut self, blocks: &Blocks, c: u32) {
        let number = self.spare.pop().unwrap_or_else(|| {
            self.vectors.push(Vec::new());
            self.vectors.len() as u32 - 1
        });
        let class = &mut self.classes[c as usize];
        let v = &mut self.vectors[number as usize];
        let mut id = class.head;
        while id != NONE {
            v.push(packed(blocks, id));
            id = blocks.get(id).after;
        }
        *class = Class { head: number, count: class.count | BIG };
    }

    #[inline(never)]
    fn remove_from_vector(&mut self, blocks: &mut Blocks, c: u32, id: u32) {
        let class = &mut self.classes[c as usize];
        class.count -= 1;
        let number = class.head;
        let v = &mut self.vectors[number as usize];
        let at = v.binary_search(&packed(blocks, id)).expect("an indexed block is in its class");
        v.remove(at);
        if v.len() as u32 > LIST_AGAIN {
            return;
        }
        let mut before = NONE;
        *class = Class { head: v[0] as u32, count: v.len() as u32 };
        for (i, &k) in v.iter().enumerate() {
            let this = k as u32;
            let after = v.get(i + 1).map_or(NONE, |&n| n as u32);
            let block = blocks.get_mut(this);
            (block.before, block.after) = (before, after);
            before = this;
        }
        v.clear();
        self.spare.push(number);
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::MAPPED;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// The clever index and a `BTreeSet` make the same choices, for few sizes with many blocks and for many sizes.
        #[test]
        fn agrees_with_an_ordered_set(
            spread in 1u32..9000,
            ops in prop::collection::vec((any::<bool>(), any::<u32>(), any::<u32>()), 1..600),
        ) {
            let mut blocks = Blocks::default();
            let mut index = FreeIndex::default();
            let mut set = BTreeSet::new();
            for (step, (put, a, b)) in ops.into_iter().enumerate() {
                let units = 1 + (a % spread) * (1 + b % 3) * if spread > 5000 { 37 } else { 1 };
                if put || set.is_empty() {
                    let addr = (u64::from(b) << 20) + ((step as u64) << 9);
                    let block = Block::alone(addr, units, 0, MAPPED);
                    let id = blocks.add(block);
                    index.insert(&mut blocks, id);
                    set.insert((units, addr, id));
                } else {
                    let &victim = set.iter().nth(b as usize % set.len()).expect("not empty");
                    set.remove(&victim);
                    index.remove(&mut blocks, victim.2);
                    blocks.drop_block(victim.2);
                }
                let expected: Vec<u32> = set.iter().map(|k| k.2).collect();
                prop_assert_eq!(index.in_order(&blocks), &expected[..]);
                let fit = set.range((units, 0, 0)..).next().map(|k| k.2);
                prop_assert_eq!(index.best_fit(&blocks, units), fit);
                prop_assert_eq!(index.last(&blocks), expected.last().copied());
                for pair in expected.windows(2) {
                    prop_assert_eq!(index.after(&blocks, pair[0]), Some(pair[1]));
                    prop_assert_eq!(index.before(&blocks, pair[1]), Some(pair[0]));
                }
            }
        }
    }
}
