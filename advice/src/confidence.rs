//! The same question on changed recordings: what won by luck loses there.

use crate::job::{Job, Measured};
use crate::search::{Progress, Trial};
use poolsim_core::TraceError;
use poolsim_sim::Placement;
use poolsim_traces::synth::{Change, Fit, Found as Cycles, Order};
use rayon::prelude::*;
use serde::Serialize;
use std::sync::Arc;

/// How a job was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Other sequence lengths: in each cycle, what does not last is up to 15 % smaller or larger.
    Lengths,
    /// The cycles in another order.
    Shuffled,
    /// Each size by itself up to 5 % smaller or larger.
    Sizes,
    /// The driver puts memory elsewhere.
    Placement,
    /// Another recording of the same job.
    Recording,
}

impl Kind {
    /// For tables.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Lengths => "other sequence lengths (±15 %)",
            Kind::Shuffled => "iterations in another order",
            Kind::Sizes => "other sizes (±5 %)",
            Kind::Placement => "memory elsewhere on the device",
            Kind::Recording => "further recordings",
        }
    }
}

/// A changed job.
pub struct Changed {
    /// How.
    pub kind: Kind,
    /// The job.
    pub job: Job,
    placement: Placement,
}

/// Seeds for each kind of change.
const SEEDS: u64 = 4;

/// Events of a changed trace above which fewer are made.
const MANY: usize = 2_000_000;

/// Changed versions of a job, and further recordings of it. The cycles of a job that has none cannot be shuffled.
///
/// # Errors
/// The trace cannot be learned from.
pub fn changed(job: &Job, further: &[Job], seed: u64) -> Result<Vec<Changed>, TraceError> {
    let plain = |kind, job: Job| Changed { kind, job, placement: Placement::Driver };
    let mut all: Vec<Changed> =
        further.iter().map(|job| plain(Kind::Recording, job.clone())).collect();
    for placement in Placement::VARIANTS {
        all.push(Changed { kind: Kind::Placement, job: job.clone(), placement });
    }
    let fit = Fit::of(&job.trace)?;
    let standard = Change::default();
    let mut changes = vec![(Kind::Sizes, Change { sizes: 0.05, ..standard })];
    if *fit.found() != Cycles::Windows {
        changes.push((Kind::Lengths, Change { lengths: Some((0.85, 1.15)), ..standard }));
        if fit.cycles() > 3 {
            changes.push((Kind::Shuffled, Change { order: Order::Shuffled, ..standard }));
        }
    }
    let seeds = if job.trace.events.len() > MANY { 1 } else { SEEDS };
    let wanted: Vec<(Kind, Change, u64)> = changes
        .iter()
        .flat_map(|&(kind, change)| (0..seeds).map(move |n| (kind, change, seed.wrapping_add(n))))
        .collect();
    let made: Vec<Changed> = wanted
        .par_iter()
        .map(|(kind, change, seed)| {
            let trace = fit.make(change, *seed)?;
            Ok(plain(*kind, job.with_trace(Arc::new(trace))))
        })
        .collect::<Result<_, TraceError>>()?;
    all.extend(made);
    all.sort_by_key(|changed| changed.kind);
    Ok(all)
}

/// What changed jobs came to under one setting.
#[derive(Clone, Debug)]
pub struct Retest {
    /// By changed job.
    pub measured: Vec<Measured>,
}

/// Tries settings on changed jobs.
///
/// # Errors
/// Those of the traces.
pub fn retest(
    trials: &[&Trial],
    changed: &[Changed],
    progress: Progress<'_>,
) -> Result<Vec<Retest>, TraceError> {
    let pairs: Vec<(&Trial, &Changed)> =
        trials.iter().flat_map(|trial| changed.iter().map(move |c| (*trial, c))).collect();
    let measured: Vec<Measured> = pairs
        .par_iter()
        .map(|(trial, changed)| {
            let setting = &trial.setting.resolved;
            let measured = changed.job.measure_at(setting, changed.placement.clone())?;
            progress(1);
            Ok(measured)
        })
        .collect::<Result<_, TraceError>>()?;
    let by_trial = measured.chunks(changed.len().max(1));
    Ok(by_trial.map(|measured| Retest { measured: measured.to_vec() }).collect())
}

/// One kind of change: how a setting did against another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The change.
    pub kind: Kind,
    /// Changed jobs.
    pub jobs: usize,
    /// On which it refused less, or reserved at least 0.5 % less.
    pub better: usize,
    /// On which it refused more, or reserved at least 0.5 % more.
    pub worse: usize,
    /// On which both were refused equally many requests: these say nothing.
    pub open: usize,
    /// On which no request was refused.
    pub lives: usize,
    /// On which no request was refused under the other setting.
    pub lived_before: usize,
    /// The median of the peaks, as shares of the other setting's, over jobs that both carried (over all, if there are none).
    pub median_ratio: f64,
}

