//! The causes that a group of entries may have.

use super::super::size::segment_size;
use super::facts::Region;
use super::regions::{self, Planned, Step};
use super::run::Run;
use super::shape::Shape;
use poolsim_core::policy::Policy;
use poolsim_core::recording::{Action, Entry};
use poolsim_core::stack::StackId;

/// Hidden causes of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct Hypothesis {
    /// What happened before the request.
    pub steps: Vec<Planned>,
    /// How many of the completions that come next the request notices at its start; the others come from its wait.
    pub noticed: usize,
}

/// Whether an entry gives memory back.
pub(super) fn releases(e: &Entry) -> bool {
    matches!(e.action, Action::SegmentFree | Action::SegmentUnmap)
}

impl Run<'_> {
    /// The causes to try, the likeliest first.
    pub(super) fn hypotheses(
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
        all.extend(self.dropped_and_emptied(at, &steps));
        all
    }

    /// Pools went without being emptied, and one release of everything took their memory.
    fn dropped_and_emptied(&self, at: usize, steps: &[Planned]) -> Option<Hypothesis> {
        let end = steps.last()?.end;
        let mut together: Vec<Planned> = Vec::new();
        for s in steps {
            if let Step::Destroy(pool) | Step::Drop(pool) = s.step {
                together.push(Planned { step: Step::Drop(pool), end: at as u32 });
            }
        }
        if together.is_empty() {
            return None;
        }
        together.push(Planned { step: Step::Empty, end });
        Some(Hypothesis { steps: together, noticed: self.completions(end as usize) })
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
            let together = self.dropped_and_emptied(at, &steps);
            return [Hypothesis { steps, noticed: 0 }].into_iter().chain(together).collect();
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
    pub(super) fn pressed(&self, last: usize) -> bool {
        let e = &self.facts.rec.entries[last];
        if e.action == Action::Oom {
            return true;
        }
        let reserved = self.state.policy.stats().reserved.current;
        let wanted = reserved + segment_size(self.facts.config, self.facts.rounded(e.size));
        let full = self.facts.device_total.is_some_and(|m| wanted > m - m / 10);
        wanted > self.facts.peak_reserved && (full || self.facts.refuses)
    }
}
