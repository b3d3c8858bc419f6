//! Why a job was refused memory, or why much more is reserved than used, and the smallest change that would have helped.

mod change;
mod estimate;
mod holders;
mod phases;
mod remedy;
mod resets;
mod scene;
mod trial;

pub use change::{Edit, Edited, edit};
pub use estimate::{Estimate, estimates};
pub use holders::{Categories, Category, Holding};
pub use phases::{Emptied, Phase, Phases, cost, phases};
pub use remedy::{Moved, Question, Remedy, Tried, remedies};
pub use resets::Reset;
pub use scene::{Asked, Looked, Miss, Owner, Part, Pinned, Scene, Unusable, look, owners, place};

use crate::advise::{Needs, needs};
use crate::job::{Job, Measured};
use crate::space::Setting;
use crate::torch::Torch;
use poolsim_core::record::OomRecord;
use poolsim_core::{EventKind, Keyframe, Moment, TraceError};
use poolsim_sim::observe::Keyframes;
use poolsim_sim::{Placement, ReplayOptions};

/// What there is to explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Requests were refused.
    Refused,
    /// Nothing was refused, but much more was reserved than the program ever held at once.
    FarAbove,
    /// Neither.
    Fine,
}

/// Share of what the program held at most, above which a reservation is far above it.
const FAR: f64 = 0.1;

/// The whole explanation.
pub struct Explanation {
    /// The setting that the job ran under.
    pub setting: Setting,
    /// What is wrong with that setting itself: options without effect, or that do harm as combined.
    pub warnings: Vec<String>,
    /// What there is to explain.
    pub finding: Finding,
    /// What the run came to.
    pub measured: Measured,
    /// What the job needs whatever the allocator does.
    pub needs: Needs,
    /// The first refusals, or the peak.
    pub scenes: Vec<Scene>,
    /// All refusals, at most the first thousand.
    pub ooms: Vec<OomRecord>,
    /// What helps at the first scene, the smallest change first.
    pub remedies: Vec<Tried>,
    /// Who holds the memory at the first scene; where the job needs more than it can have, at the moment of its greatest need.
    pub holdings: Vec<Holding>,
    /// That moment: the event at which the job needs most.
    pub most: Option<u64>,
    /// The iteration of each scene, and how many there are.
    pub iterations: Vec<Option<(usize, usize)>>,
    /// What would free enough, where no setting can.
    pub estimates: Vec<Estimate>,
    /// The run by phase, where the job has a loop.
    pub phases: Option<Phases>,
}

impl Explanation {
    /// Whether the job needs more than it can have, whatever the allocator does.
    pub fn is_impossible(&self) -> bool {
        self.needs.live_bytes > self.needs.limit_bytes
    }
}

/// Explains a run of a job.
///
/// # Errors
/// Those of the trace.
pub fn explain(job: &Job, setting: &Setting, torch: Torch) -> Result<Explanation, TraceError> {
    let needs = needs(std::slice::from_ref(job))?;
    let Looked { ooms, refused, scenes } = look(job, setting)?;
    let measured = job.measure(&setting.resolved)?;
    let above = measured.peak_reserved_bytes as f64 > needs.live_bytes as f64 * (1.0 + FAR);
    let finding = match (refused, above) {
        (1.., _) => Finding::Refused,
        (0, true) => Finding::FarAbove,
        (0, false) => Finding::Fine,
    };
    let categories = Categories::of(&job.trace);
    let mut explanation = Explanation {
        warnings: setting.resolved.warnings(&job.env()).into_iter().map(|w| w.0).collect(),
        setting: setting.clone(),
        finding,
        measured,
        needs,
        iterations: scenes.iter().map(|scene| categories.iteration(scene.event)).collect(),
        holdings: scenes.first().map_or_else(Vec::new, |s| categories.holdings(&s.frame)),
        most: None,
        scenes,
        ooms,
        remedies: Vec::new(),
        estimates: Vec::new(),
        phases: None,
    };
    if explanation.is_impossible() {
        let missing = needs.live_bytes - needs.limit_bytes;
        if let Some((event, frame)) = greatest_need(job, setting)? {
            explanation.holdings = categories.holdings(&frame);
            explanation.most = Some(event);
        }
        explanation.estimates = estimates(&explanation.holdings, missing);
        return Ok(explanation);
    }
    if finding != Finding::Fine
        && let Some(scene) = explanation.scenes.first()
    {
        let question = Question { job, setting, scene, measured, torch };
        explanation.remedies = remedies(&question)?;
        explanation.phases = phases(job, setting, torch, measured)?;
    }
    Ok(explanation)
}

/// The heap at the moment at which the program needs most, as it would be if there were enough memory.
///
/// # Errors
/// Those of the trace.
pub fn greatest_need(job: &Job, setting: &Setting) -> Result<Option<(u64, Keyframe)>, TraceError> {
    let (mut live, mut most, mut at) = (0u64, 0, None);
    for (i, event) in (0u64..).zip(&job.trace.events) {
        match event.kind() {
            kind if kind.makes_live() => live = live.saturating_add(event.size),
            EventKind::Free | EventKind::FreeLater => live = live.saturating_sub(event.size),
            _ => {}
        }
        // A request that was refused when it was recorded is held by nobody: look at what was held then.
        let refused = if event.kind() == EventKind::AllocRefused { event.size } else { 0 };
        if live.saturating_add(refused) > most {
            (most, at) = (live.saturating_add(refused), Some(i));
        }
    }
    let Some(event) = at else { return Ok(None) };
    let mut roomy = Job { memory_fraction: None, recorded: None, ..job.with_capacity(None) };
    roomy.caps.total = roomy.caps.total.max(most.saturating_mul(8));
    let mut frames = Keyframes::new(u64::MAX, usize::MAX, vec![(event, Moment::Peak)]);
    let options = ReplayOptions::default();
    roomy.replay(&setting.resolved, Placement::Driver, &mut frames, options)?;
    let frame = frames.into_frames().into_iter().find(|frame| frame.moment == Moment::Peak);
    Ok(frame.map(|frame| (event, frame)))
}
