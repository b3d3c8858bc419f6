//! The search: run, learn from where the run left the recording, go back, run on.

use super::super::size::MIN_BLOCK;
use super::facts::Facts;
use super::groups::{Conflict, During};
use super::labels::{Evidence, Numbers, solve};
use super::lots::{NO_LOT, OUTSIDE};
use super::oracle::Got;
use super::regions::{Regions, Step};
use super::run::Run;
use super::shape::{Shape, group_at};
use poolsim_core::device::DeviceCaps;
use poolsim_core::heap::{BlockState, HeapImage};
use poolsim_core::policy::Policy;
use poolsim_core::recording::Action;
use poolsim_core::units::{Bytes, DevAddr, PoolId};
use std::collections::{BTreeMap, BTreeSet};

/// Conflicts after which the search gives up: some for each lot, and some more.
const ROUNDS_PER_LOT: usize = 4;
const MORE_ROUNDS: usize = 256;

/// A search in progress.
pub(super) struct Search<'a> {
    pub facts: &'a Facts<'a>,
    pub run: Run<'a>,
    pub evidence: Evidence,
    numbers: Numbers,
    regions: Regions,
    /// Pools that a refused request was found not to have asked, by entry.
    not_asked: BTreeMap<u32, BTreeSet<PoolId>>,
    /// Frees that were found not to have been completed by the request that follows.
    not_waited: BTreeSet<u32>,
    /// What was learned changes the start.
    restart: bool,
    pub rounds: usize,
}

