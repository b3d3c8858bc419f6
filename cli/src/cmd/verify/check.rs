//! The check of one file.

use super::files::Candidate;
use super::state;
use crate::args::VerifyArgs;
use crate::choice::{Choice, choose};
use crate::load::{Input, in_file, infer_requests};
use crate::machine::Machine;
use crate::sidecar::Sidecar;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{Recording, TraceError};
use poolsim_policies::pytorch::infer::{Inferred, Unexplained};
use poolsim_sim::parity::{Mismatch, Parity, compare, replay_recorded};
use poolsim_sim::{DeviceProfile, SimConfig};
use poolsim_traces::Source;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Statistics that leave no entry in a snapshot, with what cannot be seen. They may only be higher in the
/// recorded run.
pub const UNTRACED: &[(&str, &str)] = &[
    ("num_sync_all_streams", "an empty_cache() that frees nothing leaves no entry"),
    ("num_alloc_retries", "a failed cudaMalloc with nothing to release leaves no entry"),
];

/// A file that was checked.
pub struct Checked {
    /// The file.
    pub path: PathBuf,
    /// What came of it.
    pub result: Result<Comparison, Refusal>,
}

/// Why a file was not checked.
pub struct Refusal {
    /// What was wrong, and what to do next.
    pub error: String,
    /// It holds no history and was not asked for by name.
    pub skipped: bool,
}

/// A file's comparison.
pub struct Comparison {
    /// The machine that was assumed.
    pub machine: Machine,
    /// The settings in force.
    pub policy: String,
    /// What version of PyTorch the policy reproduces.
    pub policy_version: String,
    /// Entries and blocks.
    pub parity: Parity,
    /// Statistics that were compared.
    pub stats_compared: u64,
    /// Statistics that differ.
    pub stats_differing: Vec<Statistic>,
    /// Statistics that differ in the way that nothing in a snapshot shows.
    pub stats_untraced: Vec<Statistic>,
    /// The state that led to the first mismatch.
    pub state: Vec<String>,
    /// The first entry for which no requests could be found, and why. Nothing after it is verified.
    pub unexplained: Option<Unexplained>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// A statistic of `torch.cuda.memory_stats()`.
pub struct Statistic {
    /// Its name.
    pub name: String,
    /// What PyTorch said.
    pub recorded: i64,
    /// What the policy says.
    pub simulated: i64,
}

impl Comparison {
    /// Everything that differs.
    pub fn mismatches(&self) -> u64 {
        self.parity.mismatches() + self.stats_differing.len() as u64
    }
}

impl Checked {
    /// Nothing differs, and there was something to compare.
    pub fn is_equal(&self) -> bool {
        self.result.as_ref().is_ok_and(|c| c.mismatches() == 0)
    }

    /// Nothing is wrong with it.
    pub fn is_fine(&self) -> bool {
        match &self.result {
            Ok(comparison) => comparison.mismatches() == 0,
            Err(refusal) => refusal.skipped,
        }
    }
}

/// What all checks share.
pub struct Checker<'a> {
    args: &'a VerifyArgs,
    profile: DeviceProfile,
}

impl<'a> Checker<'a> {
    /// A checker for these arguments.
    pub fn new(args: &'a VerifyArgs) -> Self {
        Checker { args, profile: DeviceProfile::h200() }
    }

    /// Checks one file. Whatever is wrong with it becomes part of its result.
    pub fn check(&self, file: &Candidate) -> Checked {
        let result = self.comparison(file).map_err(|error| {
            let kind = error.downcast_ref::<TraceError>().map(|e| e.kind);
            let skipped = file.found && kind == Some(TraceErrorKind::NoEvents);
            Refusal { error: format!("{error:#}"), skipped }
        });
        Checked { path: file.path.clone(), result }
    }

