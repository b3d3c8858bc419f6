//! A set of page numbers as a bitmap.

use std::ops::Range;

/// Which of the first so many pages have some property.
#[derive(Clone, Debug, Default)]
pub(super) struct Bits {
    words: Vec<u64>,
}

/// The bits of `word` that lie in `range`.
#[inline]
fn mask(word: usize, range: &Range<usize>) -> u64 {
    let (low, high) = (word * 64, word * 64 + 64);
    let from = if range.start > low { !0 << (range.start - low) } else { !0 };
    let to = if range.end < high { !(!0 << (range.end - low)) } else { !0 };
    from & to
}

/// The words that `range` touches.
#[inline]
fn words(range: &Range<usize>) -> Range<usize> {
    if range.is_empty() { 0..0 } else { range.start / 64..range.end.div_ceil(64) }
}

impl Bits {
    /// No page of `len` has it.
    pub(super) fn none(len: usize) -> Self {
        Bits { words: vec![0; len.div_ceil(64)] }
    }

    pub(super) fn get(&self, page: usize) -> bool {
        self.words[page / 64] >> (page % 64) & 1 != 0
    }

    pub(super) fn set(&mut self, page: usize) {
        self.words[page / 64] |= 1 << (page % 64);
    }

    pub(super) fn clear(&mut self, page: usize) {
        self.words[page / 64] &= !(1 << (page % 64));
    }

    #[inline]
    pub(super) fn set_range(&mut self, range: Range<usize>) {
        words(&range).for_each(|w| self.words[w] |= mask(w, &range));
    }

    #[inline]
    pub(super) fn clear_range(&mut self, range: Range<usize>) {
        words(&range).for_each(|w| self.words[w] &= !mask(w, &range));
    }

    /// The first page in `range` that has it.
    pub(super) fn first(&self, range: Range<usize>) -> Option<usize> {
        self.find_first(range, |word| word)
    }

    /// The first page in `range` that has it not.
    pub(super) fn first_without(&self, range: Range<usize>) -> Option<usize> {
        self.find_first(range, |word| !word)
    }

    fn find_first(&self, range: Range<usize>, of: impl Fn(u64) -> u64) -> Option<usize> {
        words(&range).find_map(|w| {
            let hits = of(self.words[w]) & mask(w, &range);
            (hits != 0).then(|| w * 64 + hits.trailing_zeros() as usize)
        })
    }

    /// The last page in `range` that is in both sets.
    pub(super) fn last_in_both(&self, other: &Bits, range: Range<usize>) -> Option<usize> {
        words(&range).rev().find_map(|w| {
            let hits = self.words[w] & other.words[w] & mask(w, &range);
            (hits != 0).then(|| w * 64 + 63 - hits.leading_zeros() as usize)
        })
    }

    /// How many pages in `range` have it.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn count(&self, range: Range<usize>) -> usize {
        words(&range).map(|w| (self.words[w] & mask(w, &range)).count_ones() as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Bits;
    use proptest::prelude::*;

    const LEN: usize = 200;

    proptest! {
        #[test]
        fn a_bitmap_is_a_set(
            steps in prop::collection::vec((any::<bool>(), 0..LEN, 0..LEN), 0..12),
            (from, to) in (0..LEN, 0..LEN),
        ) {
            let (mut bits, mut naive) = (Bits::none(LEN), vec![false; LEN]);
            let mut other = Bits::none(LEN);
            for (set, a, b) in steps {
                naive[a.min(b)..b].fill(set);
                if set {
                    bits.set_range(a.min(b)..b);
                } else {
                    bits.clear_range(a.min(b)..b);
                }
                other.set(a);
            }
            other.clear(to);
            let range = from.min(to)..to;
            let mut inside = range.clone();
            prop_assert_eq!(bits.first(range.clone()), inside.clone().find(|&i| naive[i]));
            prop_assert_eq!(bits.first_without(range.clone()), inside.clone().find(|&i| !naive[i]));
            prop_assert_eq!(bits.count(range.clone()), inside.clone().filter(|&i| naive[i]).count());
            let last = inside.rfind(|&i| naive[i] && other.get(i));
            prop_assert_eq!(bits.last_in_both(&other, range), last);
            prop_assert!((0..LEN).all(|i| bits.get(i) == naive[i]));
        }
    }
}