impl<'a> Search<'a> {
    /// A search at its start. `None` if the facts alone contradict each other.
    pub fn new(facts: &'a Facts<'a>, caps: &DeviceCaps) -> Option<Search<'a>> {
        let mut evidence = Evidence { differ: reservations_apart(facts), ..Evidence::default() };
        let mut numbers = Numbers::default();
        let regions = Regions::of(facts);
        let labels = solve(facts, &regions, &mut evidence, &mut numbers)?;
        let run = Run::new(facts, caps, labels);
        Some(Search {
            facts,
            run,
            evidence,
            numbers,
            regions,
            not_asked: BTreeMap::new(),
            not_waited: BTreeSet::new(),
            restart: false,
            rounds: 0,
        })
    }

    /// Runs to the end of the recording, or to a group that nothing explains.
    pub fn go(&mut self) -> Result<(), Conflict> {
        let most = MORE_ROUNDS + ROUNDS_PER_LOT * self.facts.lots.len();
        loop {
            let Err(conflict) = self.run.advance() else { return Ok(()) };
            self.rounds += 1;
            let learned = if self.rounds > most { None } else { self.learn(&conflict) };
            let Some(entry) = learned else { return Err(conflict) };
            let labels = solve(self.facts, &self.regions, &mut self.evidence, &mut self.numbers);
            let Some(labels) = labels else { return Err(conflict) };
            let changed = labels.first_change(&self.run.labels, self.facts);
            let entry = changed.map_or(entry, |c| entry.min(c as usize));
            self.run.go_back(entry, Some(labels));
        }
    }

    /// Takes a group of private lots to lend blocks to the default pool, which asked in `requests`; if everything is
    /// explained that way too, it stays so.
    pub fn try_lending(&mut self, group: u32, requests: &[u32]) {
        let before = (self.evidence.clone(), self.run.choices.clone());
        self.evidence.use_on_oom.insert(group);
        self.run.choices.lent.extend(requests);
        if self.again().is_err() {
            (self.evidence, self.run.choices) = before;
            self.again().expect("what explained everything before still does");
        }
    }

    /// Runs once more from the start, without learning anything.
    fn again(&mut self) -> Result<(), Conflict> {
        let labels = solve(self.facts, &self.regions, &mut self.evidence, &mut self.numbers);
        let labels = labels.expect("evidence that was enough before is enough");
        self.run.go_back(0, Some(labels));
        self.run.advance()
    }

    /// Draws a conclusion from a conflict. The entry to go back to (beside changes of labels), or `None` if there is
    /// nothing more to learn.
    fn learn(&mut self, c: &Conflict) -> Option<usize> {
        if let Some(region) = c.region.filter(|r| self.run.choices.not_own.contains(r))
            && self.facts.releases_in_part()
            && self.evidence.not_own.insert(region)
        {
            return Some(c.begin);
        }
        let new = match c.during {
            During::Step(Step::Empty) => self.learn_from_empty_cache(c),
            During::Step(Step::Destroy(_) | Step::Drop(_)) => self.learn_from_destroyed_pool(c),
            During::Request { pool, lot } => self.learn_from_request(c, pool, lot),
        };
        new.then_some(c.begin.saturating_sub(2))
    }

    /// A request was found to hit what the free before it gave back: then that free waited for other streams, and the
    /// request's own wait completed it, too late for the lookup.
    fn waited_for(&mut self, c: &Conflict, got: Got) -> bool {
        let Some(free) = c.begin.checked_sub(2) else { return false };
        let entries = &self.facts.rec.entries;
        let pair = group_at(entries, free) == (Shape::Free, c.begin);
        let releases = c.region.is_some() || entries[c.last].action == Action::Oom;
        pair && releases
            && self.facts.defers
            && got.action == Action::Alloc
            && self.lot_at(got.addr, c.mismatch.entry) == Some(self.facts.lot[free])
            && !self.not_waited.contains(&(free as u32))
            && self.run.choices.waited.insert(free as u32)
    }

    fn learn_from_empty_cache(&mut self, c: &Conflict) -> bool {
        if let Some(got) = c.mismatch.got
            && matches!(got.action, Action::SegmentFree | Action::SegmentUnmap)
            && let Some(lot) = self.lot_at(got.addr, c.mismatch.entry)
            && (self.out_of_order(c, lot) || self.make_private(lot, c.region))
        {
            return true;
        }
        c.region.is_some_and(|r| self.evidence.no_empty_cache.insert(r))
    }

    /// Two pools whose owners are gone were released in another order.
    fn out_of_order(&mut self, c: &Conflict, lot: u32) -> bool {
        // The allocator may go on where the recording has ended.
        let wanted = self.facts.lot.get(c.mismatch.entry as usize).copied().unwrap_or(NO_LOT);
        let labels = &self.run.labels;
        wanted != NO_LOT
            && labels.pool[lot as usize].is_private()
            && labels.pool[wanted as usize].is_private()
            && self.numbers.release_before(labels.pool[wanted as usize], labels.pool[lot as usize])
    }

    fn learn_from_destroyed_pool(&mut self, c: &Conflict) -> bool {
        let shown = |i: usize| {
            let e = &self.facts.rec.entries[i];
            matches!(e.action, Action::SegmentFree | Action::SegmentUnmap)
        };
        let Some(first) = (c.step_begin..=c.last).find(|&i| shown(i)) else { return false };
        let first = self.facts.lot[first];
        let odd = match c.mismatch.got {
            Some(got) => self.lot_at(got.addr, c.mismatch.entry),
            None => self.facts.lot.get(c.mismatch.entry as usize).copied(),
        };
        match odd.filter(|&l| l != NO_LOT && l != first) {
            Some(lot) => self.evidence.differ(lot, first),
            None => false,
        }
    }

    fn learn_from_request(&mut self, c: &Conflict, pool: PoolId, lot: u32) -> bool {
        let entries = &self.facts.rec.entries;
        let wanted = entries.get(c.mismatch.entry as usize).map(|e| e.action);
        let refused = entries[c.last].action == Action::Oom;
        let Some(got) = c.mismatch.got else { return false };
        if self.waited_for(c, got) {
            return true;
        }
        let free = c.begin.saturating_sub(1) as u32;
        if self.run.choices.waited.remove(&free) {
            self.not_waited.insert(free);
            return true;
        }
        if refused {
            return self.ask_elsewhere(c.last as u32, pool);
        }
        if lot == NO_LOT {
            return false;
        }
        if self.gap_is_shorter(c, got) {
            self.restart = true;
            return true;
        }
        if self.released_its_own(c, lot) {
            return true;
        }
        // A private request neither completes frees nor releases the default pool.
        let released = matches!(
            wanted,
            Some(Action::FreeCompleted | Action::SegmentFree | Action::SegmentUnmap)
        );
        if pool.is_private() && released && self.make_default(lot) {
            return true;
        }
        let other = self.lot_at(got.addr, c.mismatch.entry);
        match (got.action, other) {
            (Action::Alloc | Action::SegmentMap, Some(other)) => self.apart(lot, other, got.addr),
            (Action::SegmentFree | Action::SegmentUnmap, Some(other)) if !pool.is_private() => {
                self.make_private(other, c.region)
            }
            _ => false,
        }
    }

    /// A lookup hit a gap of the start that it should have passed by: the gap is shorter, because the block before it, whose
    /// length was not to be seen, is longer.
    fn gap_is_shorter(&mut self, c: &Conflict, got: Got) -> bool {
        let slack = &self.run.choices.slack;
        let extra = |i: usize| slack.get(&i).copied().unwrap_or(0);
        let start = &self.facts.start;
        let before = start.blocks.partition_point(|b| b.addr < got.addr).checked_sub(1);
        let Some(i) = before.filter(|_| got.action == Action::Alloc) else { return false };
        let b = start.blocks[i];
        if b.slack == 0 || b.addr + b.size + extra(i) != got.addr {
            return false;
        }
        let Some(gap) = self.gap_at(got.addr) else { return false };
        let wanted = self.facts.rounded(self.facts.rec.entries[c.last].size);
        let more = extra(i) + (gap + MIN_BLOCK).saturating_sub(wanted);
        let fits = more > extra(i) && more <= b.slack;
        if fits {
            self.run.choices.slack.insert(i, more);
        }
        fits
    }

    /// How long the free block was from which the block at an address was just taken.
    fn gap_at(&self, addr: DevAddr) -> Option<Bytes> {
        let mut heap = HeapImage::default();
        self.run.state.policy.visit(&mut heap);
        let (_, blocks) =
            heap.ranges.iter().find(|(r, _)| (r.addr..r.addr + r.size).contains(&addr))?;
        let i = blocks.iter().position(|b| b.addr == addr)?;
        let rest = blocks.get(i + 1).filter(|b| b.state == BlockState::Free);
        Some(blocks[i].size + rest.map_or(0, |b| b.size))
    }

    /// A request for an oversize block released private oversize memory: then it asked that pool.
    fn released_its_own(&mut self, c: &Conflict, lot: u32) -> bool {
        let Some(most) = self.facts.config.max_split_size else { return false };
        let wanted = c.mismatch.entry as usize;
        let Some(e) = self.facts.rec.entries.get(wanted) else { return false };
        let released = self.facts.lot[wanted];
        let fits = e.action == Action::SegmentFree
            && e.size >= most
            && e.stream == self.facts.rec.entries[c.last].stream
            && released != NO_LOT;
        let pool = |l: u32| self.run.labels.pool[l as usize];
        if !fits || !pool(released).is_private() || pool(released) == pool(lot) {
            return false;
        }
        let open = self.facts.lots[lot as usize].known.is_none()
            && !self.evidence.default.contains(&lot)
            && !self.evidence.differ.contains(&(lot.min(released), lot.max(released)));
        if !open || !self.evidence.same.insert((lot, released)) {
            return false;
        }
        self.evidence.chosen.insert(lot);
        true
    }

    /// Two lots of one label where a lookup shows that they are in different pools, or that the pool never splits.
    fn apart(&mut self, lot: u32, other: u32, hit: DevAddr) -> bool {
        let labels = &self.run.labels;
        let group = labels.group[lot as usize];
        let one_group = labels.group[other as usize] == group;
        let private = labels.pool[lot as usize].is_private();
        let remainder = hit != self.facts.lots[other as usize].base;
        if private && one_group && remainder && self.never_splits(group) {
            return self.evidence.no_split.insert(group);
        }
        lot != other && self.evidence.differ(lot, other)
    }

    /// Whether every block of a group is the first and only one of its segment at its time.
    fn never_splits(&self, group: u32) -> bool {
        let lots = self.facts.lots.iter().zip(&self.run.labels.group);
        lots.filter(|&(_, &g)| g == group).all(|(lot, _)| lot.whole)
    }

    /// A release that should have taken the lot did not.
    fn make_private(&mut self, lot: u32, region: Option<u32>) -> bool {
        let open = self.facts.lots[lot as usize].known.is_none()
            && !self.evidence.default.contains(&lot)
            && !self.evidence.private.contains_key(&lot);
        open && self.evidence.private.insert(lot, region).is_none()
    }

    /// The lot served a request that only the default pool can have got. If the reading of a region said otherwise, that
    /// was no release of everything, and all that was concluded from it goes.
    fn make_default(&mut self, lot: u32) -> bool {
        if self.facts.lots[lot as usize].known.is_some() {
            return false;
        }
        match self.evidence.private.get(&lot).copied() {
            Some(None) => return false,
            Some(Some(region)) => {
                self.evidence.private.retain(|_, r| *r != Some(region));
                self.evidence.no_empty_cache.insert(region);
            }
            None => {}
        }
        self.evidence.chosen.remove(&lot);
        self.evidence.default.insert(lot)
    }

    /// A refused request did not ask `pool`. It asked one of those that its neighbours in time asked, the nearest first.
    fn ask_elsewhere(&mut self, entry: u32, pool: PoolId) -> bool {
        let not = self.not_asked.entry(entry).or_default();
        not.insert(pool);
        let entries = &self.facts.rec.entries;
        let stream = entries[entry as usize].stream;
        let near = |i: &usize| {
            let e = &entries[*i];
            e.action == Action::Alloc && e.stream == stream
        };
        let at = entry as usize;
        const REACH: usize = 4096;
        let before = (at.saturating_sub(REACH)..at).rev().filter(near);
        let after = (at + 1..entries.len().min(at + REACH)).filter(near);
        let mut candidates = Vec::new();
        for i in before.take(64).chain(after.take(64)) {
            let lot = self.facts.lot[i];
            if lot != NO_LOT {
                candidates.push((i.abs_diff(at), self.run.labels.pool[lot as usize]));
            }
        }
        candidates.sort_by_key(|c| c.0);
        let known = candidates.into_iter().map(|c| c.1).find(|p| !not.contains(p));
        let chosen = known.or_else(|| {
            // A pool of its own: nothing is in it.
            let own = self.numbers.of_request()?;
            (!not.contains(&own)).then_some(own)
        });
        if let Some(p) = chosen {
            self.run.choices.refused.insert(entry, p);
        }
        chosen.is_some()
    }

    /// The lot that lives at an address at the time of an entry.
    fn lot_at(&self, addr: DevAddr, entry: u32) -> Option<u32> {
        let lives = |l: &super::lots::Lot| {
            (l.at_start() || l.born <= entry)
                && (l.died == OUTSIDE || l.died >= entry)
                && (l.base..l.end).contains(&addr)
        };
        self.facts.lots.iter().rposition(lives).map(|i| i as u32)
    }
}

/// Reservations of one stream and class that live at the same time are in different pools.
fn reservations_apart(facts: &Facts) -> BTreeSet<(u32, u32)> {
    let mut apart = BTreeSet::new();
    let mut living: Vec<u32> = Vec::new();
    let born = |l: u32| facts.lots[l as usize].born.wrapping_add(1);
    let mut by_birth: Vec<u32> =
        (0..facts.lots.len() as u32).filter(|&l| facts.lots[l as usize].expandable).collect();
    by_birth.sort_by_key(|&l| born(l));
    for id in by_birth {
        let lot = &facts.lots[id as usize];
        living
            .retain(|&o| facts.lots[o as usize].died >= if lot.at_start() { 0 } else { lot.born });
        for &other in &living {
            let o = &facts.lots[other as usize];
            if o.stream == lot.stream && o.small == lot.small {
                apart.insert((other.min(id), other.max(id)));
            }
        }
        living.push(id);
    }
    apart
}
