//! Which setting would have been best, what it saves and costs, and how sure that is.

use crate::confidence::{Changed, Confidence, Retest, changed, retest};
use crate::frontier::{Prober, safe};
use crate::job::{Job, Measured};
use crate::search::{Found, Progress, Trial, best, search, standard_budget, worst};
use crate::space::{Setting, Space};
use crate::torch::Torch;
use poolsim_core::record::OomRecord;
use poolsim_core::{Bytes, EventKind, TraceError};
use poolsim_sim::bound::{Bounds, Budget, Instance, Lifetimes, pack};
use poolsim_sim::{Observer, Placement, ReplayOptions, Step};
use rayon::prelude::*;
use serde::Serialize;

/// What to search and how long.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The version whose options may be advised.
    pub torch: Torch,
    /// Settings to try at most; `None` for as many as [`standard_budget`] says.
    pub budget: Option<usize>,
    /// Of everything that is drawn at random.
    pub seed: u64,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Set [`Advice::setting`].
    Set,
    /// Leave the settings as they are: nothing that was tried is better and holds.
    Keep,
    /// No setting can carry the job: what is live at once is more than it can have.
    Impossible,
    /// No setting that was tried carries the job, though what is live at once would fit.
    NotFound,
}

/// Why a setting that did better on the recording is not advised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// It won by luck: on changed recordings it does not.
    Luck,
    /// Its device calls take more than a twentieth of the program's time.
    Slow,
}

/// A setting that was looked at closely.
#[derive(Clone, Debug)]
pub struct Finalist {
    /// What it is and came to.
    pub trial: Trial,
    /// Against the settings in force.
    pub confidence: Confidence,
    /// Why it is not advised.
    pub doubt: Option<Doubt>,
}

