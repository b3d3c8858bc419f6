//! Free blocks ordered by size, then address, exactly.
//!
//! Sizes fall into classes, 32 an octave. A class is a sorted list through the nodes: inserting walks it,
//! removing needs no search. Real heaps have a handful of blocks in a class; a class that grows past
//! `LIST_MAX` moves into a tree until it has shrunk to `TREE_MIN`, so thousands of equal blocks cost a
//! logarithm and not a walk.

use super::classes::{ClassSet, class_count, class_of};
use poolsim_core::{BlockId, Bytes, DevAddr};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

const BITS: u32 = 5;
const LIST_MAX: u32 = 16;
const TREE_MIN: u32 = 6;
const END: u32 = u32::MAX;
/// As the head of a class: its blocks are in a tree.
const TREE: u32 = u32::MAX - 1;

type Key = (Bytes, DevAddr);

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Key,
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Class {
    head: u32,
    count: u32,
}

/// Nodes by block, shared by the indexes of all lanes: a block is in one index at a time.
#[derive(Clone, Debug, Default)]
pub struct Nodes(Vec<Node>);

impl Nodes {
    #[inline]
    fn make_room(&mut self, block: BlockId) {
        if block.index() >= self.0.len() {
            self.0.resize(block.index() + 1, Node { key: (0, 0), prev: END, next: END });
        }
    }

    #[inline]
    fn key(&self, block: u32) -> Key {
        self.0[block as usize].key
    }
}

/// The free blocks of one lane.
#[derive(Clone, Debug)]
pub struct SizeIndex {
    classes: Vec<Class>,
    used: ClassSet,
    trees: FxHashMap<usize, BTreeSet<(Key, u32)>>,
}

impl Default for SizeIndex {
    fn default() -> Self {
        SizeIndex {
            classes: vec![Class { head: END, count: 0 }; class_count(BITS)],
            used: ClassSet::new(class_count(BITS)),
            trees: FxHashMap::default(),
        }
    }
}

impl SizeIndex {
    /// Adds a block that is in no index.
    #[inline]
    pub fn insert(&mut self, nodes: &mut Nodes, block: BlockId, size: Bytes, addr: DevAddr) {
        let key = (size, addr);
        nodes.make_room(block);
        let class = class_of(size, BITS);
        let c = &mut self.classes[class];
        c.count += 1;
        if c.head == TREE {
            nodes.0[block.index()].key = key;
            self.trees.entry(class).or_default().insert((key, block.0));
            return;
        }
        if c.count == 1 {
            self.used.insert(class);
        }
        let (mut before, mut after) = (END, c.head);
        while after != END && nodes.key(after) < key {
            (before, after) = (after, nodes.0[after as usize].next);
        }
        nodes.0[block.index()] = Node { key, prev: before, next: after };
        if before == END {
            c.head = block.0;
        } else {
            nodes.0[before as usize].next = block.0;
        }
        if after != END {
            nodes.0[after as usize].prev = block.0;
        }
        if c.count > LIST_MAX {
            self.plant_tree(nodes, class);
        }
    }

    /// Takes a block out that is in this index.
    #[inline]
    pub fn remove(&mut self, nodes: &mut Nodes, block: BlockId) {
        let Node { key, prev, next } = nodes.0[block.index()];
        let class = class_of(key.0, BITS);
        let c = &mut self.classes[class];
        c.count -= 1;
        if c.head == TREE {
            let tree = self.trees.get_mut(&class).expect("a class marked as a tree has one");
            let there = tree.remove(&(key, block.0));
            debug_assert!(there, "block {block} is not in the index");
            if c.count <= TREE_MIN {
                self.flatten_tree(nodes, class);
            }
            return;
        }
        if prev == END {
            debug_assert_eq!(c.head, block.0, "block {block} is not in the index");
            c.head = next;
        } else {
            nodes.0[prev as usize].next = next;
        }
        if next != END {
            nodes.0[next as usize].prev = prev;
        }
        if c.count == 0 {
            self.used.remove(class);
        }
    }

    /// The smallest block of at least `size` bytes; among equals the one at the lowest address.
    #[inline]
    pub fn smallest_at_least(&self, nodes: &Nodes, size: Bytes) -> Option<BlockId> {
        let class = self.used.at_least(class_of(size, BITS))?;
        if let Some(found) = self.first_at_least(nodes, class, (size, 0)) {
            return Some(found);
        }
        let class = self.used.at_least(class + 1)?;
        self.first_at_least(nodes, class, (size, 0))
    }

    /// The largest block; among equals the one at the lowest address.
    pub fn largest(&self, nodes: &Nodes) -> Option<BlockId> {
        let class = self.used.highest()?;
        let size = match self.trees.get(&class) {
            Some(tree) => tree.last()?.0.0,
            None => self.list(nodes, class).map(|b| nodes.key(b).0).max()?,
        };
        self.first_at_least(nodes, class, (size, 0))
    }

    #[inline]
    fn first_at_least(&self, nodes: &Nodes, class: usize, key: Key) -> Option<BlockId> {
        if self.classes[class].head == TREE {
            return self.trees[&class].range((key, 0)..).next().map(|&(_, b)| BlockId(b));
        }
        self.list(nodes, class).find(|&b| nodes.key(b) >= key).map(BlockId)
    }

    #[inline]
    fn list<'a>(&self, nodes: &'a Nodes, class: usize) -> impl Iterator<Item = u32> + use<'a> {
        let some = |b: u32| (b != END).then_some(b);
        let head = some(self.classes[class].head);
        std::iter::successors(head, move |&b| some(nodes.0[b as usize].next))
    }

    #[cold]
    fn plant_tree(&mut self, nodes: &Nodes, class: usize) {
        let tree: BTreeSet<_> = self.list(nodes, class).map(|b| (nodes.key(b), b)).collect();
        self.trees.insert(class, tree);
        self.classes[class].head = TREE;
    }

    #[cold]
    fn flatten_tree(&mut self, nodes: &mut Nodes, class: usize) {
        let tree = self.trees.remove(&class).expect("a class marked as a tree has one");
        let mut after = END;
        for &(key, block) in tree.iter().rev() {
            nodes.0[block as usize] = Node { key, prev: END, next: after };
            if after != END {
                nodes.0[after as usize].prev = block;
            }
            after = block;
        }
        self.classes[class].head = after;
    }
}
