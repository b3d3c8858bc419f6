//! Is the device model right in time, streams and capacity? Probes around each border.

mod common;

use common::{G, device};
use poolsim_core::device::DeviceOp;
use poolsim_core::*;
use poolsim_sim::{DeviceProfile, SimDevice};

fn poll(dev: &mut SimDevice) -> Vec<FenceId> {
    let mut passed = Vec::new();
    dev.poll(&mut passed);
    passed
}

#[test]
fn time_is_the_latest_event_and_costs_go_to_the_ledger_only() {
    let mut dev = device(8);
    dev.advance_to(100);
    dev.reserve(G, Backing::Whole).unwrap();
    assert_eq!(dev.now(), 100);
    dev.advance_to(50);
    assert_eq!(dev.now(), 100);
    assert_eq!(dev.ledger().total_time(), dev.cost(DeviceOp::Alloc, G));
    assert_eq!(dev.ledger().calls[DeviceOp::Alloc as usize], 1);
    assert_eq!(dev.ledger().bytes[DeviceOp::Alloc as usize], G);
}

#[test]
fn a_free_fence_passes_at_once_and_is_reported_once() {
    let mut dev = device(8);
    let fence = dev.record(StreamId(1)).unwrap();
    dev.wait(StreamId(2), fence).unwrap();
    assert_eq!(poll(&mut dev), [fence]);
    assert_eq!(poll(&mut dev), []);
    assert!(matches!(dev.wait(StreamId(2), fence), Err(DeviceError::Illegal(_))));
    assert_eq!(dev.record(StreamId(1)).unwrap(), fence, "the id is used again");
}

#[test]
fn a_held_fence_passes_when_its_slot_completes_and_not_before() {
    let mut dev = device(8);
    dev.hold(Slot(7));
    let (a, b) = (dev.record(StreamId(1)).unwrap(), dev.record(StreamId(2)).unwrap());
    dev.end_hold();
    dev.hold(Slot(3));
    let c = dev.record(StreamId(1)).unwrap();
    dev.end_hold();
    let free = dev.record(StreamId(1)).unwrap();
    assert_eq!(poll(&mut dev), [free]);
    dev.complete(Slot(4));
    assert_eq!(poll(&mut dev), []);
    dev.complete(Slot(3));
    dev.complete(Slot(7));
    assert_eq!(poll(&mut dev), [c, a, b]);
}

#[test]
fn streams_are_idle_but_for_held_work() {
    let mut dev = device(8);
    assert!(dev.idle(StreamId(1)));
    dev.hold(Slot(0));
    assert!(!dev.idle(StreamId(1)));
    dev.end_hold();
    assert!(dev.idle(StreamId(1)));
}

#[test]
fn calls_inside_a_driver_call_cost_nothing_and_act_as_ever() {
    let mut dev = device(8);
    let range = dev.reserve(2 * G, Backing::Paged).unwrap().id;
    let before = dev.ledger().clone();
    dev.set_metered(false);
    let page = dev.create(G).unwrap();
    dev.map(range, G, page).unwrap();
    assert!(dev.create(64 * G).is_err());
    dev.charge(DeviceOp::PoolGrow, 1, G);
    dev.set_metered(true);
    assert_eq!(
        (dev.used_bytes(), dev.ledger().total_time()),
        (G, before.total_time() + dev.cost(DeviceOp::PoolGrow, G))
    );
    assert_eq!(dev.ledger().calls[DeviceOp::Create as usize], 0);
    dev.unmap(range, G, G).unwrap();
    assert_eq!(dev.ledger().calls[DeviceOp::Unmap as usize], 1);
}

#[test]
fn host_waits_pass_fences_in_the_order_of_recording() {
    for (scope, expected) in [
        (SyncScope::Stream(StreamId(1)), vec![0, 2]),
        (SyncScope::Device, vec![0, 1, 2]),
        (SyncScope::Fences, vec![0, 1, 2]),
    ] {
        let mut dev = device(8);
        let fences: Vec<_> = [(9, 1), (2, 2), (5, 1)]
            .into_iter()
            .map(|(slot, stream)| {
                dev.hold(Slot(slot));
                let fence = dev.record(StreamId(stream)).unwrap();
                dev.end_hold();
                fence
            })
            .collect();
        dev.synchronize(scope).unwrap();
        let expected: Vec<_> = expected.into_iter().map(|i| fences[i]).collect();
        assert_eq!(poll(&mut dev), expected, "{scope:?}");
        dev.complete(Slot(2));
        assert_eq!(poll(&mut dev).len() + expected.len(), 3);
    }
}

