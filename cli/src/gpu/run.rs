//! Repeated replays on the GPU, and the record of them.

use super::calls::CallRows;
use super::interval::interval;
use super::pass::{Kind, Pass, Stoppable, device, mean_times, pass};
use super::{Gpu, GpuArgs};
use crate::choice::Choice;
use crate::runner::{Finished, Setting, Verdict};
use poolsim_core::record::{Measured, Provenance};
use poolsim_core::units::ShowBytes;
use poolsim_core::{Bytes, DriverAnswer, Ledger};
use poolsim_real_backend::{Latency, driver_pace, timer_cost};
use poolsim_sim::observe::{PeakState, RunFacts, peak_state, run_record};
use poolsim_sim::{Observer, Placement, ReplayOptions, RunEnd, replay};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// Runs of one trace on one GPU.
pub struct OnGpu<'a> {
    /// The GPU.
    pub gpu: &'a Gpu,
    /// How to run.
    pub args: &'a GpuArgs,
    /// The trace, and a simulated machine that is the GPU's.
    pub setting: &'a Setting<'a>,
    calls: Option<RefCell<CallRows>>,
}

/// What a simulation needs to answer as the driver did.
pub struct Driver {
    /// Free memory when the run started.
    pub free: Bytes,
    /// Its answers, if a log was kept.
    pub answers: Vec<DriverAnswer>,
}

/// How long to wait after a run that held so much: the driver clears memory that was given back, at some 370 GB/s when
/// measured, and a request for memory that is not clear yet waits for it, up to fifty times as long as it takes else.
fn rest_after(held: Bytes) -> Duration {
    Duration::from_millis(20) + Duration::from_millis(6) * (held >> 30) as u32
}

/// What the measured passes add up to.
#[derive(Default)]
struct Sums {
    ledgers: Vec<Ledger>,
    latency: BTreeMap<&'static str, Latency>,
    by_repeat: BTreeMap<&'static str, Vec<f64>>,
    peaks: Vec<Bytes>,
    overwritten: Option<u64>,
    /// The driver's pace beside each pass.
    pace: f64,
    overdue: u64,
}

impl<'a> OnGpu<'a> {
    /// Runs of a trace. Makes the file of `--calls`, if there is to be one.
    ///
    /// # Errors
    /// Names that file.
    pub fn new(gpu: &'a Gpu, args: &'a GpuArgs, setting: &'a Setting<'a>) -> anyhow::Result<Self> {
        let calls = args.calls.as_deref().map(CallRows::create).transpose()?.map(RefCell::new);
        Ok(OnGpu { gpu, args, setting, calls })
    }

    /// Replays the trace: once to warm up with `extra` watching, then as often as is to be measured. Returns what the
    /// driver was and answered in the first run.
    ///
    /// # Errors
    /// Those of the trace and the driver; too little free memory; Ctrl-C.
    pub fn run(
        &self,
        choice: &Choice,
        extra: &mut dyn Observer,
        keep_log: bool,
    ) -> anyhow::Result<(Finished, Driver)> {
        self.check_room(choice)?;
        let (warmup, repeats) = (self.args.warmup.unwrap_or(1), self.args.repeat.unwrap_or(5));
        let first = self.pass(choice, extra, keep_log)?;
        let rest = rest_after(first.end.stats.reserved.peak);
        for _ in 1..warmup {
            std::thread::sleep(rest);
            self.pass(choice, &mut (), false)?;
        }
        let free_before = self.gpu.free()?;
        let mut sums = Sums::default();
        let mut last = None;
        for repeat in 0..repeats {
            std::thread::sleep(rest);
            let before = driver_pace(&self.gpu.context)?;
            let pass = self.pass(choice, &mut (), false)?;
            sums.pace += (before + driver_pace(&self.gpu.context)?) / 2.0;
            sums.add(&pass);
            if let Some(rows) = &self.calls {
                let profile = self.setting.profile;
                rows.borrow_mut().add(&choice.label, repeat, &pass.calls, profile)?;
            }
            last = Some(pass);
        }
        let last = last.expect("there is at least one repeat");
        let peak = self.peak(choice, &last)?;
        std::thread::sleep(rest);
        let free_after = self.gpu.free()?;
        let warnings = self.warnings(choice, &last, &sums, free_before, free_after);
        let mut record = run_record(RunFacts {
            provenance: self.provenance(choice),
            end: &last.end,
            ledger: &mean_times(&sums.ledgers),
            totals: &last.totals,
            ooms: &last.ooms,
            peak,
            warnings,
        });
        record.measured = Some(Measured {
            mode: self.args.mode(),
            warmup,
            repeats,
            timer_cost_ns: timer_cost(),
            driver_pace_ns: Some(sums.pace / f64::from(repeats)),
            latency: sums.latency.iter().map(|(&k, l)| (k.into(), l.summary())).collect(),
            intervals: sums.by_repeat.iter().map(|(&k, v)| (k.into(), interval(v))).collect(),
            device_free_bytes: [free_before, free_after],
            overwritten_words: sums.overwritten,
        });
        let verdict = if last.end.ooms > 0 { Verdict::OutOfMemory } else { Verdict::Fits };
        let Pass { heap, native_stats, .. } = last;
        let driver = Driver { free: first.free, answers: first.answers };
        let latency = sums.latency.into_iter().collect();
        let finished = Finished { record, verdict, native_stats, heap, peak_event: None, latency };
        Ok((finished, driver))
    }