/// How sure it is that a setting is better than another.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Confidence {
    /// By kind of change.
    pub rows: Vec<Row>,
}

/// Peaks that differ by less than this share are equal.
const SAME: f64 = 0.005;

impl Confidence {
    /// Compares a setting with a base.
    pub fn of(changed: &[Changed], setting: &Retest, base: &Retest) -> Confidence {
        let mut rows: Vec<Row> = Vec::new();
        let mut kinds: Vec<Kind> = changed.iter().map(|c| c.kind).collect();
        kinds.dedup();
        for kind in kinds {
            let of_kind = changed.iter().zip(setting.measured.iter().zip(&base.measured));
            let pairs: Vec<(&Measured, &Measured)> =
                of_kind.filter(|(c, _)| c.kind == kind).map(|(_, pair)| pair).collect();
            let count = |test: &dyn Fn(&Measured, &Measured) -> bool| {
                pairs.iter().filter(|(one, other)| test(one, other)).count()
            };
            rows.push(Row {
                kind,
                jobs: pairs.len(),
                better: count(&is_better),
                worse: count(&|one, other| is_better(other, one)),
                open: count(&|one, other| one.ooms > 0 && one.ooms == other.ooms),
                lives: count(&|one, _| one.lives()),
                lived_before: count(&|_, other| other.lives()),
                median_ratio: median_ratio(&pairs),
            });
        }
        Confidence { rows }
    }

    fn sum(&self, of: impl Fn(&Row) -> usize) -> usize {
        self.rows.iter().map(of).sum()
    }

    /// Changed jobs in all.
    pub fn jobs(&self) -> usize {
        self.sum(|row| row.jobs)
    }

    /// Changed jobs on which it was better.
    pub fn better(&self) -> usize {
        self.sum(|row| row.better)
    }

    /// Changed jobs on which it was worse.
    pub fn worse(&self) -> usize {
        self.sum(|row| row.worse)
    }

    /// Whether the recording's result holds on changed ones: of those that say something, better on at least three of four,
    /// worse on at most one in ten, and worse on no further recording.
    pub fn holds(&self) -> bool {
        self.holds_but_for(10)
    }

    /// Whether it is worth trying for a job that fails as it is now: as [`Confidence::holds`], but worse on at most one in
    /// five, since such a job has little to lose.
    pub fn rescues(&self) -> bool {
        self.holds_but_for(5)
    }

    /// Whether it is worse on at most one in so many.
    fn holds_but_for(&self, one_in: usize) -> bool {
        let told = self.jobs() - self.sum(|row| row.open);
        let recordings_hold =
            self.rows.iter().all(|row| row.kind != Kind::Recording || row.worse == 0);
        let mostly = self.better() * 4 >= told * 3 && self.worse() * one_in <= told;
        recordings_hold && told > 0 && mostly
    }
}

/// Refuses less, or reserves less by more than nothing.
fn is_better(one: &Measured, other: &Measured) -> bool {
    if one.ooms != other.ooms {
        return one.ooms < other.ooms;
    }
    (one.peak_reserved_bytes as f64) < other.peak_reserved_bytes as f64 * (1.0 - SAME)
}

fn median_ratio(pairs: &[(&Measured, &Measured)]) -> f64 {
    let ratio = |(one, other): &(&Measured, &Measured)| {
        one.peak_reserved_bytes as f64 / other.peak_reserved_bytes.max(1) as f64
    };
    let both: Vec<f64> =
        pairs.iter().filter(|(one, other)| one.lives() && other.lives()).map(ratio).collect();
    let mut ratios = if both.is_empty() { pairs.iter().map(ratio).collect() } else { both };
    ratios.sort_unstable_by(f64::total_cmp);
    let n = ratios.len();
    match n {
        0 => 1.0,
        n if n % 2 == 1 => ratios[n / 2],
        n => f64::midpoint(ratios[n / 2 - 1], ratios[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a graph network came to that failed on an H200 and was saved by a setting that did worse on 2 of 14.
    #[test]
    fn a_job_that_fails_may_try_what_is_not_sure_enough_for_one_that_lives() {
        let tried = |kind, jobs, better, worse| Confidence {
            rows: vec![Row {
                kind,
                jobs,
                better,
                worse,
                open: 0,
                lives: 0,
                lived_before: 0,
                median_ratio: 1.0,
            }],
        };
        let graph = tried(Kind::Sizes, 14, 12, 2);
        assert!(!graph.holds() && graph.rescues());
        let luck = tried(Kind::Sizes, 14, 10, 4);
        assert!(!luck.holds() && !luck.rescues());
        let elsewhere = tried(Kind::Recording, 14, 13, 1);
        assert!(!elsewhere.holds() && !elsewhere.rescues(), "worse on a real recording");
        let sure = tried(Kind::Sizes, 14, 13, 1);
        assert!(sure.holds() && sure.rescues());
    }
}
