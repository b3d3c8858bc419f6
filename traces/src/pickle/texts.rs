//! Strings, stored once.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;
use std::ops::Range;

/// A string in [`Texts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextId(pub u32);

/// Every distinct string that was read.
pub struct Texts {
    all: String,
    ends: Vec<usize>,
    ids: HashTable<u32>,
    /// Seeded at random, so that no file can be made to collide.
    hasher: DefaultHashBuilder,
}

impl Texts {
    /// A table in which `words[n]` has the id `n`.
    pub fn with_words(words: &[&str]) -> Self {
        let mut texts = Texts {
            all: String::new(),
            ends: Vec::new(),
            ids: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        };
        for (n, word) in words.iter().enumerate() {
            let id = texts.intern(word);
            debug_assert_eq!(id.0 as usize, n, "words are distinct");
        }
        texts
    }

    /// The id of a string; equal strings have equal ids.
    pub fn intern(&mut self, text: &str) -> TextId {
        let Texts { all, ends, ids, hasher } = self;
        let hash = hasher.hash_one(text.as_bytes());
        if let Some(&id) = ids.find(hash, |&id| bytes(all, ends, id) == text.as_bytes()) {
            return TextId(id);
        }
        // 2^32 distinct strings are at least 16 GiB of text and 16 GiB of ends.
        let id = u32::try_from(ends.len()).expect("fewer than 2^32 distinct strings");
        all.push_str(text);
        ends.push(all.len());
        ids.insert_unique(hash, id, |&id| hasher.hash_one(bytes(all, ends, id)));
        TextId(id)
    }

    /// The string with this id.
    pub fn get(&self, id: TextId) -> &str {
        &self.all[range(&self.ends, id.0)]
    }
}

/// Bytes compare and hash without a look for character boundaries.
#[inline]
fn bytes<'a>(all: &'a str, ends: &[usize], id: u32) -> &'a [u8] {
    &all.as_bytes()[range(ends, id)]
}

#[inline]
fn range(ends: &[usize], id: u32) -> Range<usize> {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] };
    start..ends[id]
}