#[test]
fn capacity_is_exact_for_ranges_pages_and_both_together() {
    let mut dev = device(4);
    let whole = dev.reserve(2 * G, Backing::Whole).unwrap();
    let paged = dev.reserve(64 * G, Backing::Paged).unwrap();
    assert_eq!(
        dev.populate(paged.id, 0, 3 * G, G),
        Err(DeviceError::OutOfMemory { asked: 3 * G, free: 2 * G })
    );
    // Two pages were made and given back before the third failed.
    let ledger = dev.ledger();
    assert_eq!(ledger.calls[DeviceOp::Create as usize], 3);
    assert_eq!(ledger.calls[DeviceOp::Destroy as usize], 2);
    assert_eq!(ledger.calls[DeviceOp::Map as usize], 0);
    dev.populate(paged.id, 0, 2 * G, G).unwrap();
    assert_eq!((dev.used_bytes(), dev.free_bytes()), (4 * G, 0));
    assert_eq!(dev.create(G), Err(DeviceError::OutOfMemory { asked: G, free: 0 }));
    assert!(matches!(dev.reserve(G, Backing::Whole), Err(DeviceError::OutOfMemory { .. })));
    dev.release(whole.id).unwrap();
    let page = dev.create(2 * G).unwrap();
    assert_eq!(dev.free_bytes(), 0);
    dev.destroy(page).unwrap();
    dev.depopulate(paged.id, G, G).unwrap();
    dev.depopulate(paged.id, 0, G).unwrap();
    dev.release(paged.id).unwrap();
    assert_eq!(dev.used_bytes(), 0);
}

#[test]
fn costs_hit_measured_sizes_and_lie_between_them_elsewhere() {
    let profile = DeviceProfile::h200();
    let cost = |bytes| profile.cost(DeviceOp::Free, bytes);
    assert_eq!(cost(20 << 20), 60_082);
    assert_eq!(cost(64 << 20), 87_557);
    assert_eq!(cost(1), 41_019, "below the smallest size");
    let mut before = cost(20 << 20);
    for bytes in ((20 << 20)..=(64 << 20)).step_by(1 << 20).skip(1) {
        let now = cost(bytes);
        assert!(now > before && now <= 87_557, "{bytes}");
        before = now;
    }
    // On log-log scales the geometric mean of two sizes costs the geometric mean of their costs.
    let middle = ((20.0f64 * 64.0).sqrt() * f64::from(1 << 20)).round() as u64;
    let expected = (60_082.0f64 * 87_557.0).sqrt();
    assert!((cost(middle) as f64 - expected).abs() < 2.0);
    let largest = 64u64 << 30;
    assert_eq!(cost(2 * largest), 2 * cost(largest), "in proportion above the largest");
    let map = [DeviceOp::Map, DeviceOp::Access].map(|op| profile.cost(op, 2 << 20));
    assert_eq!(map, [1_156, 28_365]);
    assert_eq!(profile.cost(DeviceOp::PoolMove, 32 << 20), 44_000);
    assert_eq!(profile.cost(DeviceOp::PoolMove, 2 << 30), 44_000, "one point: the same for all");
}

#[test]
fn the_profile_says_what_it_rests_on() {
    let profile = DeviceProfile::h200();
    assert_eq!(
        profile.provenance.to_string(),
        "NVIDIA H200, driver 580.159.04, CUDA 13.0, 2026-11"
    );
    assert_eq!(profile.samples(DeviceOp::Free), 6 * 200 + 2 * 30 + 3 * 12);
    assert_eq!(profile.samples(DeviceOp::Map), 2 * 200 + 400 + 2 * 30 + 3 * 12);
    assert_eq!(profile.unmeasured().count(), 0);
    assert_eq!(profile.cost(DeviceOp::Query, 0), 182);
    let caps = profile.caps.clone();
    let free = DeviceProfile::free_of_charge(caps);
    assert_eq!(free.unmeasured().count(), DeviceOp::ALL.len());
    assert_eq!((free.cost(DeviceOp::Alloc, G), free.samples(DeviceOp::Alloc)), (0, 0));
}

#[test]
fn broken_profiles_are_refused_with_the_reason() {
    let good = include_str!("../profiles/h200.toml");
    let broken = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        DeviceProfile::parse(&good.replacen(from, to, 1)).unwrap_err().to_string()
    };
    assert!(broken("cuda_malloc = ", "cuda_maloc = ").contains("no operation cuda_maloc"));
    assert!(broken("[\"cudaMalloc\"]", "[\"cudaMaloc\"]").contains("has no table"));
    assert!(broken("cuda_malloc = [\"cudaMalloc\"]\n", "").contains("cuda_malloc is missing"));
    assert!(broken("bytes = [512, 65536", "bytes = [65536, 512").contains("ascending"));
    assert!(broken("[49525, ", "[").contains("same length"));
    assert!(broken("name = \"cudaFree\"", "name = \"cudaMalloc\"").contains("twice"));
}
