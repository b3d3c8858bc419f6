//! What gave memory back: an `empty_cache`, destroyed pools, or the request that follows.
//!
//! A release of everything goes through the default pool's large segments, then its small ones, each in set order, and takes
//! all that are idle; the pools whose owners are gone follow, small before large. So order alone tells much.

use super::facts::{Facts, Region};
use super::labels::{Evidence, Labels, Side};
use super::lots::NO_LOT;
use poolsim_core::recording::Action;
use poolsim_core::units::PoolId;
use std::collections::{BTreeMap, BTreeSet};

/// A run of releases in a region that has one cause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub region: u32,
    /// Range in the region's `released`.
    pub first: usize,
    pub end: usize,
    /// One private pool's memory; else the default pool's.
    pub destroys: bool,
}

/// Reads regions under changing evidence.
#[derive(Clone, Debug)]
pub(super) struct Regions {
    orders: Vec<Order>,
    /// The regions in which each lot gives memory back.
    by_lot: BTreeMap<u32, Vec<u32>>,
}

impl Regions {
    pub fn of(facts: &Facts) -> Regions {
        let orders = facts.regions.iter().map(|r| Order::of(facts, r)).collect();
        let mut by_lot: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (i, region) in facts.regions.iter().enumerate() {
            for &lot in &region.released {
                let list = by_lot.entry(lot).or_default();
                if list.last() != Some(&(i as u32)) {
                    list.push(i as u32);
                }
            }
        }
        Regions { orders, by_lot }
    }

    /// Splits every region into pieces, and decides the sides of lots that were undecided.
    pub fn read(&self, facts: &Facts, evidence: &Evidence, sides: &mut [Side]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (i, region) in facts.regions.iter().enumerate() {
            if region.released.contains(&NO_LOT) {
                continue;
            }
            let order = &self.orders[i];
            let (_, (a, b)) = order.window(facts, evidence, region, sides);
            let mut around = order.chunks(0, a);
            around.extend(order.chunks(b, order.len()));
            // A request collects garbage and releases oversize blocks in orders of its own.
            around.retain(|&chunk| !in_part(facts, &evidence.not_own, region, chunk));
            decide(facts, evidence, region, sides, (a, b), &around);
            for (first, end) in around {
                pieces.push(Piece { region: i as u32, first, end, destroys: true });
            }
            if a < b {
                pieces.push(Piece { region: i as u32, first: a, end: b, destroys: false });
            }
        }
        pieces
    }

    /// How much less simple its regions become if a lot is private. `sure` are the sides that are more than guesses.
    pub fn strain(
        &self,
        facts: &Facts,
        evidence: &Evidence,
        sides: &[Side],
        sure: &[Side],
        lot: u32,
    ) -> u64 {
        let mut strain = 0;
        for &i in self.by_lot.get(&lot).map_or(&[][..], |list| list) {
            let region = &facts.regions[i as usize];
            if region.released.contains(&NO_LOT) {
                continue;
            }
            let mut trial = sides.to_vec();
            for &l in &region.released {
                trial[l as usize] = sure[l as usize];
            }
            let order = &self.orders[i as usize];
            let (before, _) = order.window(facts, evidence, region, &trial);
            trial[lot as usize] = Side::Private;
            let (after, _) = order.window(facts, evidence, region, &trial);
            strain += after.saturating_sub(before);
        }
        strain
    }
}

/// Whether some releases may be a part of what could have been released, so that what is left idle proves nothing:
/// garbage collection and the oversize release take large segments, for the request that follows.
pub(super) fn in_part(
    facts: &Facts,
    not_own: &BTreeSet<u32>,
    region: &Region,
    (first, end): (usize, usize),
) -> bool {
    let small = |&l: &u32| l != NO_LOT && facts.lots[l as usize].small == Some(true);
    region.request
        && facts.releases_in_part()
        && !not_own.contains(&region.index)
        && !region.released[first..end].iter().any(small)
}

