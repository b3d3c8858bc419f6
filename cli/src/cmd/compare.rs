//! `poolsim compare`: the same policies in simulation and on the GPU, side by side.

mod distance;
mod parity;
mod text;

use crate::args::CompareArgs;
use crate::choice::{Choice, choose};
use crate::cmd::report;
use crate::gpu::{Gpu, OnGpu, Target};
use crate::keep;
use crate::lab;
use crate::load::Input;
use crate::output::{Ending, Out, Usage};
use crate::profile;
use crate::runner::Setting;
use distance::Distance;
use parity::{Parity, Watcher};
use poolsim_core::RunRecord;
use poolsim_reports::data::Run;
use poolsim_reports::json;
use poolsim_sim::Observer;
use serde_json::{Value, json};

/// One policy, everywhere that it was asked for.
#[derive(Default)]
pub struct Compared {
    /// As the user wrote it.
    pub label: String,
    /// In simulation.
    pub sim: Option<RunRecord>,
    /// On the GPU.
    pub gpu: Option<RunRecord>,
    /// How far apart their metrics are.
    pub distances: Vec<Distance>,
    /// Whether both decided the same.
    pub parity: Option<Parity>,
    /// What a report shows, if one is wanted.
    pub kept: Vec<Run>,
}

impl Compared {
    /// The runs, with where they were.
    pub fn runs(&self) -> impl Iterator<Item = (&'static str, &RunRecord)> {
        let places = [("sim", self.sim.as_ref()), ("gpu", self.gpu.as_ref())];
        places.into_iter().filter_map(|(place, run)| Some((place, run?)))
    }
}

/// Runs every policy on every target and says how far apart they are.
pub fn run(args: &CompareArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let targets = report::targets(&args.reports)?;
    let wants = |target| args.on.is_empty() || args.on.contains(&target);
    let gpu = match (wants(Target::Gpu), args.gpu.given()) {
        (true, None) if args.on.is_empty() => gpu_if_any(args),
        (true, _) => Some(Gpu::open(&args.gpu)?),
        (false, Some(option)) => {
            return Err(Usage(format!("{option} needs gpu among --on")).into());
        }
        (false, None) => None,
    };
    let profile = profile::read(args.profile.as_deref())?;
    let input = Input::open(&args.trace, &args.select, &args.machine, &profile)?;
    let labels = [&args.policies[..], &args.names[..]].concat();
    let choices = choose(&labels, input.header(), &input.machine)?;
    let mut loaded = input.load()?;
    if let Some(gpu) = &gpu {
        loaded.machine.move_to(&gpu.caps);
    }
    for remark in &loaded.remarks {
        eprintln!("note: {remark}");
    }
    let free = gpu.as_ref().map(Gpu::free).transpose()?;
    let setting = Setting::new(&loaded, &profile, free)?;
    let gpu = gpu.as_ref().map(|gpu| OnGpu::new(gpu, &args.gpu, &setting)).transpose()?;
    let keep = !targets.is_empty();
    let all =
        choices.iter().map(|choice| one(&setting, gpu.as_ref(), wants(Target::Sim), keep, choice));
    let mut compared = all.collect::<anyhow::Result<Vec<_>>>()?;
    if keep {
        let taken = compared.iter_mut().flat_map(|c| std::mem::take(&mut c.kept));
        let mut runs: Vec<Run> = taken.collect();
        lab::add(args.lab, &setting, &choices, &mut runs)?;
        report::write(&keep::set(&setting, runs)?, &targets)?;
    }
    for (label, warning) in compared.iter().flat_map(warnings) {
        eprintln!("warning: {label}: {warning}");
    }
    if args.json {
        out.json(&document(&compared))?;
    } else {
        text::write(&compared, &loaded.machine.words(), out)?;
    }
    let differs = compared.iter().any(|c| c.parity.as_ref().is_some_and(Parity::differs));
    Ok(if differs { Ending::Failed } else { Ending::Fine })
}

