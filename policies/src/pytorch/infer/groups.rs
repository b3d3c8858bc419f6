//! One group of entries: which hypothesis about hidden causes makes exactly these entries.

use super::causes::{Hypothesis, releases};
use super::lots::NO_LOT;
use super::oracle::Mismatch;
use super::regions::{self, Step};
use super::run::Run;
use super::shape::Shape;
use poolsim_core::recording::Action;
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

impl Conflict {
    /// The heap at the start cannot be.
    pub fn at_start() -> Conflict {
        let mismatch = Mismatch { entry: 0, got: None };
        let during = During::Step(Step::Empty);
        Conflict { begin: 0, last: 0, mismatch, during, step_begin: 0, region: None }
    }

    /// Whether a request was on its way to release memory, but not as recorded.
    fn would_release(&self) -> bool {
        let granted = self.mismatch.got.is_some_and(|g| g.action == Action::Alloc);
        matches!(self.during, During::Request { .. }) && !granted
    }
}

/// How an attempt went.
enum Tried {
    Fits,
    /// It fits, but needs a driver that failed for no visible reason.
    FitsOddly,
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
        // Where a request may have released a part of the cache, its own account counts.
        let in_part = region.is_some_and(|r| {
            regions::in_part(self.facts, &self.choices.not_own, r, (0, r.released.len()))
        });
        let before = self.save();
        let mut odd = None;
        let mut furthest: Option<Conflict> = None;
        for (i, h) in hypotheses.iter().enumerate() {
            match self.attempt(h, at, end, shape) {
                Ok(Tried::Fits) => return Ok(()),
                Ok(Tried::FitsOddly) => odd = odd.or(Some(i)),
                Err(c) => {
                    if self.needed_nothing(&c, at) {
                        self.choices.not_own.extend(c.region);
                    }
                    let better = furthest.is_none_or(|f| {
                        let own = |c: &Conflict| in_part && c.would_release();
                        (own(&c), c.mismatch.entry) > (own(&f), f.mismatch.entry)
                    });
                    if better {
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

    /// Whether the request alone would have been granted just what it was granted, without releasing anything.
    fn needed_nothing(&self, c: &Conflict, at: usize) -> bool {
        let recorded = &self.facts.rec.entries[c.last];
        c.step_begin == at
            && matches!(c.during, During::Request { .. })
            && c.mismatch.got.is_some_and(|g| {
                g.action == Action::Alloc && recorded.action == g.action && recorded.addr == g.addr
            })
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
