//! Packings by placing one piece after the other at the lowest offset that is free for all of its time, in an order
//! that does not follow time; and better orders, learned from what ended on top.

use super::overlap::OverlapIndex;
use super::pack::{Meter, height};
use super::{Instance, Piece};
use poolsim_core::Bytes;
use std::cmp::Reverse;

/// Places the pieces in this order; `None` if the budget ended first.
fn lowest_first(instance: &Instance, order: &[u32], meter: &mut Meter) -> Option<Vec<Bytes>> {
    let pieces = &instance.pieces;
    let mut index = OverlapIndex::new(instance.sections, pieces.len());
    let mut offsets = vec![0; pieces.len()];
    let (mut found, mut taken): (Vec<u32>, Vec<(Bytes, Bytes)>) = Default::default();
    for &i in order {
        let piece = &pieces[i as usize];
        found.clear();
        index.find(piece, &mut found);
        if !meter.spend(1 + found.len() as u64) {
            return None;
        }
        taken.clear();
        taken.extend(found.iter().map(|&j| {
            let offset = offsets[j as usize];
            (offset, offset + pieces[j as usize].size)
        }));
        taken.sort_unstable();
        offsets[i as usize] = lowest_gap(&taken, piece.size);
        index.insert(i, piece);
    }
    Some(offsets)
}

fn lowest_gap(taken: &[(Bytes, Bytes)], size: Bytes) -> Bytes {
    let mut top = 0;
    for &(start, end) in taken {
        if start >= top && start - top >= size {
            break;
        }
        top = top.max(end);
    }
    top
}

type Key = fn(&Piece) -> (u128, u64);

/// What comes first, by descending key. Long lives first leaves the short ones the gaps that stay; the others win
/// where lives are alike.
const ORDERS: [Key; 3] = [
    |p| (u128::from(p.length()), p.size),
    |p| (u128::from(p.length()) * u128::from(p.size), p.size),
    |p| (u128::from(p.size), p.length()),
];

fn order_by(instance: &Instance, key: Key) -> Vec<u32> {
    let mut order: Vec<u32> = (0..instance.pieces.len() as u32).collect();
    order.sort_by_key(|&i| {
        let piece = &instance.pieces[i as usize];
        (Reverse(key(piece)), piece.lower)
    });
    order
}

/// The best packing that the budget finds, no higher than `best`, which it replaces. Stops at `least`, which nothing can
/// be below.
pub(super) fn improve(instance: &Instance, least: Bytes, best: &mut Vec<Bytes>, meter: &mut Meter) {
    let mut best_order = None;
    for key in ORDERS {
        let order = order_by(instance, key);
        let Some(offsets) = lowest_first(instance, &order, meter) else { return };
        if height(instance, &offsets) < height(instance, best) || best_order.is_none() {
            best_order = Some((height(instance, &offsets), order, offsets));
        }
        let (_, _, offsets) = best_order.as_ref().expect("set above");
        if height(instance, offsets) < height(instance, best) {
            best.clone_from(offsets);
        }
        if height(instance, best) == least {
            return;
        }
    }
    if let Some((_, order, offsets)) = best_order {
        promote(instance, least, order, offsets, best, meter);
    }
}

/// Rounds without a better packing after which the search for orders ends.
const PATIENCE: u32 = 60;

/// Places the pieces that stick out above `least` earlier and tries again (squeaky wheel optimisation, Joslin and Clements
/// 1999). Without any chance in it, so that the same budget finds the same packing.
fn promote(
    instance: &Instance,
    least: Bytes,
    mut order: Vec<u32>,
    mut offsets: Vec<Bytes>,
    best: &mut Vec<Bytes>,
    meter: &mut Meter,
) {
    let pieces = &instance.pieces;
    let mut idle = 0;
    while idle < PATIENCE {
        let out = |i: u32| offsets[i as usize] + pieces[i as usize].size > least;
        let mut keyed: Vec<(u64, u32)> = order
            .iter()
            .enumerate()
            .map(|(place, &i)| (2 * place as u64 / if out(i) { 2 } else { 1 }, i))
            .collect();
        keyed.sort_by_key(|&(place, _)| place);
        order = keyed.into_iter().map(|(_, i)| i).collect();
        let Some(next) = lowest_first(instance, &order, meter) else { return };
        offsets = next;
        idle += 1;
        if height(instance, &offsets) < height(instance, best) {
            best.clone_from(&offsets);
            idle = 0;
        }
        if height(instance, best) == least {
            return;
        }
    }
}
