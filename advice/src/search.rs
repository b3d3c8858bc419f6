//! Tries settings, all of them where that is little work.

use crate::job::{Job, Measured};
use crate::space::{Point, Setting, Space};
use poolsim_core::TraceError;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// A setting that was tried.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The setting.
    pub setting: Setting,
    /// What the jobs came to under it: the worst of several ranks.
    pub measured: Measured,
}

/// What a search did.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Every setting that was tried, in the order in which it was.
    pub trials: Vec<Trial>,
    /// How many there are in the grid.
    pub possible: usize,
}

impl Found {
    /// Whether the whole grid was tried.
    pub fn is_exhaustive(&self) -> bool {
        self.trials.len() >= self.possible
    }
}

/// Shows how far the work is: called with the number of runs that are done.
pub type Progress<'a> = &'a (dyn Fn(u64) + Sync);

/// Events that a search replays if nothing else is said.
const EVENTS: u64 = 60_000_000;

/// How many settings are tried if nothing else is said: as many as replay about 60 million events, at least 48 and at most
/// 2000. The same jobs get the same number on every machine.
pub fn standard_budget(jobs: &[Job]) -> usize {
    let events: u64 = jobs.iter().map(|job| job.trace.events.len() as u64).sum();
    (EVENTS / events.max(1)).clamp(48, 2000) as usize
}

/// What jobs come to under a setting: the sum of what was refused, and the worst of the rest.
///
/// # Errors
/// Those of the traces.
pub fn worst(jobs: &[Job], setting: &Setting) -> Result<Measured, TraceError> {
    let mut all = Measured::default();
    for job in jobs {
        let one = job.measure(&setting.resolved)?;
        all.ooms += one.ooms;
        all.retries = all.retries.max(one.retries);
        all.peak_reserved_bytes = all.peak_reserved_bytes.max(one.peak_reserved_bytes);
        all.peak_active_bytes = all.peak_active_bytes.max(one.peak_active_bytes);
        all.final_reserved_bytes = all.final_reserved_bytes.max(one.final_reserved_bytes);
        all.device_time_ns = all.device_time_ns.max(one.device_time_ns);
        all.device_calls = all.device_calls.max(one.device_calls);
    }
    Ok(all)
}

/// Shares of the peak within which two settings count as equally good.
pub const EQUAL: f64 = 0.005;

/// The best of some trials: fewest refusals; of these the lowest peak; of those that reserve at most 0.5 % more than that the
/// one with the fewest options, and of these the one that costs the least device time.
pub fn best<'a>(trials: impl Iterator<Item = &'a Trial> + Clone) -> Option<&'a Trial> {
    let fewest = trials.clone().map(|trial| trial.measured.ooms).min()?;
    let living = trials.filter(|trial| trial.measured.ooms == fewest);
    let lowest = living.clone().map(|trial| trial.measured.peak_reserved_bytes).min()?;
    let equal = lowest + (lowest as f64 * EQUAL) as u64;
    living.filter(|trial| trial.measured.peak_reserved_bytes <= equal).min_by_key(|trial| {
        let Measured { device_time_ns, peak_reserved_bytes, .. } = trial.measured;
        (trial.setting.keys(), device_time_ns, peak_reserved_bytes)
    })
}

/// A search under way.
struct Searcher<'a> {
    jobs: &'a [Job],
    space: &'a Space,
    budget: usize,
    progress: Progress<'a>,
    found: Found,
    /// Trials by setting.
    known: BTreeMap<String, usize>,
}

/// Tries the settings of a grid on all jobs, at most `budget` of them.
///
/// If the grid has no more than that, all of it. Else, until the budget is used up: each option by itself, alone and with
/// expandable segments; all combinations of the three best values of each option; then, by turns, settings drawn at random and
/// the neighbours of the best one. The same seed tries the same settings in the same order, on any number of threads.
///
/// # Errors
/// Those of the traces.
pub fn search(
    jobs: &[Job],
    space: &Space,
    budget: usize,
    seed: u64,
    progress: Progress<'_>,
) -> Result<Found, TraceError> {
    let Some(first) = jobs.first() else { return Ok(Found::default()) };
    let all = space.settings(&space.points(), first);
    let found = Found { trials: Vec::new(), possible: all.len() };
    let mut searcher = Searcher { jobs, space, budget, progress, found, known: BTreeMap::new() };
    if all.len() <= budget {
        searcher.try_all(all)?;
        return Ok(searcher.found);
    }
    searcher.try_points(&space.single())?;
    searcher.try_points(&searcher.promising(3))?;
    let mut rest: Vec<Point> = all.into_iter().map(|(point, _)| point).collect();
    let mut rng = Pcg64::seed_from_u64(seed);
    rest.shuffle(&mut rng);
    while searcher.left() > 0 && !rest.is_empty() {
        let draw = rng.random_range(8..=16usize).min(rest.len());
        let drawn: Vec<Point> = rest.drain(..draw).collect();
        searcher.try_points(&drawn)?;
        searcher.try_points(&searcher.neighbours())?;
    }
    Ok(searcher.found)
}

