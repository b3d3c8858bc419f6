//! One run: a policy, a trace, a simulated device, and the record of it.

use crate::choice::Choice;
use crate::lacks::lacks;
use crate::load::{Events, Loaded};
use poolsim_core::record::{Provenance, Timing};
use poolsim_core::{Bytes, HeapImage, Policy, RunRecord, TraceError};
use poolsim_real_backend::Latency;
use poolsim_reports::quantity::show_plural;
use poolsim_sim::observe::{Ooms, RunFacts, Totals, peak_state, run_record};
use poolsim_sim::{
    DeviceProfile, Observer, Placement, ReplayOptions, RunEnd, SimConfig, SimDevice, replay,
};

/// What all runs of a command share.
pub struct Setting<'a> {
    /// The trace, and the machine to simulate.
    pub loaded: &'a Loaded,
    /// What device calls cost.
    pub profile: &'a DeviceProfile,
    /// Bytes of the device that the job can have.
    pub capacity: Option<Bytes>,
    /// The heap before the first event, where the trace has one.
    pub initial_heap: Option<HeapImage>,
}

/// A run that is over.
pub struct Finished {
    /// What it was and what it measured.
    pub record: RunRecord,
    /// Whether the job ran out of memory.
    pub verdict: Verdict,
    /// The policy's own statistics.
    pub native_stats: Vec<(String, i64)>,
    /// The heap after the last event.
    pub heap: HeapImage,
    /// The event at which reserved bytes first reached their peak.
    pub peak_event: Option<u64>,
    /// Times of calls where the clock measured them: on a GPU.
    pub latency: Vec<(&'static str, Latency)>,
}

/// Whether the job had enough memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No request was refused.
    Fits,
    /// Some request was refused.
    OutOfMemory,
    /// It hangs on where the driver puts memory, of which there is a model only.
    Uncertain,
}

impl<'a> Setting<'a> {
    /// A setting without a bound.
    pub fn new(
        loaded: &'a Loaded,
        profile: &'a DeviceProfile,
        capacity: Option<Bytes>,
    ) -> anyhow::Result<Self> {
        let initial_heap = match &loaded.events {
            Events::Memory(trace) => trace.initial_heap.clone(),
            Events::Stream(reader) => reader.tables()?.initial_heap,
        };
        Ok(Setting { loaded, profile, capacity, initial_heap })
    }

    /// A fresh device.
    pub fn device(&self, placement: Placement, keep_log: bool) -> SimDevice {
        self.device_with(placement, self.capacity, keep_log)
    }

    /// A fresh device of which the job can have so much.
    pub fn device_with(
        &self,
        placement: Placement,
        capacity: Option<Bytes>,
        keep_log: bool,
    ) -> SimDevice {
        SimDevice::new(SimConfig {
            caps: self.loaded.machine.caps.clone(),
            profile: self.profile.clone(),
            capacity,
            placement,
            keep_log,
        })
    }

    /// A fresh policy.
    pub fn policy(&self, choice: &Choice) -> Box<dyn Policy> {
        let built = choice.resolved.build(&self.loaded.machine.env());
        built.expect("it was built once when it was chosen").policy
    }

    /// The recorded heap, for runs under the recorded settings; others get its allocations as requests, as they
    /// would have laid them out.
    pub fn restore(&self, choice: &Choice) -> Option<&HeapImage> {
        self.initial_heap.as_ref().filter(|_| choice.as_recorded)
    }

