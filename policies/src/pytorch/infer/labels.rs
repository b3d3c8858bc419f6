//! Which pool each lot belongs to.
//!
//! PyTorch 2.11 does not record pools. What does tell: the final heap names the pool of what it still holds; a release of
//! everything takes all idle segments of the default pool and nothing of a private one in use; a lookup never
//! passes by a better block of its own pool. Conflicts that runs of the allocator find add evidence here; labels
//! follow from the evidence alone, so the search is deterministic and ends.

use super::facts::Facts;
use super::lots::{NO_LOT, OUTSIDE};
use super::regions::{Piece, Regions};
use poolsim_core::event::PoolFlags;
use poolsim_core::units::PoolId;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of lots beside the recording's own words.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    /// Lots that belong to the default pool for certain.
    pub default: BTreeSet<u32>,
    /// Lots that belong to a private pool, with the region whose reading says so, if one does.
    pub private: BTreeMap<u32, Option<u32>>,
    /// Pairs of lots in different pools.
    pub differ: BTreeSet<(u32, u32)>,
    /// Pairs of lots in one pool.
    pub same: BTreeSet<(u32, u32)>,
    /// Regions in which nothing is released but by destroyed pools and by the request that follows.
    pub no_empty_cache: BTreeSet<u32>,
    /// Regions that the request behind them had no need of.
    pub not_own: BTreeSet<u32>,
    /// Groups (by their first lot) whose blocks are never split.
    pub no_split: BTreeSet<u32>,
    /// Groups (by their first lot) that lend blocks to the default pool.
    pub use_on_oom: BTreeSet<u32>,
    /// Lots that were chosen to be private where one of two must be.
    pub chosen: BTreeSet<u32>,
}

impl Evidence {
    /// Notes that two lots are in different pools; false if that is known.
    pub fn differ(&mut self, a: u32, b: u32) -> bool {
        self.differ.insert((a.min(b), a.max(b)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Unknown,
    Default,
    Private,
}

/// The labels that follow from facts and evidence.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels {
    /// Pool by lot.
    pub pool: Vec<PoolId>,
    /// First lot of the group that a private lot belongs to, itself for others.
    pub group: Vec<u32>,
    /// Properties of pools, by pool.
    pub flags: Vec<PoolFlags>,
    /// Where each private pool's id comes from: the pool of the final heap that it is or was split from.
    pub known_as: Vec<Option<PoolId>>,
    /// Lots whose side was a guess.
    pub guessed: BTreeSet<u32>,
}

/// What a pool is told apart by: the group of lots and the colour in it; or a pool of the final heap.
pub(super) type PoolKey = (u32, u32);

/// Gives stable numbers to pools, over all rounds of the search.
///
/// A release of everything goes through the pools whose owners are gone in an order that PyTorch takes from a hash
/// table, and the allocator here in order of their numbers; so the numbers follow the order that was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    /// Keys of pools 1, 2, …
    keys: Vec<PoolKey>,
    by_key: BTreeMap<PoolKey, u16>,
    /// Pools that were seen to be released one before the other.
    before: BTreeSet<(PoolKey, PoolKey)>,
}

const KNOWN: u32 = 1 << 31;
const REFUSED: u32 = u32::MAX;

impl Numbers {
    /// The number of a pool; `None` if there are no numbers left.
    fn of(&mut self, key: PoolKey) -> Option<u16> {
        if let Some(&n) = self.by_key.get(&key) {
            return Some(n);
        }
        if self.keys.len() >= usize::from(poolsim_core::Event::MAX_POOL) {
            return None;
        }
        self.keys.push(key);
        let n = self.keys.len() as u16;
        self.by_key.insert(key, n);
        Some(n)
    }

    /// A pool of which nothing is known but that refused requests asked it. All such requests share one.
    pub fn of_request(&mut self) -> Option<PoolId> {
        self.of((REFUSED, 0)).map(PoolId)
    }

    /// Number of pools so far, the default one included.
    pub fn count(&self) -> usize {
        self.keys.len() + 1
    }

    /// Notes that `first` is released before `second`, and numbers all pools anew; false if that was known, or cannot be.
    pub fn release_before(&mut self, first: PoolId, second: PoolId) -> bool {
        let key = |p: PoolId| p.index().checked_sub(1).and_then(|i| self.keys.get(i)).copied();
        let (Some(a), Some(b)) = (key(first), key(second)) else { return false };
        if a == b || !self.before.insert((a, b)) {
            return false;
        }
        let Some(sorted) = self.sorted() else {
            self.before.remove(&(a, b));
            return false;
        };
        self.by_key = sorted.iter().zip(1..).map(|(&k, n)| (k, n)).collect();
        self.keys = sorted;
        true
    }