fn decide(
    facts: &Facts,
    evidence: &Evidence,
    region: &Region,
    sides: &mut [Side],
    window: (usize, usize),
    destroyed: &[(usize, usize)],
) {
    let mut side_of = |range: (usize, usize), side: Side| {
        for &lot in &region.released[range.0..range.1] {
            if sides[lot as usize] == Side::Unknown {
                sides[lot as usize] = side;
            }
        }
    };
    side_of(window, Side::Default);
    for &chunk in destroyed {
        side_of(chunk, Side::Private);
    }
    if window.0 < window.1 && !in_part(facts, &evidence.not_own, region, window) {
        for &lot in &region.idle {
            if sides[lot as usize] == Side::Unknown {
                sides[lot as usize] = Side::Private;
            }
        }
    }
}

/// What a region costs that no split into pieces explains.
const UNEXPLAINED: u64 = 1 << 32;

/// Where the order of a region's releases breaks.
#[derive(Clone, Debug)]
struct Order {
    /// Releases before each position that cannot follow their predecessor in a release of everything.
    all: Vec<u32>,
    /// The same for the release of one private pool.
    one: Vec<u32>,
}

impl Order {
    fn of(facts: &Facts, region: &Region) -> Order {
        let key = |l: u32, small_first: bool| {
            let lot = &facts.lots[l as usize];
            let phase = (lot.small == Some(small_first), lot.expandable);
            // Pages are unmapped in order of their blocks' sizes, which entries do not show.
            let within = if lot.expandable {
                None
            } else {
                Some((lot.stream, lot.end - lot.base, lot.base))
            };
            (!phase.0, phase.1, within)
        };
        let breaks = |small_first: bool| {
            let mut sum = 0;
            let mut before = vec![0];
            for pair in region.released.windows(2) {
                let (p, n) = (key(pair[0], small_first), key(pair[1], small_first));
                let broken = (p.0, p.1) > (n.0, n.1)
                    || ((p.0, p.1) == (n.0, n.1) && p.2.is_some() && p.2 >= n.2);
                sum += u32::from(broken);
                before.push(sum);
            }
            before
        };
        Order { all: breaks(false), one: breaks(true) }
    }

    fn len(&self) -> usize {
        self.all.len()
    }

    /// Breaks between the releases of `[a, b)`.
    fn breaks(sums: &[u32], a: usize, b: usize) -> u32 {
        if b <= a + 1 { 0 } else { sums[b - 1] - sums[a] }
    }

    /// The pieces of `[a, b)`, each of which one pool's release could have made.
    fn chunks(&self, a: usize, b: usize) -> Vec<(usize, usize)> {
        let mut chunks = Vec::new();
        let mut first = a;
        for i in a + 1..b {
            if self.one[i] > self.one[i - 1] {
                chunks.push((first, i));
                first = i;
            }
        }
        if a < b {
            chunks.push((first, b));
        }
        chunks
    }

    /// The part that comes from the default pool, by the explanation that needs the fewest steps.
    fn window(
        &self,
        facts: &Facts,
        evidence: &Evidence,
        region: &Region,
        sides: &[Side],
    ) -> (u64, (usize, usize)) {
        let n = self.len();
        let side = |j: usize| sides[region.released[j] as usize];
        let mut cuts: Vec<usize> = (1..n)
            .filter(|&j| {
                self.all[j] > self.all[j - 1]
                    || self.one[j] > self.one[j - 1]
                    || side(j) != side(j - 1)
            })
            .collect();
        cuts.insert(0, 0);
        cuts.push(n);
        // A region that nothing explains is left with the request or one empty_cache.
        let mut best = (UNEXPLAINED, (0, n));
        for (x, &a) in cuts.iter().enumerate() {
            for &b in &cuts[x..] {
                if let Some(cost) = self.cost(facts, evidence, region, sides, (a, b))
                    && cost < best.0
                {
                    best = (cost, (a, b));
                }
            }
        }
        best
    }

