//! Size classes: sizes by octave, each octave cut into equal steps.

use poolsim_core::Bytes;

/// Sizes below this share the classes of the smallest octave; no block is smaller.
const SMALLEST_LOG: u32 = 8;
/// Octaves from 256 bytes up to the largest possible size.
const OCTAVES: usize = (64 - SMALLEST_LOG) as usize;

/// How many classes there are with `2^bits` classes an octave.
pub const fn class_count(bits: u32) -> usize {
    OCTAVES << bits
}

/// The class of a size, with `2^bits` classes an octave. Larger sizes are never in lower classes.
#[inline]
pub fn class_of(size: Bytes, bits: u32) -> usize {
    let size = size.max(1 << SMALLEST_LOG);
    let log = size.ilog2();
    let step = (size >> (log - bits)) & ((1 << bits) - 1);
    (((log - SMALLEST_LOG) as usize) << bits) | step as usize
}

/// The lowest class all of whose blocks have at least `size` bytes.
#[inline]
pub fn class_from(size: Bytes, bits: u32) -> usize {
    let size = size.max(1 << SMALLEST_LOG);
    let step = 1 << (size.ilog2() - bits);
    class_of(size, bits) + usize::from(size & (step - 1) != 0)
}

/// A set of classes that finds the next member upwards.
#[derive(Clone, Debug)]
pub struct ClassSet {
    words: Vec<u64>,
    /// Bit `i`: `words[i]` is not 0. 64 words hold 4096 classes, more than any use here has.
    summary: u64,
}

impl ClassSet {
    /// An empty set for classes `0..count`.
    pub fn new(count: usize) -> Self {
        assert!(count <= 64 * 64, "{count} classes do not fit into two levels");
        ClassSet { words: vec![0; count.div_ceil(64)], summary: 0 }
    }

    /// Adds a class.
    #[inline]
    pub fn insert(&mut self, class: usize) {
        self.words[class / 64] |= 1 << (class % 64);
        self.summary |= 1 << (class / 64);
    }

    /// Takes a class out.
    #[inline]
    pub fn remove(&mut self, class: usize) {
        self.words[class / 64] &= !(1 << (class % 64));
        if self.words[class / 64] == 0 {
            self.summary &= !(1 << (class / 64));
        }
    }

    /// The lowest member that is at least `class`.
    #[inline]
    pub fn at_least(&self, class: usize) -> Option<usize> {
        let word = class / 64;
        let here = self.words.get(word)? & (!0 << (class % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let above = self.summary & (!0u64).checked_shl(word as u32 + 1).unwrap_or(0);
        (above != 0).then(|| {
            let word = above.trailing_zeros() as usize;
            word * 64 + self.words[word].trailing_zeros() as usize
        })
    }

    /// The highest member.
    pub fn highest(&self) -> Option<usize> {
        let word = 63usize.checked_sub(self.summary.leading_zeros() as usize)?;
        Some(word * 64 + 63 - self.words[word].leading_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn classes_rise_with_sizes() {
        let sizes = (0..64).flat_map(|s| [1u64 << s, (1 << s) + (1 << s) / 2, (1u64 << s) - 1]);
        let mut sizes: Vec<u64> = sizes.chain([u64::MAX]).collect();
        sizes.sort_unstable();
        for bits in [0, 3, 5] {
            let classes: Vec<usize> = sizes.iter().map(|&s| class_of(s, bits)).collect();
            assert!(classes.is_sorted());
            assert!(classes.iter().all(|&c| c < class_count(bits)));
        }
    }

    proptest! {
        /// By the definition: a block is in that class or above if its class has no smaller blocks than asked for.
        #[test]
        fn a_class_is_sure_from_its_lower_end(log in 8u32..40, part: u64, bits in 0u32..6) {
            let size = (1u64 << log) + part % (1 << log);
            let own = class_of(size, bits);
            let lowest = size == 256 || class_of(size - 1, bits) < own;
            prop_assert_eq!(class_from(size, bits), if lowest { own } else { own + 1 });
        }

        #[test]
        fn the_set_agrees_with_a_sorted_set(ops in prop::collection::vec((any::<bool>(), 0usize..1792), 0..200)) {
            let (mut set, mut model) = (ClassSet::new(1792), BTreeSet::new());
            for (add, class) in ops {
                if add { set.insert(class); model.insert(class); } else { set.remove(class); model.remove(&class); }
                prop_assert_eq!(set.highest(), model.last().copied());
                for from in [class.saturating_sub(1), class, class + 1, 0, 1791, 1792] {
                    prop_assert_eq!(set.at_least(from), model.range(from..).next().copied());
                }
            }
        }
    }
}
