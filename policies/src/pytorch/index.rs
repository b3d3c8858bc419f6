//! The index over the free blocks of one (pool, stream, size class): an ordered set by (size, address).
//!
//! ```text
//! units:   1   2   3 … 4095 | 4096 … 4127 | 4128 … | … | 8192 … 8255 | …
//! class:   1   2   3 … 4095 | 4096        | 4097   | … | 4224        | …      one per 512 B below 2 MiB,
//!          exact size        128 classes per octave above                    then 128 an octave
//! ```
//!
//! A two-level bitmap tells which classes hold blocks. A class is a linked list in (size, address) order while it is
//! short, so that taking a block out needs no search; past [`LIST_MAX`] blocks it becomes a
//! sorted vector, because a list is quadratic when thousands of blocks share a size. The order is the
//! same either way, and the same as a `BTreeSet<(size, address)>`: tests hold the two against each other.

use super::blocks::{Blocks, INDEXED, NONE};

/// A class longer than this turns into a vector …
const LIST_MAX: u32 = 16;
/// … and turns back when it is as short as this.
const LIST_AGAIN: u32 = 6;
/// Classes below this hold one size each.
const EXACT: u32 = 4096;
const CLASSES: usize = 4096 + 20 * 128;
const WORDS: usize = CLASSES / 64;
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
    top: [u64; 2],
    vectors: Vec<Vec<u128>>,
    spare: Vec<u32>,
    len: usize,
}

#[inline]
fn class_of(units: u32) -> u32 {
    if units < EXACT {
        return units;
    }
    let e = units.ilog2();
    EXACT + (e - 12) * 128 + ((units >> (e - 7)) & 127)
}

#[inline]
fn packed(blocks: &Blocks, id: u32) -> u128 {
    let (units, addr) = blocks.key(id);
    u128::from(units) << 96 | u128::from(addr >> 9) << 32 | u128::from(id)
}

impl Default for FreeIndex {
    fn default() -> Self {
        FreeIndex {
            classes: vec![Class { head: NONE, count: 0 }; CLASSES].into(),
            words: [0; WORDS],
            top: [0; 2],
            vectors: Vec::new(),
            spare: Vec::new(),
            len: 0,
        }
    }
}

impl FreeIndex {
    /// The smallest block of at least `units`; among equals the one with the lowest address.
    #[inline]
    pub fn best_fit(&self, blocks: &Blocks, units: u32) -> Option<u32> {
        let wanted = class_of(units);
        let class = self.class_from(wanted)?;
        if class == wanted && class >= EXACT {
            return match self.first_at_least(blocks, class, units, 0) {
                Some(id) => Some(id),
                None => self.class_from(class + 1).map(|c| self.first_in(c)),
            };
        }
        Some(self.first_in(class))
    }

    /// The block after `id` in order.
    pub fn after(&self, blocks: &Blocks, id: u32) -> Option<u32> {
        let (units, addr) = blocks.key(id);
        let class = class_of(units);
        let next = match self.vector(class) {
            None => Some(blocks.links[id as usize][1]).filter(|&n| n != NONE),
            Some(v) => {
                self.first_at_least(blocks, class, units, addr + 1).filter(|_| !v.is_empty())
            }
        };
        next.or_else(|| self.class_from(class + 1).map(|c| self.first_in(c)))
    }

