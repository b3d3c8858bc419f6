//! Settings that help only in a part of a run: in force from the start, and reset by the program later.

use super::phases::Phase;
use crate::advise::EFFECT;
use crate::job::{Job, Measured};
use crate::space::Setting;
use crate::torch::Torch;
use poolsim_core::{EventKind, TraceError};
use poolsim_policies::counterfactual::reset_after;
use poolsim_sim::{Placement, ReplayOptions};
use rayon::prelude::*;
use serde::Serialize;

/// A setting that was in force up to an event.
#[derive(Clone, Debug, Serialize)]
pub struct Reset {
    /// The setting.
    pub conf: String,
    /// The event before which the program resets it.
    pub event: u64,
    /// The iteration that starts there.
    pub iteration: usize,
    /// What the run came to.
    pub measured: Measured,
    /// What it came to with the setting in force to the end.
    pub throughout: Measured,
}

/// Settings that are tried: those that PyTorch resets at run time.
const SETTINGS: &[&str] = &[
    "max_split_size_mb:20",
    "max_split_size_mb:64",
    "max_split_size_mb:200",
    "max_split_size_mb:512",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
];

/// Starts of iterations at which a reset is tried.
const MOMENTS: usize = 4;

/// Settings that help if they are reset in time: better by 1 % (or by refusals) than PyTorch's defaults and than the same
/// setting throughout; the best first. Only for a run under the defaults, to which a reset goes back.
///
/// # Errors
/// Those of the trace.
pub fn resets(
    job: &Job,
    setting: &Setting,
    torch: Torch,
    phases: &[Phase],
    now: Measured,
) -> Result<Vec<Reset>, TraceError> {
    if !setting.conf().is_empty() || job.starts_late() {
        return Ok(Vec::new());
    }
    let starts: Vec<&Phase> = phases.iter().skip(1).collect();
    let step = starts.len().div_ceil(MOMENTS).max(1);
    let moments: Vec<&Phase> = starts.into_iter().step_by(step).collect();
    let known = |text: &&&str| text.split_once(':').is_some_and(|(key, _)| torch.knows(key));
    let settings: Vec<Setting> =
        SETTINGS.iter().filter(known).filter_map(|text| Setting::parse(text, job).ok()).collect();
    let found: Vec<Vec<Reset>> = settings
        .par_iter()
        .map(|setting| {
            let throughout = job.measure(&setting.resolved)?;
            let tries = moments.iter().map(|phase| try_reset(job, setting, phase, throughout));
            tries.collect::<Result<Vec<Reset>, TraceError>>()
        })
        .collect::<Result<_, TraceError>>()?;
    let mut helping: Vec<Reset> = found
        .into_iter()
        .flatten()
        .filter(|r| better(r.measured, now) && better(r.measured, r.throughout))
        .collect();
    helping.sort_by_key(|r| {
        (r.measured.ooms, r.measured.peak_reserved_bytes, r.event, r.conf.clone())
    });
    Ok(helping)
}

fn better(one: Measured, other: Measured) -> bool {
    let worth = other.peak_reserved_bytes as f64 * (1.0 - EFFECT);
    one.ooms < other.ooms || one.ooms == other.ooms && one.peak_reserved_bytes as f64 <= worth
}

fn try_reset(
    job: &Job,
    setting: &Setting,
    phase: &Phase,
    throughout: Measured,
) -> Result<Reset, TraceError> {
    let before = &job.trace.events[..phase.from as usize];
    let asks = |kind: EventKind| {
        matches!(kind, EventKind::Alloc | EventKind::AllocRefused | EventKind::Preexisting)
    };
    // The policy sees only requests for at least one byte.
    let requests = before.iter().filter(|e| asks(e.kind()) && e.size > 0).count() as u64;
    let policy = reset_after(&setting.resolved, requests, &job.env())
        .expect("settings are built when they are made")
        .expect("the settings are PyTorch's");
    let (end, device) =
        job.replay_policy(policy, Placement::Driver, &mut (), ReplayOptions::default())?;
    Ok(Reset {
        conf: setting.conf().into(),
        event: phase.from,
        iteration: phase.iteration,
        measured: Measured::of(&end, &device),
        throughout,
    })
}
