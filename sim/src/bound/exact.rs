//! A search that packs small instances to a given height, or shows that nothing does.
//!
//! It looks for *canonical* packings: every piece lies on the ground or on another piece, and pieces are placed by
//! rising offset. Every packing can be pushed down into one, so that it is enough to look at those. The ideas are those
//! of M. D. Moffitt, MiniMalloc (ASPLOS 2023); bounds and order of search are the project's own.

use super::Instance;
use super::pack::{Meter, height};
use poolsim_core::Bytes;
use std::cmp::Reverse;

/// Whether a search has a chance to end.
pub(super) fn has_a_chance(instance: &Instance) -> bool {
    let covered: u64 = instance.pieces.iter().map(super::Piece::length).sum();
    instance.pieces.len() <= 1_000 && covered <= 400_000
}

/// Steps of the first attempts; each round takes twice as many.
const FIRST: u64 = 1 << 20;

/// Closes in on the least height from both sides until they meet or the budget ends.
pub(super) fn narrow(
    instance: &Instance,
    least: &mut Bytes,
    offsets: &mut Vec<Bytes>,
    meter: &mut Meter,
) {
    let grain = instance.pieces.iter().fold(0, |a, piece| gcd(a, piece.size)).max(1);
    let mut limit = FIRST;
    while meter.left() > 0 {
        let mut target = *least;
        while height(instance, offsets) > *least {
            match attempt(instance, target, limit, meter) {
                Verdict::Packed(found) => *offsets = found,
                Verdict::Impossible => *least = target + grain,
                Verdict::OutOfSteps if target > *least => break,
                Verdict::OutOfSteps => {}
            }
            let room = height(instance, offsets).saturating_sub(*least) / grain;
            target = *least + room / 2 * grain;
            if room < 2 {
                break;
            }
        }
        if height(instance, offsets) <= *least {
            return;
        }
        limit = limit.saturating_mul(2);
    }
}

fn gcd(a: Bytes, b: Bytes) -> Bytes {
    if b == 0 { a } else { gcd(b, a % b) }
}

enum Verdict {
    Packed(Vec<Bytes>),
    Impossible,
    OutOfSteps,
}

/// One attempt with each order of candidates.
fn attempt(instance: &Instance, target: Bytes, limit: u64, meter: &mut Meter) -> Verdict {
    let loads = instance.loads();
    let busiest = |i: u32| {
        let piece = &instance.pieces[i as usize];
        loads[piece.lower as usize..piece.upper as usize].iter().copied().max().unwrap_or(0)
    };
    for kind in 0..3 {
        let mut order: Vec<u32> = (0..instance.pieces.len() as u32).collect();
        order.sort_by_cached_key(|&i| {
            let piece = &instance.pieces[i as usize];
            let (load, length) = (u128::from(busiest(i)), u128::from(piece.length()));
            let area = length * u128::from(piece.size);
            Reverse(match kind {
                0 => (load, length, area),
                1 => (length, area, load),
                _ => (area, load, length),
            })
        });
        let mut part = meter.part(limit);
        let mut search = Search::new(instance, &order, target, loads.clone(), &mut part);
        let mut all: Vec<u32> = (0..instance.pieces.len() as u32).collect();
        all.sort_by_key(|&i| instance.pieces[i as usize].lower);
        let end = search.components(&all, (0, 0));
        let offsets = std::mem::take(&mut search.offsets);
        meter.settle(&part, limit);
        match end {
            End::Packed => return Verdict::Packed(offsets),
            End::Impossible => return Verdict::Impossible,
            End::OutOfSteps => {}
        }
    }
    Verdict::OutOfSteps
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Packed,
    Impossible,
    OutOfSteps,
}

/// An offset, and among equal offsets one more than the rank of the piece: pieces are placed in rising order of it.
type Place = (Bytes, u32);

struct Search<'a> {
    instance: &'a Instance,
    target: Bytes,
    meter: &'a mut Meter,
    /// By piece: its rank among candidates, from 1.
    ranks: Vec<u32>,
    /// By section: the top of what is placed.
    floors: Vec<Bytes>,
    /// By section: bytes still to be placed.
    open: Vec<Bytes>,
    /// By section: the lowest place that any piece still to be placed can have. Scratch.
    lowest: Vec<Bytes>,
    offsets: Vec<Bytes>,
}

impl<'a> Search<'a> {
    fn new(
        instance: &'a Instance,
        order: &[u32],
        target: Bytes,
        loads: Vec<Bytes>,
        meter: &'a mut Meter,
    ) -> Self {
        let mut ranks = vec![0; order.len()];
        for (rank, &i) in (1..).zip(order) {
            ranks[i as usize] = rank;
        }
        Search {
            instance,
            target,
            meter,
            ranks,
            floors: vec![0; instance.sections as usize],
            open: loads,
            lowest: vec![0; instance.sections as usize],
            offsets: vec![0; order.len()],
        }
    }

