//! A trace with the machine that it is to run on, and what a run of it comes to.

use poolsim_core::metric::name;
use poolsim_core::record::{Provenance, RunRecord, Value};
use poolsim_core::{
    Bytes, DeviceCaps, EventKind, HeapImage, Nanos, Policy, PoolId, ReplayTarget, StreamId, Trace,
    TraceError, TraceReader,
};
use poolsim_policies::{BuildEnv, Resolved};
use poolsim_sim::bound::Lifetimes;
use poolsim_sim::observe::{Ooms, PeakLosses, RunFacts, Totals, run_record};
use poolsim_sim::{
    DeviceProfile, Observer, Placement, ReplayOptions, RunEnd, SimConfig, SimDevice, replay,
};
use serde::Serialize;
use std::sync::Arc;

/// A trace and the machine that it is to run on.
#[derive(Clone)]
pub struct Job {
    /// What the program asks for.
    pub trace: Arc<Trace>,
    /// The device.
    pub caps: DeviceCaps,
    /// The share of the device that the program lets its allocator take, if it sets one.
    pub memory_fraction: Option<f64>,
    /// Bytes of the device that the job can have; `None` for all.
    pub capacity: Option<Bytes>,
    /// What device calls cost.
    pub profile: DeviceProfile,
    /// The settings that the trace was recorded under. A run under them starts from the recorded heap, where the trace
    /// has one; other settings would have laid it out otherwise and get it as requests.
    pub recorded: Option<Resolved>,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Measured {
    /// Requests that were refused.
    pub ooms: u64,
    /// Times that the policy released its cache and tried again.
    pub retries: u64,
    /// Highest number of bytes held from the device.
    pub peak_reserved_bytes: Bytes,
    /// Highest sum of blocks in use, frees that wait included.
    pub peak_active_bytes: Bytes,
    /// Reserved bytes after the last event.
    pub final_reserved_bytes: Bytes,
    /// Predicted time in device calls.
    pub device_time_ns: Nanos,
    /// Device calls.
    pub device_calls: u64,
}

impl Measured {
    /// Whether every request was served.
    pub fn lives(&self) -> bool {
        self.ooms == 0
    }
}

impl Job {
    /// What a policy may know of the machine.
    pub fn env(&self) -> BuildEnv {
        BuildEnv { caps: self.caps.clone(), memory_fraction: self.memory_fraction }
    }

    /// The most that the allocator can have: the smallest of device, capacity and memory fraction.
    pub fn limit(&self) -> Bytes {
        let share = self.memory_fraction.filter(|share| *share < 1.0);
        let allowed = share.map_or(Bytes::MAX, |share| (share * self.caps.total as f64) as Bytes);
        self.caps.total.min(self.capacity.unwrap_or(Bytes::MAX)).min(allowed)
    }

    /// The same job on another trace.
    pub fn with_trace(&self, trace: Arc<Trace>) -> Job {
        Job { trace, ..self.clone() }
    }

    /// Whether runs under the recorded settings start from a recorded heap. Others cannot be compared with those.
    pub fn starts_late(&self) -> bool {
        self.trace.initial_heap.is_some() && self.recorded.is_some()
    }

    /// The same job from an empty heap: what a recorded one held is asked for first. So all settings start alike.
    pub fn from_empty(&self) -> Job {
        if self.trace.initial_heap.is_none() {
            return self.clone();
        }
        let trace = Trace { initial_heap: None, ..Trace::clone(&self.trace) };
        self.with_trace(Arc::new(trace))
    }

    /// The same job, in which of refusals in a row only the first asks for anything: the program asked again at once, often
    /// for less (as cuDNN does when it tries one algorithm after another), and had the first been served, it would not have.
    /// In a row: on the same stream, from the same pool, with no request, free or use in between.
    pub fn with_refusals_in_a_row_as_one(&self) -> Job {
        let mut events = self.trace.events.clone();
        let mut last: Option<(StreamId, PoolId)> = None;
        let mut changed = false;
        for event in &mut events {
            let asks_at = (event.stream, event.pool());
            match event.kind() {
                EventKind::AllocRefused if last == Some(asks_at) => {
                    changed = true;
                    event.size = 0;
                }
                EventKind::AllocRefused => last = Some(asks_at),
                EventKind::FreeDone
                | EventKind::EmptyCache
                | EventKind::SyncStream
                | EventKind::SyncDevice => {}
                _ => last = None,
            }
        }
        if !changed {
            return self.clone();
        }
        self.with_trace(Arc::new(Trace { events, ..Trace::clone(&self.trace) }))
    }