    fn cost(
        &self,
        facts: &Facts,
        evidence: &Evidence,
        region: &Region,
        sides: &[Side],
        (a, b): (usize, usize),
    ) -> Option<u64> {
        let n = self.len();
        let side = |j: usize| sides[region.released[j] as usize];
        if Order::breaks(&self.all, a, b) > 0
            || (a..b).any(|j| side(j) == Side::Private)
            || (0..a).chain(b..n).any(|j| side(j) == Side::Default)
        {
            return None;
        }
        let chunks = [(0, a), (b, n)]
            .iter()
            .filter(|(x, y)| x < y)
            .map(|&(x, y)| 1 + u64::from(Order::breaks(&self.one, x, y)))
            .sum::<u64>();
        let outside = (n - (b - a)) as u64;
        let mut cost = 400 * chunks + outside;
        if a < b {
            cost += 100;
            if !in_part(facts, &evidence.not_own, region, (a, b)) {
                let left =
                    |s: Side| region.idle.iter().filter(|&&l| sides[l as usize] == s).count();
                let forbidden = evidence.no_empty_cache.contains(&region.index);
                if forbidden || left(Side::Default) > 0 {
                    return None;
                }
                cost += 3 * left(Side::Unknown) as u64;
            }
        }
        Some(cost)
    }
}

/// What to do before the rest of a region is left to the request that follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// `empty_cache`.
    Empty,
    /// A pool's owner goes, and its memory at once.
    Destroy(PoolId),
    /// A pool's owner goes; its memory goes in the next step.
    Drop(PoolId),
}

/// A step with the entries that it makes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub step: Step,
    /// One past its last entry.
    pub end: u32,
}

/// The steps that make a region's releases under given labels. `gone` are the pools whose owners are gone already.
pub(super) fn plan(
    facts: &Facts,
    region: &Region,
    labels: &Labels,
    gone: &BTreeSet<PoolId>,
) -> Vec<Planned> {
    let mut steps: Vec<Planned> = Vec::new();
    let mut gone = gone.clone();
    for (i, pool) in pools_of(facts, region, labels) {
        // Pools whose owners went before are released at the end of every release of everything.
        let empty = !pool.is_private() || gone.contains(&pool);
        if pool.is_private() && empty {
            drop_before_last(&mut steps);
        }
        let continues = steps.last().is_some_and(|s| match s.step {
            Step::Empty => empty,
            Step::Destroy(p) | Step::Drop(p) => p == pool,
        });
        match steps.last_mut() {
            Some(last) if continues => last.end = i + 1,
            _ => {
                let step = if empty { Step::Empty } else { Step::Destroy(pool) };
                if let Step::Destroy(p) = step {
                    gone.insert(p);
                }
                steps.push(Planned { step, end: i + 1 });
            }
        }
    }
    steps
}

/// The pool of each release entry of a region.
fn pools_of(facts: &Facts, region: &Region, labels: &Labels) -> Vec<(u32, PoolId)> {
    let releases = |i: &u32| {
        let action = facts.rec.entries[*i as usize].action;
        matches!(action, Action::SegmentFree | Action::SegmentUnmap)
    };
    let pool = |i: u32| match facts.lot[i as usize] {
        NO_LOT => PoolId::DEFAULT,
        lot => labels.pool[lot as usize],
    };
    (region.begin..region.end).filter(releases).map(|i| (i, pool(i))).collect()
}

/// Pools that were taken to be destroyed after an `empty_cache`, but before memory that it took itself: their owners
/// went before it.
fn drop_before_last(steps: &mut Vec<Planned>) {
    let Some(at) = steps.iter().rposition(|s| s.step == Step::Empty) else { return };
    let end = steps[steps.len() - 1].end;
    let begin = at.checked_sub(1).map_or(0, |i| steps[i].end);
    let dropped: Vec<Planned> = steps
        .drain(at + 1..)
        .map(|s| match s.step {
            Step::Destroy(p) => Planned { step: Step::Drop(p), end: begin },
            _ => s,
        })
        .collect();
    steps[at].end = end;
    steps.splice(at..at, dropped);
}