/// The first GPU, or a loud word that nothing is measured: nobody said where to run.
fn gpu_if_any(args: &CompareArgs) -> Option<Gpu> {
    let opened = Gpu::open(&args.gpu);
    if let Err(error) = &opened {
        eprintln!("warning: IN SIMULATION ONLY, nothing is measured: {error:#}");
    }
    opened.ok()
}

fn one(
    setting: &Setting<'_>,
    gpu: Option<&OnGpu<'_>>,
    in_sim: bool,
    keep: bool,
    choice: &Choice,
) -> anyhow::Result<Compared> {
    let mut compared = Compared { label: choice.label.clone(), ..Compared::default() };
    let Some(on_gpu) = gpu else {
        compared.sim = Some(simulate(setting, choice, keep, None, &mut compared.kept)?);
        return Ok(compared);
    };
    let mut watcher = Watcher::new(choice);
    let mut curves = keep.then(keep::watcher);
    let mut watchers: Vec<Box<dyn Observer + '_>> = vec![Box::new(&mut watcher)];
    watchers.extend(curves.as_mut().map(|w| Box::new(w) as Box<dyn Observer>));
    let (finished, driver) = on_gpu.run(choice, &mut watchers, true)?;
    drop(watchers);
    if in_sim {
        let pace = finished.record.measured.as_ref().and_then(|m| m.driver_pace_ns);
        let sim = simulate(setting, choice, keep, pace, &mut compared.kept)?;
        compared.distances = distance::between(&sim, &finished.record);
        compared.parity = Some(parity::check(setting, choice, on_gpu.args, &watcher, driver)?);
        compared.sim = Some(sim);
    }
    if let Some(curves) = curves {
        let mut run = keep::run(choice, &finished, &curves, Vec::new());
        run.label += " (GPU)";
        compared.kept.push(run);
    }
    compared.gpu = Some(finished.record);
    Ok(compared)
}

/// A run in simulation, with prices as at such a pace of the driver, if that is known.
fn simulate(
    setting: &Setting<'_>,
    choice: &Choice,
    keep: bool,
    pace: Option<f64>,
    kept: &mut Vec<Run>,
) -> anyhow::Result<RunRecord> {
    let mut profile = setting.profile.clone();
    let speed = pace.and_then(|ns| profile.at_pace_of(ns));
    let setting =
        &Setting { profile: &profile, initial_heap: setting.initial_heap.clone(), ..*setting };
    let mut watcher = keep.then(keep::watcher);
    let mut watchers: Vec<Box<dyn Observer + '_>> = Vec::new();
    watchers.extend(watcher.as_mut().map(|w| Box::new(w) as Box<dyn Observer>));
    let mut finished = setting.run(choice, &mut watchers, false)?;
    drop(watchers);
    if let Some(factor) = speed {
        finished.record.provenance.device_profile +=
            &format!(", times {factor:.2} for the driver's pace beside the runs");
    }
    if let Some(watcher) = watcher {
        let keyframes = keep::keyframes(setting, choice, &finished)?;
        kept.push(keep::run(choice, &finished, &watcher, keyframes));
    }
    Ok(finished.record)
}

fn warnings(compared: &Compared) -> impl Iterator<Item = (&str, &String)> {
    compared
        .runs()
        .flat_map(move |(_, run)| run.warnings.iter().map(|w| (compared.label.as_str(), w)))
}

fn document(compared: &[Compared]) -> Value {
    let runs = compared.iter().flat_map(|c| {
        c.runs().map(|(_, record)| {
            let mut value = json!(record);
            value["label"] = json!(c.label);
            value
        })
    });
    let mut document = json::list("runs", &runs.collect::<Vec<_>>());
    let both = compared.iter().filter(|c| c.sim.is_some() && c.gpu.is_some());
    document["comparisons"] = both
        .map(|c| json!({ "label": c.label, "metrics": c.distances, "decisions": c.parity }))
        .collect();
    document
}