    /// The keys in an order that respects what was seen, and the present one otherwise; `None` if that is a circle.
    fn sorted(&self) -> Option<Vec<PoolKey>> {
        let mut rest = self.keys.clone();
        let mut sorted = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            let free = |k: &PoolKey| !rest.iter().any(|&o| self.before.contains(&(o, *k)));
            let i = rest.iter().position(free)?;
            sorted.push(rest.remove(i));
        }
        Some(sorted)
    }
}

/// Labels every lot. `None` if the evidence contradicts itself or there are more pools than numbers.
pub(super) fn solve(
    facts: &Facts,
    regions: &Regions,
    evidence: &mut Evidence,
    numbers: &mut Numbers,
) -> Option<Labels> {
    loop {
        let sure = sure_sides(facts, evidence)?;
        let mut firm = sure.clone();
        for &lot in &evidence.chosen {
            if firm[lot as usize] == Side::Unknown {
                firm[lot as usize] = Side::Private;
            }
        }
        spread(evidence, &mut firm);
        let mut sides = firm.clone();
        let pieces = regions.read(facts, evidence, &mut sides);
        spread(evidence, &mut sides);
        if unsettled(evidence, &sides).is_empty() {
            let mut groups = Groups::new(facts.lots.len());
            join(facts, evidence, &sides, &pieces, &mut groups);
            let mut labels = number(facts, evidence, &sides, &mut groups, numbers)?;
            labels.guessed = (0..facts.lots.len() as u32)
                .filter(|&l| {
                    sides[l as usize] == Side::Private && sure[l as usize] == Side::Unknown
                })
                .collect();
            return Some(labels);
        }
        let lot = choose(facts, regions, evidence, &sides, &firm)?;
        if !evidence.chosen.insert(lot) {
            return None;
        }
    }
}

/// Pairs of lots in different pools of which neither is private.
fn unsettled(evidence: &Evidence, sides: &[Side]) -> Vec<(u32, u32)> {
    let open = |l: u32| sides[l as usize] != Side::Private;
    evidence.differ.iter().copied().filter(|&(a, b)| open(a) && open(b)).collect()
}

/// Of two lots in different pools at least one is private: the one that makes the regions least complicated, for the
/// most pairs that it settles; then the younger one.
fn choose(
    facts: &Facts,
    regions: &Regions,
    evidence: &Evidence,
    sides: &[Side],
    firm: &[Side],
) -> Option<u32> {
    let open = |l: u32| firm[l as usize] == Side::Unknown;
    let leaning = |l: u32| {
        let lot = &facts.lots[l as usize];
        lot.known.is_none() && lot.completes && !evidence.default.contains(&l)
    };
    let mut settles: BTreeMap<u32, u64> = BTreeMap::new();
    for (a, b) in unsettled(evidence, sides) {
        // That a lot's requests completed frees is strong, but weaker than what is known for certain.
        let any = open(a) || open(b);
        for l in [a, b].into_iter().filter(|&l| open(l) || (!any && leaning(l))) {
            *settles.entry(l).or_default() += 1;
        }
    }
    let born = |l: u32| facts.lots[l as usize].born.wrapping_add(1);
    settles
        .into_iter()
        .map(|(l, pairs)| {
            let strain = regions.strain(facts, evidence, sides, firm, l);
            ((strain + 1) * 1000 / pairs, std::cmp::Reverse(born(l)), l)
        })
        .min()
        .map(|c| c.2)
}

fn sure_sides(facts: &Facts, evidence: &Evidence) -> Option<Vec<Side>> {
    let mut sides = vec![Side::Unknown; facts.lots.len()];
    for (i, lot) in facts.lots.iter().enumerate() {
        let id = i as u32;
        sides[i] = match lot.known {
            Some(pool) if pool.is_private() => Side::Private,
            Some(_) => Side::Default,
            None => match (evidence.default.contains(&id), evidence.private.contains_key(&id)) {
                (true, true) => return None,
                (true, false) => Side::Default,
                (false, true) => Side::Private,
                (false, false) if lot.completes && !evidence.chosen.contains(&id) => Side::Default,
                (false, false) => Side::Unknown,
            },
        };
    }
    Some(sides)
}

/// A lot that differs from a default one is private.
fn spread(evidence: &Evidence, sides: &mut [Side]) {
    for &(a, b) in &evidence.differ {
        for (x, y) in [(a, b), (b, a)] {
            if sides[x as usize] == Side::Default && sides[y as usize] == Side::Unknown {
                sides[y as usize] = Side::Private;
            }
        }
    }
}