    /// Runs a policy over the whole trace, with `extra` watching.
    ///
    /// # Errors
    /// Those of the trace.
    pub fn run(
        &self,
        choice: &Choice,
        extra: &mut dyn Observer,
        keep_log: bool,
    ) -> Result<Finished, TraceError> {
        let mut device = self.device(Placement::Driver, keep_log);
        let mut policy = self.policy(choice);
        let mut observer = ((Totals::default(), Ooms::default()), extra);
        let options = ReplayOptions { restore: self.restore(choice), ..ReplayOptions::default() };
        let mut source = self.loaded.events.source();
        let end = replay(&mut *source, &mut policy, &mut device, &mut observer, &options)
            .map_err(|e| e.in_file(&self.loaded.path))?;
        let ((totals, ooms), _) = observer;
        let peak = match totals.peak_event() {
            Some(event) => Some(self.peak(choice, event)?),
            None => None,
        };
        let mut heap = HeapImage::default();
        policy.visit(&mut heap);
        heap.sort();
        let (verdict, doubt) = self.verdict(choice, &end)?;
        let header = self.loaded.events.header();
        let mut warnings: Vec<String> = lacks(header).into_iter().map(String::from).collect();
        warnings.extend(self.start_words(choice, &end));
        warnings.extend(doubt);
        let record = run_record(RunFacts {
            provenance: self.provenance(choice),
            end: &end,
            ledger: poolsim_core::ReplayTarget::ledger(&device),
            totals: &totals,
            ooms: &ooms,
            peak,
            warnings,
        });
        Ok(Finished {
            record,
            verdict,
            native_stats: policy.native_stats(),
            heap,
            peak_event: totals.peak_event(),
            latency: Vec::new(),
        })
    }

    fn peak(
        &self,
        choice: &Choice,
        event: u64,
    ) -> Result<poolsim_sim::observe::PeakState, TraceError> {
        let mut source = self.loaded.events.source();
        let mut policy = self.policy(choice);
        let mut device = self.device(Placement::Driver, false);
        peak_state(&mut *source, &mut policy, &mut device, self.restore(choice), event)
    }

    /// Whether the job lived; where it met its limit, also under other placements that the driver could have chosen.
    fn verdict(
        &self,
        choice: &Choice,
        end: &RunEnd,
    ) -> Result<(Verdict, Option<String>), TraceError> {
        let ran_out = end.ooms > 0;
        let plain = if ran_out { Verdict::OutOfMemory } else { Verdict::Fits };
        if !ran_out && end.stats.retries == 0 {
            return Ok((plain, None));
        }
        for alternative in Placement::VARIANTS {
            let mut source = self.loaded.events.source();
            let mut policy = self.policy(choice);
            let mut device = self.device(alternative.clone(), false);
            let options =
                ReplayOptions { restore: self.restore(choice), ..ReplayOptions::default() };
            let other = replay(&mut *source, &mut policy, &mut device, &mut (), &options)?;
            if (other.ooms > 0) != ran_out {
                let word = |n| if n == 0 { "none".to_string() } else { show_plural(n, "request") };
                let text = format!(
                    "uncertain: near its limit this run hangs on which of equal free blocks lies lower, and so on \
                     where the driver puts memory: {} refused by the model, {} with another placement",
                    word(end.ooms),
                    word(other.ooms)
                );
                return Ok((Verdict::Uncertain, Some(text)));
            }
        }
        Ok((plain, None))
    }

    /// How the run started, where the trace does not start at the beginning.
    pub fn start_words(&self, choice: &Choice, end: &RunEnd) -> Vec<String> {
        if self.loaded.events.header().knows.from_start {
            return Vec::new();
        }
        let text = if end.restored {
            "the trace starts late: the run started from the recorded heap"
        } else if choice.as_recorded {
            "the trace starts late: what was live then was requested first, in an empty heap"
        } else {
            "the trace starts late: what was live then was requested first, in an empty heap, as this policy has no \
             recorded one"
        };
        vec![text.into()]
    }

    /// What a run of this choice is.
    pub fn provenance(&self, choice: &Choice) -> Provenance {
        let built = choice.resolved.build(&self.loaded.machine.env());
        let built = built.expect("it was built once when it was chosen");
        Provenance {
            poolsim_version: env!("CARGO_PKG_VERSION").into(),
            trace_digest: self.loaded.digest.clone(),
            trace: self.loaded.path.display().to_string(),
            policy: built.spec.to_string(),
            policy_version: built.version,
            target: "sim".into(),
            device: Some(self.loaded.machine.caps.clone()),
            capacity: self.capacity,
            memory_fraction: self.loaded.machine.memory_fraction,
            device_profile: format!("{}: {}", self.profile.name, self.profile.provenance),
            placement: "driver-model".into(),
            seed: 0,
            timing: Timing::Open,
        }
    }
}
