//! One replay on the GPU.

use super::{Gpu, GpuArgs};
use crate::choice::Choice;
use crate::runner::Setting;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{
    Batch, Bytes, Device, DeviceError, DeviceOp, DriverAnswer, EventSource, HeapImage, Ledger,
    Policy, ReplayTarget, SyncScope, TraceError, TraceHeader,
};
use poolsim_policies::Params;
use poolsim_real_backend::{
    CudaDevice, DriverMalloc, DriverPool, Latency, Metered, Mode, PoolOptions, Timed, TimedCall,
    WorkOptions, Worked,
};
use poolsim_sim::observe::{Ooms, Totals};
use poolsim_sim::{Observer, ReplayOptions, RunEnd, replay};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What one replay left behind; everything that it took from the GPU is given back.
pub struct Pass {
    pub end: RunEnd,
    pub totals: Totals,
    pub ooms: Ooms,
    /// Driver calls of the device and of driver allocators together.
    pub ledger: Ledger,
    /// By call, as [`poolsim_core::record::Measured::latency`].
    pub latency: BTreeMap<&'static str, Latency>,
    pub heap: HeapImage,
    pub native_stats: Vec<(String, i64)>,
    pub answers: Vec<DriverAnswer>,
    /// Driver calls, if they were to be kept.
    pub calls: Vec<TimedCall>,
    /// Free memory when the replay started.
    pub free: Bytes,
    pub overwritten_words: Option<u64>,
    /// Frees that the GPU completed at other times than the recording.
    pub overdue: u64,
}

impl Pass {
    /// Time of all requests and frees together.
    pub fn allocator_time(&self) -> u64 {
        ["alloc", "free"].iter().filter_map(|call| self.latency.get(call)).map(Latency::total).sum()
    }
}

/// Which allocator a choice is on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A policy of ours over the driver.
    Ours,
    /// A real `cudaMallocAsync` pool.
    Pool,
    /// Bare `cudaMalloc` and `cudaFree`.
    Plain,
}

impl Kind {
    /// The kind of a choice.
    pub fn of(choice: &Choice) -> Kind {
        match choice.resolved.def.name {
            "cuda-async" => Kind::Pool,
            "cuda-malloc" => Kind::Plain,
            _ => Kind::Ours,
        }
    }
}

/// A device for one replay.
pub fn device(
    gpu: &Gpu,
    args: &GpuArgs,
    keep_log: bool,
    paced: bool,
) -> Result<CudaDevice, DeviceError> {
    let keep_calls = args.calls.is_some();
    let mode = Mode { paced, real_fences: args.work.is_some(), keep_log, keep_calls };
    let mut device = CudaDevice::new(gpu.index, mode)?;
    device.stop_on(Arc::clone(&gpu.stop));
    Ok(device)
}

fn allocator(
    setting: &Setting<'_>,
    choice: &Choice,
    device: &CudaDevice,
    args: &GpuArgs,
) -> Result<Box<dyn Metered>, DeviceError> {
    let machine = &setting.loaded.machine;
    let limit = machine.memory_fraction.map(|x| (machine.caps.total as f64 * x) as Bytes);
    Ok(match Kind::of(choice) {
        Kind::Ours => Box::new(Timed::new(setting.policy(choice))),
        Kind::Plain => Box::new(DriverMalloc::new(device, limit)?),
        Kind::Pool => {
            let options = pool_options(&choice.resolved.params, args.default_pool, limit);
            Box::new(DriverPool::new(device, options)?)
        }
    })
}

/// The parameters of `cuda-async` as a real pool's.
fn pool_options(params: &Params, default_pool: bool, limit: Option<Bytes>) -> PoolOptions {
    PoolOptions {
        default_pool,
        release_threshold: params.bytes_if_set("release_threshold").unwrap_or(Bytes::MAX),
        max_size: params.bytes_if_set("max_size").unwrap_or(0),
        follow_events: params.bool("reuse_follow_event_dependencies"),
        opportunistic: params.bool("reuse_allow_opportunistic"),
        internal: params.bool("reuse_allow_internal_dependencies"),
        limit,
    }
}

