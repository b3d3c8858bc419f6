//! Whether simulation and GPU decided the same.

use crate::choice::Choice;
use crate::gpu::{Driver, GpuArgs, Kind};
use crate::runner::Setting;
use poolsim_core::record::Decision;
use poolsim_core::{Action, Bytes, DevAddr};
use poolsim_sim::{Observer, Outcome, Placement, ReplayOptions, Step, replay};
use serde::Serialize;

/// What came out of the comparison.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Parity {
    /// Every line is the same.
    Same {
        /// What a line is.
        lines_are: &'static str,
        /// How many there are.
        lines: usize,
    },
    /// They part.
    Differs {
        /// What a line is.
        lines_are: &'static str,
        /// Lines that are the same.
        lines: usize,
        /// The first pair that differs, in words.
        first: String,
    },
    /// There is nothing to compare.
    NotCompared {
        /// Why.
        why: &'static str,
    },
}

impl Parity {
    /// Whether a difference was found.
    pub fn differs(&self) -> bool {
        matches!(self, Parity::Differs { .. })
    }
}

/// What a run did, kept for the comparison.
pub enum Watcher {
    /// Every line of the decision log.
    Decisions(Vec<Decision>),
    /// After each event, the pool's answer.
    Answers(Vec<Answer>),
}

/// A driver pool's answer to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    event: u64,
    /// The pointer, counted from the first that the pool gave; `None` without a grant.
    at: Option<i64>,
    reserved: Bytes,
}

impl Watcher {
    /// A watcher for what can be compared of a choice.
    pub fn new(choice: &Choice) -> Self {
        match Kind::of(choice) {
            Kind::Ours | Kind::Plain => Watcher::Decisions(Vec::new()),
            Kind::Pool => Watcher::Answers(Vec::new()),
        }
    }
}

impl Observer for Watcher {
    fn on_step(&mut self, step: &Step<'_>) {
        match self {
            Watcher::Decisions(log) => log.extend_from_slice(step.log),
            Watcher::Answers(answers) => {
                let at = match step.outcome {
                    Outcome::Granted(grant) => Some(grant.addr as i64),
                    _ => None,
                };
                let reserved = step.stats.reserved.current;
                answers.push(Answer { event: step.index, at, reserved });
            }
        }
    }

    fn drains_log(&self) -> bool {
        true
    }
}

/// Simulates with what the driver answered, and compares.
pub fn check(
    setting: &Setting<'_>,
    choice: &Choice,
    args: &GpuArgs,
    on_gpu: &Watcher,
    driver: Driver,
) -> anyhow::Result<Parity> {
    if args.work.is_some() {
        let why = "with real work in flight, the GPU decides when frees complete";
        return Ok(Parity::NotCompared { why });
    }
    let placement = match Kind::of(choice) {
        Kind::Ours => Placement::Recorded(driver.answers),
        Kind::Pool => Placement::Driver,
        Kind::Plain => {
            let why = "the driver alone decides where a cudaMalloc goes";
            return Ok(Parity::NotCompared { why });
        }
    };
    // Some policies size themselves by what is free.
    let mut device = setting.device_with(placement, Some(driver.free), true);
    let mut policy = setting.policy(choice);
    let mut in_sim = Watcher::new(choice);
    let options = ReplayOptions { restore: setting.restore(choice), ..ReplayOptions::default() };
    let mut source = setting.loaded.events.source();
    replay(&mut *source, &mut policy, &mut device, &mut in_sim, &options)?;
    Ok(match (on_gpu, &in_sim) {
        (Watcher::Decisions(real), Watcher::Decisions(ours)) => {
            lines("decisions", &blind(real), &blind(ours))
        }
        (Watcher::Answers(real), Watcher::Answers(ours)) => {
            lines("pointers and reserved bytes after each event", &relative(real), &relative(ours))
        }
        _ => unreachable!("both watch the same choice"),
    })
}

/// The address of a refused request's line is free device memory, which other processes change.
fn blind(log: &[Decision]) -> Vec<Decision> {
    let blind =
        |d: &Decision| Decision { addr: if d.action == Action::Oom { 0 } else { d.addr }, ..*d };
    log.iter().map(blind).collect()
}

fn relative(answers: &[Answer]) -> Vec<Answer> {
    let base: DevAddr = answers.iter().find_map(|a| a.at).unwrap_or(0) as DevAddr;
    answers.iter().map(|a| Answer { at: a.at.map(|at| at - base as i64), ..*a }).collect()
}

fn lines<T: PartialEq + std::fmt::Debug>(
    lines_are: &'static str,
    real: &[T],
    ours: &[T],
) -> Parity {
    let same = real.iter().zip(ours).take_while(|(a, b)| a == b).count();
    if same == real.len() && same == ours.len() {
        return Parity::Same { lines_are, lines: same };
    }
    let show = |log: &[T]| log.get(same).map_or("nothing".into(), |line| format!("{line:?}"));
    let first = format!("on the GPU {}, in simulation {}", show(real), show(ours));
    Parity::Differs { lines_are, lines: same, first }
}