    fn comparison(&self, file: &Candidate) -> anyhow::Result<Comparison> {
        let input = Input::open(&file.path, &self.args.select, &self.args.machine, &self.profile)?;
        let Input { source, mut machine, sidecar, .. } = input;
        let Source::Recording(recording) = source else {
            let what = "is a trace of requests, which hold no decisions to compare; verify a PyTorch snapshot";
            anyhow::bail!("{}: {what}", file.path.display());
        };
        let mut inferred = infer_requests(&recording).map_err(|e| in_file(e, &file.path))?;
        machine.adopt(&inferred.trace.header);
        let mut choices =
            choose(&[], &recording.header, &machine).map_err(|e| in_file(e, &file.path))?;
        let choice = choices.pop().expect("there is always a default");
        if let Some(altered) = inferred.unexplained.as_ref().filter(|u| u.altered) {
            let place = Place::Event(altered.entry);
            let what = format!(
                "{}, so this file was changed after PyTorch wrote it, and does not show what PyTorch decided; verify \
                 the file that it was made from",
                altered.what
            );
            let error = TraceError::new(TraceErrorKind::Illegal, place, what);
            return Err(error.in_file(&file.path).into());
        }
        if recording.header.settings.is_none() {
            let note = "the settings are not recorded: PyTorch's defaults are assumed";
            inferred.notes.push(note.into());
        }
        let inputs = Inputs { recording: *recording, inferred, choice, machine, sidecar };
        self.compare(inputs).map_err(|e| e.in_file(&file.path).into())
    }

    fn compare(&self, inputs: Inputs) -> Result<Comparison, TraceError> {
        let Inputs { recording, inferred, choice, machine, sidecar } = inputs;
        let built =
            choice.resolved.build(&machine.env()).expect("it was built once when it was chosen");
        let mut policy = built.policy;
        let config =
            SimConfig { caps: machine.caps.clone(), ..SimConfig::new(self.profile.clone()) };
        let Inferred { trace, answers, notes, unexplained, .. } = inferred;
        let replayed =
            replay_recorded(&trace, answers.clone(), &mut *policy, config.clone(), None)?;
        let parity = compare(&recording, &replayed);
        let mut comparison = Comparison {
            policy: built.spec.to_string(),
            policy_version: built.version,
            parity,
            stats_compared: 0,
            stats_differing: Vec::new(),
            stats_untraced: Vec::new(),
            state: Vec::new(),
            unexplained: None,
            notes,
            machine,
        };
        if let Some(unexplained) = unexplained {
            comparison.stop_at(unexplained);
            return Ok(comparison);
        }
        comparison.compare_stats(sidecar.as_ref(), policy.native_stats(), &recording);
        if let Some(Mismatch { event: Some(event), simulated, .. }) =
            &comparison.parity.first_mismatch
            && let Some(before) = event.checked_sub(1)
        {
            let env = comparison.machine.env();
            let mut policy = choice.resolved.build(&env).expect("as above").policy;
            let earlier = replay_recorded(&trace, answers, &mut *policy, config, Some(before))?;
            let asked = trace.events.get(*event as usize);
            comparison.state =
                state::describe(&earlier.heap, asked, simulated.as_ref(), &comparison.machine);
        }
        Ok(comparison)
    }
}

struct Inputs {
    recording: Recording,
    inferred: Inferred,
    choice: Choice,
    machine: Machine,
    sidecar: Option<Sidecar>,
}

impl Comparison {
    /// Inference found no requests under which the policy makes this entry. What was replayed instead says
    /// nothing; the entry is the first mismatch, and what follows it counts as different.
    fn stop_at(&mut self, unexplained: Unexplained) {
        let compared = self.parity.entries_compared;
        self.parity.entry_mismatches = compared.saturating_sub(unexplained.entry).max(1);
        self.parity.heap_mismatches = 0;
        self.parity.heap_differences.clear();
        self.parity.first_mismatch = None;
        self.unexplained = Some(unexplained);
    }

    /// Compares the policy's statistics with the sidecar's, if it has some.
    fn compare_stats(
        &mut self,
        sidecar: Option<&Sidecar>,
        simulated: Vec<(String, i64)>,
        recording: &Recording,
    ) {
        let Some(sidecar) = sidecar.filter(|s| !s.stats.is_empty()) else { return };
        if !recording.header.knows.from_start {
            self.notes.push("statistics are not compared: the recording starts late, and peaks and sums go back further".into());
            return;
        }
        let simulated: BTreeMap<String, i64> = simulated.into_iter().collect();
        for (name, recorded) in &sidecar.stats {
            // PyTorch versions differ in which statistics they keep; those that only one side has say nothing.
            let Some(&ours) = simulated.get(name) else { continue };
            self.stats_compared += 1;
            if ours == *recorded {
                continue;
            }
            let statistic = Statistic { name: name.clone(), recorded: *recorded, simulated: ours };
            let untraced = UNTRACED.iter().any(|(n, _)| n == name) && *recorded > ours;
            if untraced {
                self.stats_untraced.push(statistic);
            } else {
                self.stats_differing.push(statistic);
            }
        }
    }
}
