//! Does a policy decide the same on the GPU as in simulation? One replay on the GPU; then one on the simulated device,
//! which answers as the driver did; the two decision logs must be the same, line for line.

mod support;

use poolsim_core::record::Decision;
use poolsim_core::{Action, Device, Nanos, Policy, ReplayTarget, Trace};
use poolsim_policies::{BuildEnv, Registry};
use poolsim_real_backend::{Busy, CudaDevice, Mode, WorkOptions, Worked};
use poolsim_sim::device::{DeviceProfile, Placement, SimConfig, SimDevice};
use poolsim_sim::engine::{ReplayOptions, replay};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use support::{Affordable, Prefix, corpus, gpu, reader, requests};

/// Tests of one process run side by side, and some policies size themselves by what is free.
static ALONE: Mutex<()> = Mutex::new(());

const LOGGED: Mode = Mode { paced: false, real_fences: false, keep_log: true, keep_calls: false };

fn policy(spec: &str, device: &dyn Device) -> Box<dyn Policy> {
    let env = BuildEnv { caps: device.caps().clone(), memory_fraction: None };
    let spec = spec.parse().expect("a legal spec");
    Registry::builtin().build(&spec, &env).expect("a known spec").policy
}

/// Driver time that one replay may cost: a policy that asks the driver for every block would take minutes.
const MOST_TIME: Nanos = 150_000_000;

/// How many events of a trace fit into that time.
fn affordable(spec: &str, trace: &Arc<Trace>, device: &CudaDevice) -> u64 {
    let mut config = SimConfig::new(DeviceProfile::h200());
    config.caps = device.caps().clone();
    let mut simulated = SimDevice::new(config);
    let mut policy = policy(spec, &simulated);
    let mut affordable = Affordable { most: MOST_TIME, events: 0 };
    let options = ReplayOptions::default();
    replay(&mut reader(trace), policy.as_mut(), &mut simulated, &mut affordable, &options)
        .expect("a corpus trace is legal");
    affordable.events
}

/// Free device memory is the one thing in a log that other processes change.
fn comparable(log: &[Decision]) -> Vec<Decision> {
    let blind =
        |d: &Decision| Decision { addr: if d.action == Action::Oom { 0 } else { d.addr }, ..*d };
    log.iter().map(blind).collect()
}

#[test]
fn every_policy_decides_the_same_on_the_gpu_and_in_simulation() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if gpu(Mode::default()).is_none() {
        return;
    }
    let registry = Registry::builtin();
    let all: Vec<&str> = registry
        .defs()
        .iter()
        .map(|d| d.name)
        .chain(["expandable", "max_split_size_mb:128"])
        .collect();
    let start = Instant::now();
    let (mut compared, mut cut, mut lines) = (0, 0, 0);
    for path in corpus() {
        let trace = requests(&path);
        // The same jobs were recorded under several settings: other policies get the same requests from each.
        let first = path.parent().is_some_and(|folder| folder.ends_with("default"));
        let specs =
            if first { &all[..] } else { &["pytorch", "expandable", "max_split_size_mb:128"] };
        for spec in specs {
            let mut device = gpu(LOGGED).expect("there was a GPU a moment ago");
            let events = affordable(spec, &trace, &device);
            let mut on_gpu = policy(spec, &device);
            // Some policies size themselves by what is free.
            let free = device.free_bytes();
            let options = ReplayOptions::default();
            replay(
                &mut Prefix::new(&trace, events),
                on_gpu.as_mut(),
                &mut device,
                &mut (),
                &options,
            )
            .expect("a corpus trace is legal");
            let mut config = SimConfig::new(DeviceProfile::h200());
            config.caps = device.caps().clone();
            config.placement = Placement::Recorded(device.answers().to_vec());
            config.capacity = Some(free);
            config.keep_log = true;
            let mut simulated = SimDevice::new(config);
            let mut in_sim = policy(spec, &simulated);
            replay(
                &mut Prefix::new(&trace, events),
                in_sim.as_mut(),
                &mut simulated,
                &mut (),
                &options,
            )
            .expect("a corpus trace is legal");
            let (real, ours) = (comparable(device.log()), comparable(simulated.log()));
            let first = real.iter().zip(&ours).position(|(a, b)| a != b);
            assert_eq!(
                first,
                None,
                "{spec} on {}: {:?} on the GPU, {:?} in simulation",
                path.display(),
                first.map(|i| real[i]),
                first.map(|i| ours[i])
            );
            assert_eq!(real.len(), ours.len(), "{spec} on {}", path.display());
            assert_eq!(on_gpu.stats(), in_sim.stats(), "{spec} on {}", path.display());
            compared += 1;
            cut += u32::from(events < trace.events.len() as u64);
            lines += real.len();
        }
        println!("{}: the same after {:.1} s", path.display(), start.elapsed().as_secs_f64());
    }
    println!(
        "{compared} replays on the GPU and in simulation agree in {lines} log lines; {cut} of them were cut where \
         their driver calls would have taken more than {} ms",
        MOST_TIME / 1_000_000
    );
}

