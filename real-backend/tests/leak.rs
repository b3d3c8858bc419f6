//! Does everything come back? After each replay, whatever happened in it, the driver must report the memory that was
//! free before.

mod support;

use poolsim_core::{Backing, Device, DeviceError, Policy, ReplayTarget};
use poolsim_policies::{BuildEnv, Registry};
use poolsim_real_backend::{Context, DriverPool, Mode, PoolOptions};
use poolsim_sim::engine::{ReplayOptions, replay};
use std::sync::{Mutex, PoisonError};
use support::{corpus, gpu, reader, requests};

/// Tests of one process run side by side, and free memory is everybody's.
static ALONE: Mutex<()> = Mutex::new(());

/// The driver keeps a few MiB of its own after the first use of a feature, so each check runs once to warm up.
fn check(what: &str, context: &Context, mut run: impl FnMut()) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    run();
    let before = context.memory().expect("the device answers").0;
    run();
    let after = context.memory().expect("the device answers").0;
    assert_eq!(before, after, "{what}: free memory before and after");
}

#[test]
fn replays_of_every_policy_leave_nothing_allocated() {
    let Some(device) = gpu(Mode::default()) else { return };
    let context = device.context().clone();
    let path = corpus().into_iter().next().expect("the corpus is not empty");
    let trace = requests(&path);
    for def in Registry::builtin().defs() {
        check(def.name, &context, || {
            let mut device = gpu(Mode::default()).expect("there was a GPU a moment ago");
            let env = BuildEnv { caps: device.caps().clone(), memory_fraction: None };
            let spec = def.name.parse().expect("a name is a spec");
            let mut policy = Registry::builtin().build(&spec, &env).expect("defaults build").policy;
            // Stops in the middle, with blocks live and no release.
            let options =
                ReplayOptions { stop_after_event: Some(1500), ..ReplayOptions::default() };
            replay(&mut reader(&trace), policy.as_mut(), &mut device, &mut (), &options)
                .expect("a corpus trace is legal");
            assert!(device.used_bytes() > 0);
        });
    }
}

#[test]
fn driver_pools_leave_nothing_allocated() {
    let Some(device) = gpu(Mode::default()) else { return };
    let context = device.context().clone();
    let path = corpus().into_iter().next().expect("the corpus is not empty");
    let trace = requests(&path);
    for default_pool in [false, true] {
        check("driver pool", &context, || {
            let mut device = gpu(Mode::default()).expect("there was a GPU a moment ago");
            let options = PoolOptions { default_pool, ..PoolOptions::default() };
            let mut pool = DriverPool::new(&device, options).expect("pools are supported");
            let stop = ReplayOptions { stop_after_event: Some(1500), ..ReplayOptions::default() };
            replay(&mut reader(&trace), &mut pool, &mut device, &mut (), &stop)
                .expect("a corpus trace is legal");
            assert!(pool.stats().reserved.peak > 0);
        });
    }
}

#[test]
fn a_full_device_is_a_recorded_answer_and_leaves_nothing() {
    let Some(device) = gpu(Mode::default()) else { return };
    let context = device.context().clone();
    check("a full device", &context, || {
        let mut device = gpu(Mode::default()).expect("there was a GPU a moment ago");
        let total = device.caps().total / device.caps().granule * device.caps().granule;
        let refused = device.reserve(total, Backing::Whole).expect_err("something is in use");
        assert!(
            matches!(refused, DeviceError::OutOfMemory { asked, free } if asked == total && free < total)
        );
        let range = device
            .reserve(total * 9 / 8 / (20 << 20) * (20 << 20), Backing::Paged)
            .expect("addresses");
        let pages = (total / (20 << 20) + 1) * (20 << 20);
        let refused = device.populate(range.id, 0, pages, 20 << 20).expect_err("too much");
        assert!(matches!(refused, DeviceError::OutOfMemory { .. }), "{refused}");
        device.populate(range.id, 0, 40 << 20, 20 << 20).expect("all pages came back");
        assert_eq!(device.used_bytes(), 40 << 20);
    });
}

#[test]
fn a_gpu_that_is_not_there_is_named() {
    if gpu(Mode::default()).is_none() {
        return;
    }
    let missing =
        poolsim_real_backend::CudaDevice::new(77, Mode::default()).expect_err("no GPU 77");
    assert!(missing.to_string().contains("GPU 77"), "{missing}");
}