/// Bytes that the jobs need whatever the allocator does: the worst of several ranks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Needs {
    /// Live at once, requests that were refused when they were recorded included; frees that wait for other streams count as
    /// complete.
    pub live_bytes: Bytes,
    /// As [`Needs::live_bytes`], with frees that wait counted until they are complete.
    pub live_waiting_bytes: Bytes,
    /// What the best packing needs at least, where it was asked for.
    pub packing_least_bytes: Option<Bytes>,
    /// The most that the allocator can have.
    pub limit_bytes: Bytes,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Advice {
    /// What is to be done.
    pub verdict: Verdict,
    /// The settings in force: those of the recording, or the defaults.
    pub now: Trial,
    /// PyTorch's defaults.
    pub standard: Trial,
    /// The settings to use; those in force unless the verdict is [`Verdict::Set`].
    pub setting: Trial,
    /// How sure it is that they are better than those in force; `None` if they are those in force.
    pub confidence: Option<Confidence>,
    /// What the jobs need in any case.
    pub needs: Needs,
    /// The smallest memory on which the jobs live under the settings in force, and under the advised ones.
    pub smallest: [Option<Bytes>; 2],
    /// Everything that was tried.
    pub found: Found,
    /// What was looked at closely, best first.
    pub finalists: Vec<Finalist>,
    /// Options that were not tried, and why.
    pub left_out: Vec<(&'static str, String)>,
}

/// Least share of the peak that a setting must save to be advised.
pub const EFFECT: f64 = 0.01;
/// Share of the program's time that device calls may take on top.
const SLOW: f64 = 0.05;
/// Settings that are looked at closely.
const FINALISTS: usize = 10;
/// Steps of the packing that is computed where every setting fails.
const PACKING_STEPS: u64 = 100_000_000;

/// Finds the best setting for a job, or one for all jobs where they are ranks of one program. Every run starts from an empty heap. `further` are other recordings of
/// the same job, on which the advice must hold too.
///
/// # Errors
/// Those of the traces. There must be a job.
///
/// # Panics
/// If there is no job.
pub fn advise(
    jobs: &[Job],
    further: &[Job],
    options: &Options,
    progress: Progress<'_>,
) -> Result<Advice, TraceError> {
    let jobs: &[Job] = &jobs.iter().map(Job::from_empty).collect::<Vec<Job>>();
    let further: &[Job] = &further.iter().map(Job::from_empty).collect::<Vec<Job>>();
    let first = jobs.first().expect("there is a job");
    let measured = |setting: Setting| -> Result<Trial, TraceError> {
        Ok(Trial { measured: worst(jobs, &setting)?, setting })
    };
    let standard = measured(Setting::standard(first))?;
    let in_force = first.recorded.clone().and_then(|r| Setting::of(r, first).ok());
    let now = match in_force.filter(Setting::is_native) {
        Some(setting) => measured(setting)?,
        None => standard.clone(),
    };
    let mut needs = needs(jobs)?;
    let space = Space::of(jobs, options.torch);
    let mut advice = Advice {
        verdict: Verdict::Keep,
        setting: now.clone(),
        confidence: None,
        smallest: [None; 2],
        found: Found::default(),
        finalists: Vec::new(),
        left_out: space.left_out.clone(),
        needs,
        standard,
        now,
    };
    if needs.live_bytes > needs.limit_bytes {
        advice.verdict = Verdict::Impossible;
        return Ok(advice);
    }
    let budget = options.budget.unwrap_or_else(|| standard_budget(jobs));
    advice.found = search(jobs, &space, budget, options.seed, progress)?;
    let candidate = candidates(&advice, jobs);
    advice.finalists = judge(&advice.now, candidate, jobs, further, options.seed, progress)?;
    let allowed = advice.finalists.iter().filter(|finalist| finalist.doubt.is_none());
    if let Some(chosen) = choose(allowed, &advice.now) {
        advice.verdict = Verdict::Set;
        advice.confidence = Some(chosen.confidence.clone());
        advice.setting = chosen.trial.clone();
    }
    if !advice.setting.measured.lives() {
        needs.packing_least_bytes = Some(packing_least(jobs)?);
        let packs = needs.packing_least_bytes <= Some(needs.limit_bytes);
        advice.verdict = if packs { Verdict::NotFound } else { Verdict::Impossible };
        advice.needs = needs;
    }
    advice.smallest = [smallest(jobs, &advice.now)?, smallest(jobs, &advice.setting)?];
    Ok(advice)
}

/// The trials worth a closer look: the best of each option by itself, and the best of all by the order of [`best`].
fn candidates(advice: &Advice, jobs: &[Job]) -> Vec<Trial> {
    let mut left: Vec<&Trial> = advice.found.trials.iter().collect();
    let mut chosen: Vec<&Trial> = Vec::new();
    let key = |trial: &Trial| trial.setting.conf().split(':').next().unwrap_or("").to_string();
    let simple: Vec<&Trial> =
        left.iter().copied().filter(|trial| trial.setting.keys() == 1).collect();
    let mut keys: Vec<String> = simple.iter().map(|trial| key(trial)).collect();
    keys.sort_unstable();
    keys.dedup();
    for one in keys {
        chosen.extend(best(simple.iter().copied().filter(|trial| key(trial) == one)));
    }
    let quick = left.iter().copied().filter(|trial| !is_slow(trial, &advice.now, jobs));
    chosen.extend(best(quick));
    while chosen.len() < FINALISTS {
        left.retain(|trial| !chosen.iter().any(|c| c.setting.conf() == trial.setting.conf()));
        match best(left.iter().copied()) {
            Some(next) => chosen.push(next),
            None => break,
        }
    }
    let mut seen: Vec<&str> = Vec::new();
    chosen.retain(|trial| {
        let new = !seen.contains(&trial.setting.conf());
        seen.push(trial.setting.conf());
        new
    });
    let better = |trial: &&Trial| saves(&trial.measured, &advice.now.measured);
    chosen.into_iter().filter(better).cloned().collect()
}

/// Whether it refuses less, or reserves less by enough to be worth a line.
fn saves(one: &Measured, now: &Measured) -> bool {
    let worth = now.peak_reserved_bytes as f64 * (1.0 - EFFECT);
    let less = one.peak_reserved_bytes < now.peak_reserved_bytes
        && one.peak_reserved_bytes as f64 <= worth;
    one.ooms < now.ooms || one.ooms == now.ooms && less
}

fn is_slow(trial: &Trial, now: &Trial, jobs: &[Job]) -> bool {
    let Some(span) = jobs.iter().filter_map(Job::span).max() else { return false };
    let extra = trial.measured.device_time_ns.saturating_sub(now.measured.device_time_ns);
    extra as f64 > span as f64 * SLOW
}

/// Tries the candidates on changed jobs. Of several ranks the one that needs most is changed.
fn judge(
    now: &Trial,
    trials: Vec<Trial>,
    jobs: &[Job],
    further: &[Job],
    seed: u64,
    progress: Progress<'_>,
) -> Result<Vec<Finalist>, TraceError> {
    if trials.is_empty() {
        return Ok(Vec::new());
    }
    let mut worst_job = (0, &jobs[0]);
    for job in jobs {
        let peak = job.measure(&now.setting.resolved)?.peak_reserved_bytes;
        if peak > worst_job.0 {
            worst_job = (peak, job);
        }
    }
    let changed: Vec<Changed> = changed(worst_job.1, further, seed)?;
    let all: Vec<&Trial> = std::iter::once(now).chain(&trials).collect();
    let mut retests: Vec<Retest> = retest(&all, &changed, progress)?;
    let others = retests.split_off(1);
    let base = &retests[0];
    let finalists = trials.iter().zip(&others).map(|(trial, retest)| {
        let confidence = Confidence::of(&changed, retest, base);
        let lives = now.measured.lives();
        let sure = if lives { confidence.holds() } else { confidence.rescues() };
        let doubt = if !sure {
            Some(Doubt::Luck)
        } else if is_slow(trial, now, jobs) && lives {
            Some(Doubt::Slow)
        } else {
            None
        };
        Finalist { trial: trial.clone(), confidence, doubt }
    });
    Ok(finalists.collect())
}

/// The best of the finalists: fewest refusals; of these, what lives on the most changed recordings; where the job
/// fails now, of these the lines of fewest options; of these, the lowest peak on the recording, where each option has to save [`EFFECT`] of it; and of what comes within half of that, the best on the
/// changed recordings, by the same price.
fn choose<'a>(
    finalists: impl Iterator<Item = &'a Finalist> + Clone,
    now: &Trial,
) -> Option<&'a Finalist> {
    let fewest = finalists.clone().map(|f| f.trial.measured.ooms).min()?;
    let living = finalists.filter(|f| f.trial.measured.ooms == fewest);
    let lives = |f: &Finalist| f.confidence.rows.iter().map(|row| row.lives).sum::<usize>();
    let most = living.clone().map(lives).max()?;
    let living = living.filter(|f| lives(f) == most);
    // A job that fails now needs to live: of what lets it, the simplest line.
    let simplest = living.clone().map(|f| f.trial.setting.keys()).min()?;
    let rescue = !now.measured.lives();
    let living = living.filter(move |f| !rescue || f.trial.setting.keys() == simplest);
    let price = |f: &Finalist| EFFECT * f.trial.setting.keys() as f64;
    let own = |f: &Finalist| {
        let peak = f.trial.measured.peak_reserved_bytes as f64;
        peak / now.measured.peak_reserved_bytes.max(1) as f64
    };
    let cost = |f: &Finalist| own(f) + price(f);
    let lowest = living.clone().map(cost).fold(f64::INFINITY, f64::min);
    let near = living.filter(|f| cost(f) <= lowest + EFFECT / 2.0);
    let changed = |f: &Finalist| -> f64 {
        let rows = f.confidence.rows.iter().map(|row| row.median_ratio);
        (own(f) + rows.clone().sum::<f64>()) / (1 + rows.count()) as f64 + price(f)
    };
    near.min_by(|a, b| {
        let time = |f: &Finalist| f.trial.measured.device_time_ns;
        changed(a).total_cmp(&changed(b)).then(time(a).cmp(&time(b)))
    })
}