    fn sections(&self, i: u32) -> std::ops::Range<usize> {
        let piece = &self.instance.pieces[i as usize];
        piece.lower as usize..piece.upper as usize
    }

    /// Packs pieces, sorted by their start, that fall apart into groups which share no time: each by itself.
    fn components(&mut self, members: &[u32], last: Place) -> End {
        let groups = self.groups(members);
        let [one] = groups[..] else { return self.each(members, &groups, last) };
        self.component(&members[..one], last)
    }

    /// Where each group ends.
    fn groups(&self, members: &[u32]) -> Vec<usize> {
        let (mut ends, mut upper) = (Vec::new(), 0);
        for (n, &i) in members.iter().enumerate() {
            let sections = self.sections(i);
            if n > 0 && sections.start >= upper {
                ends.push(n);
            }
            upper = upper.max(sections.end);
        }
        ends.push(members.len());
        ends
    }

    fn each(&mut self, members: &[u32], ends: &[usize], last: Place) -> End {
        let touched = members.iter().map(|&i| self.sections(i));
        let touched = touched.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        let touched = touched.expect("several groups have members");
        let floors = self.floors[touched.clone()].to_vec();
        let mut start = 0;
        for &end in ends {
            let outcome = self.component(&members[start..end], last);
            if outcome != End::Packed {
                // The groups before it are packed: take them out again.
                self.floors[touched].copy_from_slice(&floors);
                for &i in &members[..start] {
                    for s in self.sections(i) {
                        self.open[s] += self.instance.pieces[i as usize].size;
                    }
                }
                return outcome;
            }
            start = end;
        }
        End::Packed
    }

    /// Packs pieces of which the next is placed after `last`.
    fn component(&mut self, members: &[u32], last: Place) -> End {
        let cost: u64 = members.iter().map(|&i| self.sections(i).len() as u64).sum();
        if !self.meter.spend(2 * cost) {
            return End::OutOfSteps;
        }
        if members.is_empty() {
            return End::Packed;
        }
        let Some(candidates) = self.candidates(members, last) else { return End::Impossible };
        for (place, i) in candidates {
            let sections = self.sections(i);
            let floors = self.floors[sections.clone()].to_vec();
            let size = self.instance.pieces[i as usize].size;
            for s in sections.clone() {
                self.floors[s] = place.0 + size;
                self.open[s] -= size;
            }
            self.offsets[i as usize] = place.0;
            let rest: Vec<u32> = members.iter().copied().filter(|&j| j != i).collect();
            let end = self.components(&rest, place);
            if end != End::Impossible {
                return end;
            }
            for (s, floor) in sections.zip(floors) {
                self.floors[s] = floor;
                self.open[s] += size;
            }
        }
        End::Impossible
    }

    /// The pieces that may be placed next, lowest first; `None` if some section cannot hold what is still to come.
    fn candidates(&mut self, members: &[u32], last: Place) -> Option<Vec<(Place, u32)>> {
        let pieces = &self.instance.pieces;
        let smallest = members.iter().map(|&i| pieces[i as usize].size).min()?;
        let mut places = Vec::with_capacity(members.len());
        let mut droppable = Bytes::MAX;
        for &i in members {
            let floor = self.floors[self.sections(i)].iter().copied().max().unwrap_or(0);
            places.push(((floor, self.ranks[i as usize]), i));
            droppable = droppable.min(floor + pieces[i as usize].size);
            let sections = self.sections(i);
            self.lowest[sections].fill(Bytes::MAX);
        }
        for &(place, i) in &places {
            let size = pieces[i as usize].size;
            // A piece whose turn has passed has to come to lie on one that is still to be placed.
            let least = if place > last { place.0 } else { last.0 + smallest };
            if least + size > self.target {
                return None;
            }
            if place <= last && self.sections(i).all(|s| self.open[s] == size) {
                return None;
            }
            for s in self.sections(i) {
                self.lowest[s] = self.lowest[s].min(least);
            }
        }
        let full = |&(_, i): &(Place, u32)| {
            self.sections(i).any(|s| self.lowest[s] + self.open[s] > self.target)
        };
        if places.iter().any(full) {
            return None;
        }
        // Above where another whole piece would still fit, nothing needs to be placed yet: that one could be pushed down.
        places.retain(|&(place, _)| place > last && place.0 < droppable);
        places.sort_unstable();
        Some(places)
    }
}
