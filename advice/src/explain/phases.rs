//! Where a run's memory goes by phase, and where emptying the cache pays.

use super::change::{Edit, edit};
use super::resets::{Reset, resets};
use crate::advise::EFFECT;
use crate::job::{Job, Measured};
use crate::space::Setting;
use crate::torch::Torch;
use poolsim_core::{Bytes, Nanos, TraceError};
use poolsim_sim::{Observer, Placement, ReplayOptions, Step};
use poolsim_traces::synth::{Fit, Found};
use rayon::prelude::*;
use serde::Serialize;
use std::sync::Arc;

/// A stretch of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Phase {
    /// First event.
    pub from: u64,
    /// The event after its last.
    pub to: u64,
    /// The iteration, counted from 1; the first one includes what was set up before it.
    pub iteration: usize,
    /// Highest active bytes.
    pub active: Bytes,
    /// Highest reserved bytes.
    pub reserved: Bytes,
    /// Active bytes after its last event.
    pub active_at_end: Bytes,
    /// Reserved bytes after its last event.
    pub reserved_at_end: Bytes,
}

/// An `empty_cache()` that was tried.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Emptied {
    /// Before which event; `None` for between any two phases.
    pub event: Option<u64>,
    /// What the run came to.
    pub measured: Measured,
    /// By how much the peak of reserved bytes falls; negative if it rises.
    pub saves_bytes: i64,
    /// Device time that it costs on top.
    pub costs_ns: i64,
    /// Whether it lets more requests through, or lowers the peak by at least 1 %.
    pub pays: bool,
}

/// A run by phase.
#[derive(Clone, Debug, Serialize)]
pub struct Phases {
    /// How they were told apart, in words.
    pub told_apart_by: String,
    /// The phases.
    pub phases: Vec<Phase>,
    /// Emptying the cache between any two.
    pub everywhere: Option<Emptied>,
    /// Emptying it once, before one phase; the best first.
    pub once: Vec<Emptied>,
    /// Settings that help only until they are reset; the best first.
    pub resets: Vec<Reset>,
}

/// Phases before which emptying is tried.
const TRIED: usize = 16;

/// Looks at a run by phase. `None` for a job without a loop.
///
/// # Errors
/// Those of the trace.
pub fn phases(
    job: &Job,
    setting: &Setting,
    torch: Torch,
    measured: Measured,
) -> Result<Option<Phases>, TraceError> {
    let fit = Fit::of(&job.trace)?;
    if *fit.found() == Found::Windows || fit.cycles() < 2 {
        return Ok(None);
    }
    let phases: Vec<Phase> = fit
        .ranges()
        .iter()
        .zip(1..)
        .map(|(range, iteration)| Phase {
            from: range.start as u64,
            to: range.end as u64,
            iteration,
            ..Phase::default()
        })
        .collect();
    let mut watch = Watch { phases, now: 0 };
    job.replay(&setting.resolved, Placement::Driver, &mut watch, ReplayOptions::default())?;
    let phases = watch.phases;
    let starts: Vec<u64> = phases.iter().skip(1).map(|phase| phase.from).collect();
    let step = starts.len().div_ceil(TRIED).max(1);
    let mut tries: Vec<Vec<u64>> = starts.iter().step_by(step).map(|&start| vec![start]).collect();
    tries.push(starts);
    let mut emptied: Vec<Emptied> = tries
        .par_iter()
        .map(|events| try_emptying(job, setting, events, measured))
        .collect::<Result<Vec<Option<Emptied>>, TraceError>>()?
        .into_iter()
        .flatten()
        .collect();
    let everywhere = emptied.pop();
    emptied.sort_by_key(|e| (e.measured.ooms, -e.saves_bytes, e.costs_ns, e.event));
    let told_apart_by = fit.found().to_string();
    let resets = resets(job, setting, torch, &phases, measured)?;
    Ok(Some(Phases { told_apart_by, phases, everywhere, once: emptied, resets }))
}

fn try_emptying(
    job: &Job,
    setting: &Setting,
    events: &[u64],
    before: Measured,
) -> Result<Option<Emptied>, TraceError> {
    let Some(edited) = edit(&job.trace, &Edit::EmptyCache(events.to_vec()), 0) else {
        return Ok(None);
    };
    let measured = job.with_trace(Arc::new(edited.trace)).measure(&setting.resolved)?;
    let difference = |a: u64, b: u64| a as i64 - b as i64;
    let saves_bytes = difference(before.peak_reserved_bytes, measured.peak_reserved_bytes);
    let worth = (before.peak_reserved_bytes as f64 * EFFECT) as i64;
    let pays =
        measured.ooms < before.ooms || measured.ooms == before.ooms && saves_bytes >= worth.max(1);
    Ok(Some(Emptied {
        event: (events.len() == 1).then(|| events[0]),
        costs_ns: difference(measured.device_time_ns, before.device_time_ns),
        measured,
        saves_bytes,
        pays,
    }))
}

struct Watch {
    phases: Vec<Phase>,
    now: usize,
}

impl Observer for Watch {
    fn on_step(&mut self, step: &Step<'_>) {
        while self.phases.get(self.now).is_some_and(|phase| step.index >= phase.to) {
            self.now += 1;
        }
        let Some(phase) = self.phases.get_mut(self.now) else { return };
        let (active, reserved) = (step.stats.active.current, step.stats.reserved.current);
        phase.active = phase.active.max(active);
        phase.reserved = phase.reserved.max(reserved);
        (phase.active_at_end, phase.reserved_at_end) = (active, reserved);
    }
}

/// Device time in words that a phase table needs: never negative.
pub fn cost(emptied: &Emptied) -> Nanos {
    u64::try_from(emptied.costs_ns).unwrap_or(0)
}
