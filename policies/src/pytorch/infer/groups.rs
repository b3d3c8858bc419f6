//! One group of entries: which hypothesis about hidden causes makes exactly these entries.

use super::super::size::segment_size;
use super::facts::Region;
use super::lots::NO_LOT;
use super::oracle::Mismatch;
use super::regions::{self, Planned, Step};
use super::run::Run;
use super::shape::Shape;
use poolsim_core::policy::Policy;
use poolsim_core::recording::{Action, Entry};
use poolsim_core::stack::StackId;
use poolsim_core::units::PoolId;

/// What was being done when a run left the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum During {
    /// A step outside any request.
    Step(Step),
    /// A request to a pool; the lot that its block lies in, if it was granted.
    Request { pool: PoolId, lot: u32 },
}

/// A group that no hypothesis explains, with the difference of the one that came furthest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conflict {
    /// First and last entry of the group.
    pub begin: usize,
    pub last: usize,
    pub mismatch: Mismatch,
    pub during: During,
    /// First entry of the step or request that failed.
    pub step_begin: usize,
    /// Index of the group's region, if it has one.
    pub region: Option<u32>,
}

/// Hidden causes of one group.
#[derive(Clone, Debug, Default)]
struct Hypothesis {
    /// What happened before the request.
    steps: Vec<Planned>,
    /// How many of the completions that come next the request notices at its start; the others come from its wait.
    noticed: usize,
}

/// How an attempt went.
enum Tried {
    Fits,
    /// It fits, but needs a driver that failed for no visible reason.
    FitsOddly,
}

fn releases(e: &Entry) -> bool {
    matches!(e.action, Action::SegmentFree | Action::SegmentUnmap)
}

impl<'a> Run<'a> {
    /// Runs a request or a loose stretch of releases.
    #[inline]
    pub(super) fn group(&mut self, at: usize, end: usize, shape: Shape) -> Result<(), Conflict> {
        if shape == Shape::Loose || self.several_causes(at, end) {
            return self.complex(at, end, shape);
        }
        let mut i = at;
        while self.facts.rec.entries[i].action == Action::FreeCompleted {
            self.complete(i);
            i += 1;
        }
        let pool = self.pool_of_request(end - 1);
        if i < end - 1 {
            self.place_reservation(at, end);
        }
        self.request(at, end - 1, pool)
            .map_err(|mismatch| self.conflict(at, end, mismatch, at, None))
    }

    /// Whether more than the request itself may have made its entries.
    #[inline]
    fn several_causes(&self, at: usize, end: usize) -> bool {
        if end - at == 1 {
            return false;
        }
        let entries = &self.facts.rec.entries[at..end];
        if entries.iter().any(releases) {
            return true;
        }
        // A refused request waits for pending frees; a private one completes none, so something else did.
        entries[0].action == Action::FreeCompleted
            && (entries[entries.len() - 1].action == Action::Oom
                || self.pool_of_request(end - 1).is_private())
    }

    /// The pool that the request ending at entry `last` is taken to ask.
    #[inline]
    pub(super) fn pool_of_request(&self, last: usize) -> PoolId {
        if self.facts.rec.entries[last].action == Action::Oom {
            return self.choices.refused.get(&(last as u32)).copied().unwrap_or_default();
        }
        if !self.choices.lent.is_empty() && self.choices.lent.contains(&(last as u32)) {
            return PoolId::DEFAULT;
        }
        self.pool_of(last)
    }

    /// If a reservation is born in the group, the next one is to lie there.
    fn place_reservation(&mut self, at: usize, end: usize) {
        let born = |i: &usize| {
            let lot = self.facts.lot[*i];
            self.facts.rec.entries[*i].action == Action::SegmentMap
                && lot != NO_LOT
                && self.facts.lots[lot as usize].born == *i as u32
        };
        let base = (at..end).find(born).map(|i| self.facts.rec.entries[i].addr);
        self.state.dev.paged_base = base;
    }

    fn conflict(
        &self,
        at: usize,
        end: usize,
        mismatch: Mismatch,
        step_begin: usize,
        step: Option<Step>,
    ) -> Conflict {
        let last = end - 1;
        let during = match step {
            Some(step) => During::Step(step),
            None => During::Request { pool: self.pool_of_request(last), lot: self.facts.lot[last] },
        };
        let region = self.region_at(at, end);
        Conflict { begin: at, last, mismatch, during, step_begin, region }
    }