impl Space {
    /// Each option by itself, alone and with expandable segments.
    fn single(&self) -> Vec<Point> {
        let expandable = self.axes.iter().position(|axis| axis.key == "expandable_segments");
        let mut bases = vec![self.origin()];
        if let Some(axis) = expandable {
            let mut point = self.origin();
            point[axis] = 1;
            bases.push(point);
        }
        let mut points = bases.clone();
        for base in &bases {
            for (i, axis) in self.axes.iter().enumerate() {
                points.extend((1..axis.values.len()).map(|value| {
                    let mut point = base.clone();
                    point[i] = value;
                    point
                }));
            }
        }
        points
    }
}

impl Searcher<'_> {
    fn left(&self) -> usize {
        self.budget.saturating_sub(self.found.trials.len())
    }

    fn try_points(&mut self, points: &[Point]) -> Result<(), TraceError> {
        let settings = self.space.settings(points, &self.jobs[0]);
        self.try_all(settings)
    }

    fn try_all(&mut self, settings: Vec<(Point, Setting)>) -> Result<(), TraceError> {
        let new: Vec<Setting> = settings
            .into_iter()
            .map(|(_, setting)| setting)
            .filter(|setting| !self.known.contains_key(setting.conf()))
            .take(self.left())
            .collect();
        let (jobs, progress) = (self.jobs, self.progress);
        let measured: Vec<Measured> = new
            .par_iter()
            .map(|setting| {
                let measured = worst(jobs, setting)?;
                progress(1);
                Ok(measured)
            })
            .collect::<Result<_, TraceError>>()?;
        for (setting, measured) in new.into_iter().zip(measured) {
            self.known.insert(setting.conf().to_string(), self.found.trials.len());
            self.found.trials.push(Trial { setting, measured });
        }
        Ok(())
    }

    fn measured(&self, point: &Point) -> Option<Measured> {
        let setting = self.space.setting(point, &self.jobs[0])?;
        self.known.get(setting.conf()).map(|&trial| self.found.trials[trial].measured)
    }

    /// All combinations of the so many best values of each option, as they were by themselves.
    fn promising(&self, keep: usize) -> Vec<Point> {
        let mut smaller = self.space.clone();
        let mut kept: Vec<Vec<usize>> = Vec::new();
        for (i, axis) in smaller.axes.iter_mut().enumerate() {
            let score = |value: &usize| {
                let mut point = self.space.origin();
                point[i] = *value;
                self.measured(&point)
                    .map_or((u64::MAX, u64::MAX), |m| (m.ooms, m.peak_reserved_bytes))
            };
            let mut values: Vec<usize> = (0..axis.values.len()).collect();
            values[1..].sort_by_key(score);
            values.truncate(keep + 1);
            axis.values = values.iter().map(|&value| axis.values[value].clone()).collect();
            kept.push(values);
        }
        let back = |point: Point| point.iter().zip(&kept).map(|(&i, values)| values[i]).collect();
        smaller.points().into_iter().map(back).collect()
    }

    /// The points one step from the best one.
    fn neighbours(&self) -> Vec<Point> {
        let Some(best) = best(self.found.trials.iter()) else { return Vec::new() };
        let wanted = best.setting.conf();
        let at = self.space.points().into_iter().find(|point| {
            self.space.setting(point, &self.jobs[0]).is_some_and(|s| s.conf() == wanted)
        });
        let Some(at) = at else { return Vec::new() };
        let mut points = Vec::new();
        for (i, axis) in self.space.axes.iter().enumerate() {
            for value in [at[i].wrapping_sub(1), at[i] + 1] {
                if value < axis.values.len() {
                    let mut point = at.clone();
                    point[i] = value;
                    points.push(point);
                }
            }
        }
        points
    }
}