/// Lots joined into groups.
struct Groups(Vec<u32>);

impl Groups {
    fn new(n: usize) -> Groups {
        Groups((0..n as u32).collect())
    }

    fn root(&mut self, mut lot: u32) -> u32 {
        while self.0[lot as usize] != lot {
            self.0[lot as usize] = self.0[self.0[lot as usize] as usize];
            lot = self.0[lot as usize];
        }
        lot
    }

    /// The smaller number leads, so that a group's name does not depend on the order of joins.
    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a.max(b) as usize] = a.min(b);
    }
}

fn join(facts: &Facts, evidence: &Evidence, sides: &[Side], pieces: &[Piece], groups: &mut Groups) {
    let private = |l: u32| l != NO_LOT && sides[l as usize] == Side::Private;
    let mut by_pool: BTreeMap<PoolId, u32> = BTreeMap::new();
    for (i, lot) in facts.lots.iter().enumerate() {
        if let Some(pool) = lot.known.filter(|p| p.is_private()) {
            let first = *by_pool.entry(pool).or_insert(i as u32);
            groups.join(first, i as u32);
        }
    }
    for piece in pieces.iter().filter(|p| p.destroys) {
        let lots = &facts.regions[piece.region as usize].released[piece.first..piece.end];
        for pair in lots.windows(2).filter(|p| private(p[0]) && private(p[1])) {
            if facts.lots[pair[0] as usize].known.is_none()
                || facts.lots[pair[1] as usize].known.is_none()
            {
                groups.join(pair[0], pair[1]);
            }
        }
    }
    for &(a, b) in evidence.same.iter().filter(|&&(a, b)| private(a) && private(b)) {
        groups.join(a, b);
    }
}

/// Numbers the groups. Lots of one group that are known to differ get different pools.
fn number(
    facts: &Facts,
    evidence: &Evidence,
    sides: &[Side],
    groups: &mut Groups,
    numbers: &mut Numbers,
) -> Option<Labels> {
    let n = facts.lots.len();
    let mut known: BTreeMap<u32, PoolId> = BTreeMap::new();
    for (i, lot) in facts.lots.iter().enumerate() {
        if let Some(pool) = lot.known.filter(|p| p.is_private()) {
            known.entry(groups.root(i as u32)).or_insert(pool);
        }
    }
    let mut apart: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for &(a, b) in &evidence.differ {
        if groups.root(a) == groups.root(b) {
            apart.entry(a.max(b)).or_default().push(a.min(b));
        }
    }
    let mut labels = Labels { pool: vec![PoolId::DEFAULT; n], ..Labels::default() };
    labels.group = (0..n as u32).map(|l| groups.root(l)).collect();
    let mut colours = vec![0u32; n];
    for lot in 0..n as u32 {
        if sides[lot as usize] != Side::Private {
            continue;
        }
        let root = groups.root(lot);
        let taken: Vec<u32> = apart
            .get(&lot)
            .map(|others| others.iter().map(|&o| colours[o as usize]).collect())
            .unwrap_or_default();
        let no_split = evidence.no_split.contains(&root);
        let colour =
            if no_split { 0 } else { (0..).find(|c| !taken.contains(c)).expect("endless") };
        colours[lot as usize] = colour;
        let pool = known.get(&root).copied();
        let base = pool.map_or(root, |p| u32::from(p.0) | KNOWN);
        let number = numbers.of((base, colour))?;
        labels.pool[lot as usize] = PoolId(number);
        let size = labels.flags.len().max(usize::from(number) + 1);
        labels.flags.resize(size, PoolFlags::default());
        labels.known_as.resize(size, None);
        let use_on_oom = evidence.use_on_oom.contains(&root);
        labels.flags[usize::from(number)] = PoolFlags { no_split, use_on_oom };
        labels.known_as[usize::from(number)] = pool;
    }
    labels.flags.resize(numbers.count(), PoolFlags::default());
    labels.known_as.resize(numbers.count(), None);
    Some(labels)
}

impl Labels {
    /// The first entry at which two labellings differ, or `None` if they do not.
    pub fn first_change(&self, other: &Labels, facts: &Facts) -> Option<u32> {
        let pools = self.pool.iter().zip(&other.pool).enumerate();
        let mut first = OUTSIDE;
        let mut changed = false;
        for (i, (a, b)) in pools {
            let flags = |l: &Labels, p: PoolId| l.flags.get(p.index()).copied();
            if a == b && flags(self, *a) == flags(other, *b) {
                continue;
            }
            changed = true;
            let lot = &facts.lots[i];
            first = first.min(if lot.at_start() { 0 } else { lot.born });
        }
        changed.then_some(first)
    }
}
