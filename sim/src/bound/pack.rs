//! A packing and what is known of it.

use super::{Instance, exact, greedy, online};
use poolsim_core::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// What is known of a packing's height.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// No packing is lower.
    Proven,
    /// A lower one may exist; the steps were used up, or the problem is too large to search through.
    BestFound,
    /// A lower one may exist; the wall-clock limit ended the search, so that another run may find another.
    TimedOut,
}

/// How much work a search may do.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Steps: a step looks at one piece. The same steps find the same packing.
    pub steps: u64,
    /// When to stop whatever steps are left.
    pub deadline: Option<Instant>,
}

/// Steps that a search takes if nothing else is said: seconds.
pub const DEFAULT_STEPS: u64 = 2_000_000_000;

impl Default for Budget {
    fn default() -> Self {
        Budget { steps: DEFAULT_STEPS, deadline: None }
    }
}

/// A budget under way.
pub(super) struct Meter {
    left: u64,
    deadline: Option<Instant>,
    since_look: u64,
    timed_out: bool,
}

/// Steps between two looks at the clock.
const LOOK: u64 = 1 << 17;

impl Meter {
    /// A part of the budget, for a search that must leave steps to those after it.
    pub(super) fn part(&self, steps: u64) -> Meter {
        Meter { left: steps.min(self.left), ..*self }
    }

    /// Takes off what a part has used.
    pub(super) fn settle(&mut self, part: &Meter, given: u64) {
        self.left -= given.min(self.left) - part.left;
        self.timed_out |= part.timed_out;
        self.since_look = part.since_look;
    }

    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Whether so many steps may be taken.
    pub(super) fn spend(&mut self, steps: u64) -> bool {
        if self.timed_out || self.left < steps {
            self.left = 0;
            return false;
        }
        self.left -= steps;
        self.since_look += steps;
        if self.since_look >= LOOK {
            self.since_look = 0;
            self.timed_out = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        }
        !self.timed_out
    }
}

/// A place for every piece.
#[derive(Clone, Debug)]
pub struct Packing {
    /// Offsets by piece.
    pub offsets: Vec<Bytes>,
    /// Bytes from the lowest to the highest that is used.
    pub height: Bytes,
    /// A height below which no packing is: the load, or more where the search showed it.
    pub least: Bytes,
    /// Whether the height is the least.
    pub proof: Proof,
}

/// The height that offsets reach.
pub(super) fn height(instance: &Instance, offsets: &[Bytes]) -> Bytes {
    let tops = instance.pieces.iter().zip(offsets).map(|(piece, offset)| offset + piece.size);
    tops.max().unwrap_or(0)
}

/// Packs an instance: in order of arrival first, then by better orders, then, where it is small enough, by a search that
/// can prove what it finds.
pub fn pack(instance: &Instance, budget: Budget) -> Packing {
    let mut least = instance.load();
    let mut offsets = online::best_fit(instance);
    let Budget { steps, deadline } = budget;
    let mut meter = Meter { left: steps, deadline, since_look: LOOK - 1, timed_out: false };
    if height(instance, &offsets) > least {
        // The search that can prove needs its share where it has a chance.
        let share = if exact::has_a_chance(instance) { meter.left() / 8 } else { meter.left() };
        let mut part = meter.part(share);
        greedy::improve(instance, least, &mut offsets, &mut part);
        meter.settle(&part, share);
    }
    if height(instance, &offsets) > least && exact::has_a_chance(instance) {
        exact::narrow(instance, &mut least, &mut offsets, &mut meter);
    }
    let height = height(instance, &offsets);
    let proof = match (height == least, meter.timed_out) {
        (true, _) => Proof::Proven,
        (false, true) => Proof::TimedOut,
        (false, false) => Proof::BestFound,
    };
    Packing { offsets, height, least, proof }
}

/// A judge too simple to be wrong in the same way: the first two pieces that share both time and bytes.
pub fn misplaced(instance: &Instance, offsets: &[Bytes]) -> Option<(usize, usize)> {
    let pieces = &instance.pieces;
    assert_eq!(pieces.len(), offsets.len(), "an offset for every piece");
    let starts = (0..pieces.len()).map(|i| (pieces[i].lower, true, i));
    let ends = (0..pieces.len()).map(|i| (pieces[i].upper, false, i));
    let mut moments: Vec<(u32, bool, usize)> = starts.chain(ends).collect();
    moments.sort_unstable();
    let mut live: BTreeMap<Bytes, usize> = BTreeMap::new();
    for (_, starts, i) in moments {
        if !starts {
            live.remove(&offsets[i]);
            continue;
        }
        let (start, end) = (offsets[i], offsets[i] + pieces[i].size);
        let clash = live.range(..end).next_back();
        if let Some((&other, &j)) = clash
            && other + pieces[j].size > start
        {
            return Some((j, i));
        }
        live.insert(start, i);
    }
    None
}