#[test]
fn no_block_is_handed_out_twice_in_real_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(probe) = gpu(Mode::default()) else { return };
    drop(probe);
    for path in corpus() {
        let trace = requests(&path);
        for spec in ["pytorch", "expandable", "best-fit"] {
            let mode = Mode { real_fences: true, ..Mode::default() };
            let mut device = gpu(mode).expect("there was a GPU a moment ago");
            let work = WorkOptions { touch: true, busy: Busy::For(20_000) };
            let inner = policy(spec, &device);
            let mut worked = Worked::new(&device, inner, work).expect("kernels load");
            replay(
                &mut reader(&trace),
                &mut worked,
                &mut device,
                &mut (),
                &ReplayOptions::default(),
            )
            .expect("a corpus trace is legal");
            let wrong = worked.overwritten_words().expect("the device works");
            assert_eq!(wrong, 0, "{spec} on {}", path.display());
        }
        println!("{}: no overlap", path.display());
    }
}

/// The check itself: a policy that hands the same memory to everybody is caught.
#[test]
fn overlap_is_caught_on_the_device() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut device) = gpu(Mode::default()) else { return };
    let inner = Overlapping::new(&mut device);
    let work = WorkOptions { touch: true, busy: Busy::Never };
    let mut worked = Worked::new(&device, inner, work).expect("kernels load");
    let request = |slot| poolsim_core::AllocRequest {
        size: 4096,
        stream: poolsim_core::StreamId(0),
        pool: poolsim_core::PoolId::DEFAULT,
        slot: poolsim_core::Slot(slot),
    };
    let first = worked.malloc(&mut device, request(0)).expect("it always grants");
    worked.malloc(&mut device, request(1)).expect("it always grants");
    worked.free(&mut device, first.block);
    assert_eq!(worked.overwritten_words().expect("the device works"), 1024);
}

struct Overlapping {
    addr: u64,
    next: u32,
    stats: poolsim_core::PoolStats,
}

impl Overlapping {
    fn new(device: &mut CudaDevice) -> Self {
        let range = device.reserve(2 << 20, poolsim_core::Backing::Whole).expect("2 MiB are there");
        Overlapping { addr: range.addr, next: 0, stats: poolsim_core::PoolStats::default() }
    }
}

impl Policy for Overlapping {
    fn malloc(
        &mut self,
        _: &mut dyn Device,
        req: poolsim_core::AllocRequest,
    ) -> Result<poolsim_core::Grant, poolsim_core::AllocError> {
        self.next += 1;
        let block = poolsim_core::BlockId(self.next);
        Ok(poolsim_core::Grant { block, addr: self.addr, size: req.size })
    }
    fn free(&mut self, _: &mut dyn Device, _: poolsim_core::BlockId) {}
    fn record_stream(
        &mut self,
        _: &mut dyn Device,
        _: poolsim_core::BlockId,
        _: poolsim_core::StreamId,
    ) {
    }
    fn empty_cache(&mut self, _: &mut dyn Device) -> u64 {
        0
    }
    fn stats(&self) -> &poolsim_core::PoolStats {
        &self.stats
    }
    fn visit(&self, _: &mut dyn poolsim_core::HeapVisitor) {}
}