    /// The same job with another capacity.
    pub fn with_capacity(&self, capacity: Option<Bytes>) -> Job {
        Job { capacity, ..self.clone() }
    }

    /// How long the recorded program ran, if it says so.
    pub fn span(&self) -> Option<Nanos> {
        let events = &self.trace.events;
        let span = events.last()?.at - events.first()?.at;
        (self.trace.header.knows.times && span > 0).then_some(span)
    }

    fn restore(&self, setting: &Resolved) -> Option<&HeapImage> {
        let same = self.recorded.as_ref().is_some_and(|r| r.spec() == setting.spec());
        self.trace.initial_heap.as_ref().filter(|_| same)
    }

    /// Replays the trace under a setting, with `observer` watching.
    ///
    /// # Errors
    /// Those of the trace.
    ///
    /// # Panics
    /// If the setting cannot be built; [`Setting`](crate::Setting)s were built once when they were made.
    pub fn replay<O: Observer + ?Sized>(
        &self,
        setting: &Resolved,
        placement: Placement,
        observer: &mut O,
        options: ReplayOptions<'_>,
    ) -> Result<(RunEnd, SimDevice), TraceError> {
        let built = setting.build(&self.env()).expect("settings are built when they are made");
        let options = ReplayOptions { restore: self.restore(setting), ..options };
        self.replay_policy(built.policy, placement, observer, options)
    }

    /// Replays the trace through a policy that no setting stands for.
    ///
    /// # Errors
    /// Those of the trace.
    pub fn replay_policy<O: Observer + ?Sized>(
        &self,
        mut policy: Box<dyn Policy>,
        placement: Placement,
        observer: &mut O,
        options: ReplayOptions<'_>,
    ) -> Result<(RunEnd, SimDevice), TraceError> {
        let mut device = SimDevice::new(SimConfig {
            caps: self.caps.clone(),
            profile: self.profile.clone(),
            capacity: self.capacity,
            placement,
            keep_log: false,
        });
        let mut source = TraceReader::new(Arc::clone(&self.trace));
        let end = replay(&mut source, &mut policy, &mut device, observer, &options)?;
        Ok((end, device))
    }

    /// The record of a run under a setting, with every metric that a simulated run has.
    ///
    /// # Errors
    /// Those of the trace.
    pub fn record(&self, setting: &Resolved) -> Result<RunRecord, TraceError> {
        let mut observer = (Totals::default(), Ooms::default());
        let options = ReplayOptions::default();
        let (end, device) = self.replay(setting, Placement::Driver, &mut observer, options)?;
        let (totals, ooms) = observer;
        let peak = match totals.peak_event() {
            Some(event) => {
                let mut losses = PeakLosses::at(event);
                self.replay(setting, Placement::Driver, &mut losses, options)?;
                Some(losses.state())
            }
            None => None,
        };
        let mut record = run_record(RunFacts {
            provenance: Provenance { policy: setting.spec().to_string(), ..Provenance::default() },
            end: &end,
            ledger: device.ledger(),
            totals: &totals,
            ooms: &ooms,
            peak,
            warnings: Vec::new(),
        });
        let lifetimes = Lifetimes::read(&mut TraceReader::new(Arc::clone(&self.trace)))?;
        record.set(name::live_bound_bytes, Value::Int(lifetimes.peak(|item| item.size)));
        Ok(record)
    }

    /// What the trace comes to under a setting.
    ///
    /// # Errors
    /// Those of the trace.
    pub fn measure(&self, setting: &Resolved) -> Result<Measured, TraceError> {
        self.measure_at(setting, Placement::Driver)
    }

    /// The same where the driver places otherwise.
    ///
    /// # Errors
    /// Those of the trace.
    pub fn measure_at(
        &self,
        setting: &Resolved,
        placement: Placement,
    ) -> Result<Measured, TraceError> {
        let (end, device) = self.replay(setting, placement, &mut (), ReplayOptions::default())?;
        Ok(Measured::of(&end, &device))
    }
}

impl Measured {
    /// What a run came to.
    pub fn of(end: &RunEnd, device: &SimDevice) -> Measured {
        let ledger = device.ledger();
        Measured {
            ooms: end.ooms,
            retries: end.stats.retries,
            peak_reserved_bytes: end.stats.reserved.peak,
            peak_active_bytes: end.stats.active.peak,
            final_reserved_bytes: end.stats.reserved.current,
            device_time_ns: ledger.total_time(),
            device_calls: ledger.calls.iter().sum(),
        }
    }
}
