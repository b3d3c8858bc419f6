//! Offline packing of one iteration: places for blocks whose lifetimes are known, on a circle of time.

use poolsim_core::Bytes;

/// A block to place: alive from request `start` on for `life` requests, past the iteration's end into the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arc {
    /// The request that makes it.
    pub start: u32,
    /// For how many requests it lives; from 1 to the iteration's length less 1.
    pub life: u32,
    /// Bytes.
    pub size: Bytes,
}

impl Arc {
    fn overlaps(&self, other: &Arc, period: u32) -> bool {
        let after = |a: &Arc, b: &Arc| (b.start + period - a.start) % period < a.life;
        after(self, other) || after(other, self)
    }
}

/// Places for blocks, and how many bytes they take together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// The offset of each block, in the order given.
    pub offsets: Vec<Bytes>,
    /// The highest end of a block.
    pub height: Bytes,
}

const BUCKETS: u32 = 256;

/// Packs the blocks of an iteration of `period` requests: one after the other at the lowest offset that is free for its
/// whole life, once the large ones first and once the long-lived ones first; the lower packing of the two.
pub fn pack(arcs: &[Arc], period: u32) -> Packing {
    let mut order: Vec<usize> = (0..arcs.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse((arcs[i].size, arcs[i].life)), i));
    let by_size = pack_in(&order, arcs, period);
    order.sort_by_key(|&i| (std::cmp::Reverse((arcs[i].life, arcs[i].size)), i));
    let by_life = pack_in(&order, arcs, period);
    if by_life.height < by_size.height { by_life } else { by_size }
}

fn pack_in(order: &[usize], arcs: &[Arc], period: u32) -> Packing {
    let width = period.div_ceil(BUCKETS);
    let count = period.div_ceil(width);
    // The placed blocks that are alive somewhere in each stretch of time.
    let mut buckets: Vec<Vec<usize>> = vec![Vec::new(); count as usize];
    let mut offsets = vec![0; arcs.len()];
    let mut seen = vec![usize::MAX; arcs.len()];
    let (mut height, mut taken) = (0, Vec::new());
    for &i in order {
        let arc = &arcs[i];
        let first = arc.start / width;
        let stretches = ((arc.start % width + arc.life).div_ceil(width) + 1).min(count);
        let touched = || (0..stretches).map(|k| ((first + k) % count) as usize);
        taken.clear();
        for bucket in touched() {
            for &other in &buckets[bucket] {
                if seen[other] != i && arc.overlaps(&arcs[other], period) {
                    taken.push((offsets[other], offsets[other] + arcs[other].size));
                }
                seen[other] = i;
            }
        }
        offsets[i] = lowest_gap(&mut taken, arc.size);
        height = height.max(offsets[i] + arc.size);
        touched().for_each(|bucket| buckets[bucket].push(i));
    }
    Packing { offsets, height }
}

fn lowest_gap(taken: &mut [(Bytes, Bytes)], size: Bytes) -> Bytes {
    taken.sort_unstable();
    let mut at = 0;
    for &(from, to) in taken.iter() {
        if from >= at + size {
            break;
        }
        at = at.max(to);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arcs() -> impl Strategy<Value = (u32, Vec<Arc>)> {
        (2..2000u32).prop_flat_map(|period| {
            let arc = (0..period, 1..period, 1..64u64).prop_map(|(start, life, size)| Arc {
                start,
                life,
                size: size * 512,
            });
            (Just(period), prop::collection::vec(arc, 0..120))
        })
    }

    proptest! {
        /// No two blocks that are alive together share a byte, by a look at every request; and no more is taken than
        /// all blocks side by side.
        #[test]
        fn blocks_that_live_together_lie_apart((period, arcs) in arcs()) {
            let packing = pack(&arcs, period);
            for now in 0..period {
                let alive = |a: &Arc| (now + period - a.start) % period < a.life;
                let mut held: Vec<_> = (0..arcs.len())
                    .filter(|&i| alive(&arcs[i]))
                    .map(|i| (packing.offsets[i], packing.offsets[i] + arcs[i].size))
                    .collect();
                held.sort_unstable();
                prop_assert!(held.windows(2).all(|w| w[0].1 <= w[1].0));
                prop_assert!(held.iter().all(|h| h.1 <= packing.height));
            }
            prop_assert!(packing.height <= arcs.iter().map(|a| a.size).sum());
        }
    }
}