/// Live bytes of the worst job, what was refused when it was recorded included.
pub(crate) fn needs(jobs: &[Job]) -> Result<Needs, TraceError> {
    let mut needs = Needs {
        live_bytes: 0,
        live_waiting_bytes: 0,
        packing_least_bytes: None,
        limit_bytes: jobs.iter().map(Job::limit).min().unwrap_or(0),
    };
    for job in jobs {
        let mut source = poolsim_core::TraceReader::new(std::sync::Arc::clone(&job.trace));
        let bounds = Bounds::of(&Lifetimes::read(&mut source)?, 1, 1);
        needs.live_bytes = needs.live_bytes.max(bounds.live_without_waiting).max(refused_need(job));
        needs.live_waiting_bytes = needs.live_waiting_bytes.max(bounds.live).max(needs.live_bytes);
    }
    Ok(needs)
}

/// The highest sum of what the program held and what it was refused then.
fn refused_need(job: &Job) -> Bytes {
    let (mut live, mut need) = (0u64, 0);
    for event in &job.trace.events {
        match event.kind() {
            EventKind::Alloc | EventKind::Preexisting => live = live.saturating_add(event.size),
            EventKind::AllocRefused => need = need.max(live.saturating_add(event.size)),
            EventKind::Free | EventKind::FreeLater => live = live.saturating_sub(event.size),
            _ => {}
        }
    }
    need
}