/// Replays the whole trace on the GPU.
pub fn pass(
    gpu: &Gpu,
    args: &GpuArgs,
    setting: &Setting<'_>,
    choice: &Choice,
    extra: &mut dyn Observer,
    keep_log: bool,
) -> anyhow::Result<Pass> {
    let mut device = device(gpu, args, keep_log, args.paced)?;
    let inner = allocator(setting, choice, &device, args)?;
    let work = WorkOptions { touch: args.touch, busy: args.work.unwrap_or_default() };
    let mut policy = Worked::new(&device, inner, work)?;
    let mut observer = ((Totals::default(), Ooms::default()), extra);
    let options = ReplayOptions { restore: setting.restore(choice), ..ReplayOptions::default() };
    let mut source = Stoppable::new(setting, &gpu.stop);
    let free = device.free_bytes();
    let end = replay(&mut source, &mut policy, &mut device, &mut observer, &options)
        .map_err(|e| e.in_file(&setting.loaded.path))?;
    let ((totals, ooms), _) = observer;
    let mut ledger = device.ledger().clone();
    let overwritten_words = args.touch.then(|| policy.overwritten_words()).transpose()?;
    device.synchronize(SyncScope::Device)?;
    let mut latency: BTreeMap<&'static str, Latency> =
        device.latencies().map(|(op, latency)| (op.name(), latency.clone())).collect();
    latency.insert("alloc", policy.allocs().clone());
    latency.insert("free", policy.frees().clone());
    for (op, calls) in policy.driver_calls().into_iter().filter(|(_, l)| l.calls() > 0) {
        ledger.charge_many(op, calls.calls(), 0, calls.total());
        latency.entry(op.name()).or_default().merge(calls);
    }
    let mut heap = HeapImage::default();
    policy.visit(&mut heap);
    heap.sort();
    Ok(Pass {
        end,
        totals,
        ooms,
        ledger,
        latency,
        heap,
        native_stats: policy.native_stats(),
        answers: device.answers().to_vec(),
        calls: device.calls().take(),
        free,
        overwritten_words,
        overdue: device.gates().overdue(),
    })
}

/// Adds up the times of driver calls over passes.
pub fn mean_times(passes: &[Ledger]) -> Ledger {
    let mut mean = passes.last().cloned().unwrap_or_default();
    for &op in DeviceOp::ALL {
        let total: u64 = passes.iter().map(|ledger| ledger.time[op as usize]).sum();
        mean.time[op as usize] = total / passes.len().max(1) as u64;
    }
    mean
}

/// A source that ends with an error when Ctrl-C was pressed. It gives few events at a time, so that this is soon.
pub struct Stoppable {
    inner: Box<dyn EventSource>,
    stop: Arc<AtomicBool>,
    batch: Batch,
    next: usize,
}

/// Events between two looks.
const FEW: usize = 64;

impl Stoppable {
    /// The trace of a setting.
    pub fn new(setting: &Setting<'_>, stop: &Arc<AtomicBool>) -> Self {
        Stoppable {
            inner: setting.loaded.events.source(),
            stop: Arc::clone(stop),
            batch: Batch::default(),
            next: 0,
        }
    }
}

impl EventSource for Stoppable {
    fn header(&self) -> &TraceHeader {
        self.inner.header()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        if self.stop.load(Ordering::Relaxed) {
            let what = "stopped by Ctrl-C; all memory of the GPU was given back";
            return Err(TraceError::new(TraceErrorKind::Refused, Place::Whole, what));
        }
        if self.next == self.batch.events.len() {
            self.next = 0;
            if !self.inner.fill(&mut self.batch)? {
                return Ok(false);
            }
        }
        let end = self.batch.events.len().min(self.next + FEW);
        batch.events.extend_from_slice(&self.batch.events[self.next..end]);
        batch.stacks.extend_from_slice(self.batch.stacks.get(self.next..end).unwrap_or(&[]));
        self.next = end;
        Ok(true)
    }
}