    /// The region that lies in a group.
    fn region_at(&self, at: usize, end: usize) -> Option<u32> {
        let i = self.facts.regions.partition_point(|r| (r.end as usize) <= at);
        let inside = self.facts.regions.get(i).is_some_and(|r| (r.begin as usize) < end);
        inside.then_some(i as u32)
    }

    #[cold]
    fn complex(&mut self, at: usize, end: usize, shape: Shape) -> Result<(), Conflict> {
        let region = self.region_at(at, end).map(|i| &self.facts.regions[i as usize]);
        let hypotheses = self.hypotheses(at, end, shape, region);
        let before = self.save();
        let mut odd = None;
        let mut furthest: Option<Conflict> = None;
        for (i, h) in hypotheses.iter().enumerate() {
            match self.attempt(h, at, end, shape) {
                Ok(Tried::Fits) => return Ok(()),
                Ok(Tried::FitsOddly) => odd = odd.or(Some(i)),
                Err(c) => {
                    if furthest.is_none_or(|f| c.mismatch.entry > f.mismatch.entry) {
                        furthest = Some(c);
                    }
                }
            }
            self.restore(before.clone());
        }
        match odd {
            Some(i) => self.attempt(&hypotheses[i], at, end, shape).map(|_| ()),
            None => Err(furthest.expect("there is at least one hypothesis")),
        }
    }

    /// The causes to try, the likeliest first.
    fn hypotheses(
        &self,
        at: usize,
        end: usize,
        shape: Shape,
        region: Option<&Region>,
    ) -> Vec<Hypothesis> {
        let gone = &self.state.gone;
        let steps = region.map_or(Vec::new(), |r| regions::plan(self.facts, r, &self.labels, gone));
        if shape == Shape::Loose {
            return self.loose(at, end, steps);
        }
        let own = self.own(at, end);
        if steps.is_empty() {
            return own.into_iter().chain(self.waited_before(at)).collect();
        }
        let noticed = self.completions(steps.last().map_or(at, |s| s.end as usize));
        let apart = Hypothesis { steps: steps.clone(), noticed };
        let mut all = Vec::new();
        if self.own_first(at, end) {
            all.extend(own.first().cloned());
            all.push(apart);
            all.extend(own.into_iter().skip(1));
        } else {
            all.push(apart);
            all.extend(own);
        }
        all.extend(self.mixed(&steps));
        all
    }

    /// Something that released nothing waited for the completions before the request.
    fn waited_before(&self, at: usize) -> Vec<Hypothesis> {
        let end = (at + self.completions(at)) as u32;
        let mut causes = vec![Step::Empty];
        let pool = self.pool_of(at);
        if pool.is_private() {
            causes.push(Step::Destroy(pool));
        }
        causes
            .into_iter()
            .map(|step| Hypothesis { steps: vec![Planned { step, end }], noticed: 0 })
            .collect()
    }

    /// No request follows.
    fn loose(&self, at: usize, end: usize, mut steps: Vec<Planned>) -> Vec<Hypothesis> {
        let done = steps.last().map_or(at, |s| s.end as usize);
        if done == end {
            return vec![Hypothesis { steps, noticed: 0 }];
        }
        let stop = end as u32;
        let pool = self.pool_of(done);
        let mut all = Vec::new();
        if pool.is_private() {
            let mut with = steps.clone();
            with.push(Planned { step: Step::Destroy(pool), end: stop });
            all.push(Hypothesis { steps: with, noticed: 0 });
        }
        steps.push(Planned { step: Step::Empty, end: stop });
        all.insert(0, Hypothesis { steps, noticed: 0 });
        all
    }

    /// The request did it all: with every completion noticed at its start, or only some of them.
    fn own(&self, at: usize, end: usize) -> Vec<Hypothesis> {
        let noticed = self.completions(at);
        let all = self.facts.rec.entries[at..end]
            .iter()
            .filter(|e| e.action == Action::FreeCompleted)
            .count();
        // A wait leaves nothing pending.
        let waited = all == self.state.dev.waiting();
        let fewest = if waited { 0 } else { noticed };
        let mut own: Vec<Hypothesis> = (fewest..=noticed)
            .rev()
            .map(|n| Hypothesis { steps: Vec::new(), noticed: n })
            .collect();
        if let Some(drops) = self.dropped_before(at, end) {
            let steps = drops;
            own.push(Hypothesis { steps, noticed });
        }
        own
    }