fn packing_least(jobs: &[Job]) -> Result<Bytes, TraceError> {
    let mut least = 0;
    for job in jobs {
        let mut source = poolsim_core::TraceReader::new(std::sync::Arc::clone(&job.trace));
        let lifetimes = Lifetimes::read(&mut source)?;
        let instance = Instance::new(lifetimes.items.iter(), |item| item.size);
        let packing = pack(&instance, Budget { steps: PACKING_STEPS, deadline: None });
        least = least.max(packing.least).max(refused_need(job));
    }
    Ok(least)
}

#[derive(Default)]
struct FirstRefusal(Option<OomRecord>);

impl Observer for FirstRefusal {
    fn on_step(&mut self, step: &Step<'_>) {
        if self.0.is_none() {
            self.0 = step.oom.cloned();
        }
    }
}

/// The smallest memory on which all jobs live under a setting, requests included that were refused when they were recorded.
fn smallest(jobs: &[Job], trial: &Trial) -> Result<Option<Bytes>, TraceError> {
    let found: Vec<Option<Bytes>> = jobs
        .par_iter()
        .map(|job| {
            // Without the limits of the recording: the question is which card would do.
            let free = Job { memory_fraction: None, ..job.with_capacity(None) };
            let refusal = |capacity| {
                let mut first = FirstRefusal::default();
                let options = ReplayOptions { stop_at_oom: true, ..ReplayOptions::default() };
                let setting = &trial.setting.resolved;
                let job = free.with_capacity(Some(capacity));
                job.replay(setting, Placement::Driver, &mut first, options)?;
                Ok(first.0)
            };
            let high = free.measure(&trial.setting.resolved)?.peak_reserved_bytes;
            let granule = job.caps.granule;
            let prober = Prober { refusal, whole: job.caps.total, granule, probes: 2 };
            let one = needs(std::slice::from_ref(job))?;
            Ok(safe(&prober.find(one.live_bytes, high)?.0))
        })
        .collect::<Result<_, TraceError>>()?;
    let all: Option<Vec<Bytes>> = found.into_iter().collect();
    Ok(all.and_then(|sizes| sizes.into_iter().max()))
}