    /// The block before `id` in order. Not on a hot path.
    pub fn before(&self, blocks: &Blocks, id: u32) -> Option<u32> {
        let class = class_of(blocks.get(id).units);
        let prev = match self.vector(class) {
            None => Some(blocks.links[id as usize][0]).filter(|&n| n != NONE),
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
        let mut all = Vec::with_capacity(self.len);
        let mut from = 0;
        while let Some(class) = self.class_from(from) {
            match self.vector(class) {
                Some(v) => all.extend(v.iter().map(|&k| k as u32)),
                None => {
                    let mut id = self.classes[class as usize].head;
                    while id != NONE {
                        all.push(id);
                        id = blocks.links[id as usize][1];
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
        debug_assert!(!blocks.get(id).is(INDEXED), "a block is in the index once");
        blocks.get_mut(id).flags |= INDEXED;
        self.len += 1;
        let key = blocks.key(id);
        let c = class_of(key.0);
        let class = &mut self.classes[c as usize];
        if class.count == 0 {
            *class = Class { head: id, count: 1 };
            blocks.links[id as usize] = [NONE; 2];
            self.words[c as usize / 64] |= 1 << (c % 64);
            self.top[c as usize / 4096] |= 1 << (c / 64 % 64);
            return;
        }
        if class.count & BIG != 0 {
            return self.insert_in_vector(blocks, c, id);
        }
        class.count += 1;
        let mut before = NONE;
        let mut at = class.head;
        while at != NONE && blocks.key(at) < key {
            before = at;
            at = blocks.links[at as usize][1];
        }
        blocks.links[id as usize] = [before, at];
        if before == NONE {
            class.head = id;
        } else {
            blocks.links[before as usize][1] = id;
        }
        if at != NONE {
            blocks.links[at as usize][0] = id;
        }
        if class.count > LIST_MAX {
            self.make_vector(blocks, c);
        }
    }

    /// Takes a block out. Its size and address must be those with which it was put in.
    #[inline]
    pub fn remove(&mut self, blocks: &mut Blocks, id: u32) {
        debug_assert!(blocks.get(id).is(INDEXED), "the block is in the index");
        blocks.get_mut(id).flags &= !INDEXED;
        self.len -= 1;
        let c = class_of(blocks.get(id).units);
        let class = &mut self.classes[c as usize];
        if class.count & BIG != 0 {
            return self.remove_from_vector(blocks, c, id);
        }
        class.count -= 1;
        let [before, after] = blocks.links[id as usize];
        if before == NONE {
            class.head = after;
        } else {
            blocks.links[before as usize][1] = after;
        }
        if after != NONE {
            blocks.links[after as usize][0] = before;
        }
        if class.count == 0 {
            self.clear_bit(c);
        }
    }

    #[inline]
    fn clear_bit(&mut self, c: u32) {
        let word = c as usize / 64;
        self.words[word] &= !(1 << (c % 64));
        if self.words[word] == 0 {
            self.top[word / 64] &= !(1 << (word % 64));
        }
    }

    #[inline]
    fn holds(&self, class: u32) -> bool {
        self.words[class as usize / 64] >> (class % 64) & 1 != 0
    }

    /// The first class from `class` on that holds a block.
    #[inline]
    fn class_from(&self, class: u32) -> Option<u32> {
        let word = class as usize / 64;
        if word >= WORDS {
            return None;
        }
        let here = self.words[word] & (!0 << (class % 64));
        if here != 0 {
            return Some(word as u32 * 64 + here.trailing_zeros());
        }
        let next = word + 1;
        let mut t = next / 64;
        let mut tops = self.top.get(t).copied().unwrap_or(0)
            & (!0u64).checked_shl(next as u32 % 64).unwrap_or(0);
        loop {
            if tops != 0 {
                let w = t * 64 + tops.trailing_zeros() as usize;
                return Some(w as u32 * 64 + self.words[w].trailing_zeros());
            }
            t += 1;
            tops = *self.top.get(t)?;
        }
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
                while blocks.links[id as usize][1] != NONE {
                    id = blocks.links[id as usize][1];
                }
                id
            }
        }
    }

    /// The first block of a class that is at least (`units`, `addr`) in order.
    #[inline]
    fn first_at_least(&self, blocks: &Blocks, class: u32, units: u32, addr: u64) -> Option<u32> {
        if let Some(v) = self.vector(class) {
            let key = u128::from(units) << 96 | u128::from(addr.div_ceil(512)) << 32;
            return v.get(v.partition_point(|&k| k < key)).map(|&k| k as u32);
        }
        let mut id = self.classes[class as usize].head;
        while id != NONE && blocks.key(id) < (units, addr) {
            id = blocks.links[id as usize][1];
        }
        (id != NONE).then_some(id)
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
            id = blocks.links[id as usize][1];
        }
        *class = Class { head: number, count: class.count | BIG };
    }

    #[inline(never)]
    fn insert_in_vector(&mut self, blocks: &Blocks, c: u32, id: u32) {
        let class = &mut self.classes[c as usize];
        class.count += 1;
        let v = &mut self.vectors[class.head as usize];
        let key = packed(blocks, id);
        v.insert(v.partition_point(|&k| k < key), key);
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
            blocks.links[this as usize] = [before, after];
            before = this;
        }
        v.clear();
        self.spare.push(number);
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::{Block, MAPPED};
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
                    let block = Block { addr, requested: 0, units, prev: NONE, next: NONE, heap: 0, flags: MAPPED };
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
                prop_assert_eq!(index.len, expected.len());
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