    /// Private memory behind default memory in one region: its owner went before the request.
    fn dropped_before(&self, at: usize, end: usize) -> Option<Vec<Planned>> {
        let mut drops: Vec<Planned> = Vec::new();
        for i in (at..end).filter(|&i| releases(&self.facts.rec.entries[i])) {
            let pool = self.pool_of(i);
            let step = Step::Drop(pool);
            let known = self.state.gone.contains(&pool) || drops.iter().any(|d| d.step == step);
            if pool.is_private() && !known {
                drops.push(Planned { step, end: at as u32 });
            }
        }
        (!drops.is_empty()).then_some(drops)
    }

    /// Destroyed pools first, the rest by the request.
    fn mixed(&self, steps: &[Planned]) -> Vec<Hypothesis> {
        let destroys = steps.iter().take_while(|s| matches!(s.step, Step::Destroy(_))).count();
        (1..=destroys.min(steps.len().saturating_sub(1)))
            .rev()
            .map(|n| Hypothesis {
                steps: steps[..n].to_vec(),
                noticed: self.completions(steps[n - 1].end as usize),
            })
            .collect()
    }

    /// Number of completions from an entry on.
    fn completions(&self, at: usize) -> usize {
        let rest = &self.facts.rec.entries[at..];
        rest.iter().take_while(|e| e.action == Action::FreeCompleted).count()
    }

    /// Whether the request is likelier to have released the memory itself than the program.
    fn own_first(&self, at: usize, end: usize) -> bool {
        let entries = &self.facts.rec.entries[at..end];
        let stack = entries.iter().find(|e| releases(e)).map_or(StackId::NONE, |e| e.stack);
        let last = entries[entries.len() - 1].stack;
        if stack != StackId::NONE && last != StackId::NONE {
            return stack == last;
        }
        self.state.policy.limit().is_some()
            || self.facts.config.max_split_size.is_some()
            || self.pressed(end - 1)
    }

    /// Whether granting the request would have taken the process to where it never got: then
    /// the device, or a limit that is not known, may well have refused.
    fn pressed(&self, last: usize) -> bool {
        let e = &self.facts.rec.entries[last];
        if e.action == Action::Oom {
            return true;
        }
        let reserved = self.state.policy.stats().reserved.current;
        let wanted = reserved + segment_size(self.facts.config, self.facts.rounded(e.size));
        let full = self.facts.device_total.is_some_and(|m| wanted > m - m / 10);
        wanted > self.facts.peak_reserved && (full || self.facts.refuses)
    }

    fn attempt(
        &mut self,
        h: &Hypothesis,
        at: usize,
        end: usize,
        shape: Shape,
    ) -> Result<Tried, Conflict> {
        let mut next = at;
        for planned in &h.steps {
            let stop = (planned.end as usize).max(next);
            for i in next..stop {
                if self.facts.rec.entries[i].action == Action::FreeCompleted {
                    self.complete(i);
                }
            }
            self.step(planned.step, next, stop)
                .map_err(|m| self.conflict(at, end, m, next, Some(planned.step)))?;
            next = stop;
        }
        if shape == Shape::Loose {
            return Ok(Tried::Fits);
        }
        for i in next..next + h.noticed {
            self.complete(i);
        }
        let pressed = self.pressed(end - 1);
        self.place_reservation(next, end);
        let pool = self.pool_of_request(end - 1);
        self.request(next, end - 1, pool).map_err(|m| self.conflict(at, end, m, next, None))?;
        let odd = self.state.dev.refused > 0 && !pressed;
        for i in next + h.noticed..end {
            if self.facts.rec.entries[i].action == Action::FreeCompleted {
                // The request's wait completed it: nothing more happens, but the trace says when.
                self.complete(i);
            }
        }
        Ok(if odd { Tried::FitsOddly } else { Tried::Fits })
    }
}