    fn pass(
        &self,
        choice: &Choice,
        extra: &mut dyn Observer,
        keep_log: bool,
    ) -> anyhow::Result<Pass> {
        pass(self.gpu, self.args, self.setting, choice, extra, keep_log)
    }

    /// Refuses what cannot fit: a simulation on the memory that is free refuses more requests than one with all of it.
    /// Policies that take what they get fit.
    fn check_room(&self, choice: &Choice) -> anyhow::Result<()> {
        let free = self.gpu.free()?;
        let whole = self.simulate(choice, None)?;
        let needed = whole.stats.reserved.peak;
        anyhow::ensure!(
            needed <= free || self.simulate(choice, Some(free))?.ooms <= whole.ooms,
            "the replay would take {} (its peak in simulation), and GPU {} has {} free of {}; end what else runs there, \
             or choose another GPU with --gpu",
            ShowBytes(needed),
            self.gpu.index,
            ShowBytes(free),
            ShowBytes(self.gpu.caps.total)
        );
        Ok(())
    }

    fn simulate(&self, choice: &Choice, capacity: Option<Bytes>) -> anyhow::Result<RunEnd> {
        let mut policy = self.setting.policy(choice);
        let mut device = self.setting.device_with(Placement::Driver, capacity, false);
        let options =
            ReplayOptions { restore: self.setting.restore(choice), ..ReplayOptions::default() };
        let mut source = self.setting.loaded.events.source();
        Ok(replay(&mut *source, &mut policy, &mut device, &mut (), &options)
            .map_err(|e| e.in_file(&self.setting.loaded.path))?)
    }

    /// Where the peak's bytes went, in one more replay; a driver allocator does not show its heap.
    fn peak(&self, choice: &Choice, last: &Pass) -> anyhow::Result<Option<PeakState>> {
        let Some(event) = last.totals.peak_event().filter(|_| Kind::of(choice) == Kind::Ours)
        else {
            return Ok(None);
        };
        let mut device = device(self.gpu, &GpuArgs::default(), false, false)?;
        let mut policy = self.setting.policy(choice);
        let mut source = Stoppable::new(self.setting, &self.gpu.stop);
        let restore = self.setting.restore(choice);
        Ok(Some(peak_state(&mut source, &mut policy, &mut device, restore, event)?))
    }

    fn warnings(
        &self,
        choice: &Choice,
        last: &Pass,
        sums: &Sums,
        free_before: Bytes,
        free_after: Bytes,
    ) -> Vec<String> {
        let mut warnings = self.setting.start_words(choice, &last.end);
        let (least, most) = (sums.peaks.iter().min(), sums.peaks.iter().max());
        if let (Some(&least), Some(&most)) = (least, most)
            && least != most
        {
            warnings.push(format!(
                "the repeats reserved from {} to {} at their peaks; memory figures are the last one's",
                ShowBytes(least),
                ShowBytes(most)
            ));
        }
        if free_before != free_after {
            warnings.push(format!(
                "the device had {} free before the measured runs and {} after them; another process took or gave back the \
                 difference",
                ShowBytes(free_before),
                ShowBytes(free_after)
            ));
        }
        if sums.overdue > 0 {
            warnings.push(format!(
                "{} frees could not be held back until the recorded completion",
                sums.overdue
            ));
        }
        if let Some(words) = sums.overwritten.filter(|&n| n > 0) {
            warnings.push(format!(
                "{words} words of device memory were overwritten while their blocks were in use: blocks overlapped"
            ));
        }
        warnings
    }

    fn provenance(&self, choice: &Choice) -> Provenance {
        let policy_version = match Kind::of(choice) {
            Kind::Ours => None,
            Kind::Pool => Some("the real cudaMallocAsync pool"),
            Kind::Plain => Some("the real cudaMalloc"),
        };
        let simulated = self.setting.provenance(choice);
        Provenance {
            target: "gpu".into(),
            policy_version: policy_version.map_or(simulated.policy_version, Into::into),
            device_profile: format!(
                "measured: {}, driver for CUDA {}",
                self.gpu.caps.name, self.gpu.cuda
            ),
            placement: "driver".into(),
            ..simulated
        }
    }
}

impl Sums {
    fn add(&mut self, pass: &Pass) {
        let mut note = |name, value| self.by_repeat.entry(name).or_default().push(value);
        note("device_time_ns", pass.ledger.total_time() as f64);
        note("allocator_time_ns", pass.allocator_time() as f64);
        for (call, p50, p99) in
            [("alloc", "alloc_p50_ns", "alloc_p99_ns"), ("free", "free_p50_ns", "free_p99_ns")]
        {
            let summary = pass.latency[call].summary();
            note(p50, summary.p50_ns as f64);
            note(p99, summary.p99_ns as f64);
        }
        self.ledgers.push(pass.ledger.clone());
        self.peaks.push(pass.end.stats.reserved.peak);
        for (&call, latency) in &pass.latency {
            self.latency.entry(call).or_default().merge(latency);
        }
        if let Some(words) = pass.overwritten_words {
            *self.overwritten.get_or_insert(0) += words;
        }
        self.overdue += pass.overdue;
    }
}
