//! Are the metrics right? Hand-made traces with means, extremes and losses computed by hand.

mod common;

use common::{G, Script, Shelf, device};
use poolsim_core::metric::{METRICS, name};
use poolsim_core::record::{Provenance, Value};
use poolsim_core::*;
use poolsim_sim::observe::*;
use poolsim_sim::{Observer, ReplayOptions, RunEnd, SimDevice, replay};
use proptest::prelude::*;

fn run<O: Observer>(script: Script, granules: u64, observer: &mut O) -> (RunEnd, SimDevice) {
    let (mut policy, mut device) = (Shelf::default(), device(granules));
    let options = ReplayOptions::default();
    let end = replay(&mut script.source(), &mut policy, &mut device, observer, &options).unwrap();
    (end, device)
}

/// Reserved and active go 1, 3, 3, 2 granules over 10, 20, 30 ns; one request is refused.
fn story() -> Script {
    Script::default()
        .at(100)
        .alloc(0, G - 1)
        .at(110)
        .alloc(1, 2 * G - 10)
        .at(130)
        .free(0)
        .at(160)
        .push(EventKind::EmptyCache, 0, 0)
        .alloc(2, 9 * G)
        .push(EventKind::AllocRefused, 3, 8 * G)
        .push(EventKind::AllocRefused, 4, G)
}

#[test]
fn means_are_weighted_by_time() {
    let mut totals = Totals::default();
    run(story(), 4, &mut totals);
    let g = G as f64;
    let requested = ((g - 1.0) * 10.0 + (3.0 * g - 11.0) * 20.0 + (2.0 * g - 10.0) * 30.0) / 60.0;
    let active = (g * 10.0 + 3.0 * g * 20.0 + 2.0 * g * 30.0) / 60.0;
    let reserved = (g * 10.0 + 3.0 * g * 50.0) / 60.0;
    let means = totals.means().unwrap();
    for (got, expected) in means.into_iter().zip([requested, active, active, reserved]) {
        assert!((got - expected).abs() < 1e-3, "{got} {expected}");
    }
    assert_eq!(totals.peak_event(), Some(1));
}

#[test]
fn a_trace_without_time_has_no_means() {
    let mut totals = Totals::default();
    run(Script::default().alloc(0, 1).free(0), 4, &mut totals);
    assert_eq!(totals.means(), None);
    let mut nothing = Totals::default();
    run(Script::default(), 4, &mut nothing);
    assert_eq!((nothing.means(), nothing.peak_event()), (None, None));
}

#[test]
fn a_record_has_every_metric_and_they_agree_with_the_parts() {
    let mut observer = (Totals::default(), Ooms::default());
    let (end, device) = run(story(), 4, &mut observer);
    let (totals, ooms) = &observer;
    let peak = peak_state(
        &mut story().source(),
        &mut Shelf::default(),
        &mut common::device(4),
        None,
        totals.peak_event().unwrap(),
    );
    let record = run_record(RunFacts {
        provenance: Provenance::default(),
        end: &end,
        ledger: device.ledger(),
        totals,
        ooms,
        peak: Some(peak.unwrap()),
        warnings: vec![],
    });
    // Bounds are the trace's, and joined to a run's record by whoever computes them.
    let of_the_trace = [name::live_bound_bytes, name::packed_bytes, name::over_bound];
    for metric in METRICS.iter().filter(|m| !of_the_trace.contains(&m.name)) {
        assert!(record.metric(metric.name).is_some(), "{} is missing", metric.name);
    }
    let int = |name: &str| match record.metric(name).unwrap() {
        Value::Int(n) => n,
        Value::Real(x) => panic!("{name} is {x}"),
    };
    assert_eq!((int("events"), int("allocs")), (7, 5));
    // The rescued request asks for one granule for a moment.
    assert_eq!(int("peak_requested_bytes"), 3 * G - 10);
    assert_eq!((int("peak_active_bytes"), int("peak_reserved_bytes")), (3 * G, 3 * G));
    assert_eq!((int("final_allocated_bytes"), int("final_reserved_bytes")), (2 * G, 3 * G));
    assert_eq!((int("ooms"), int("rescued"), int("retries")), (2, 1, 2));
    assert_eq!((int("lost_to_rounding_bytes"), int("largest_free_bytes")), (11, 0));
    assert_eq!(record.metric("utilisation"), Some(Value::Real(1.0)));
    // 1 and 2 granules, two tries for each refused request, and the rescued one.
    assert_eq!((int("cuda_malloc_calls"), int("cuda_free_calls")), (7, 1));
    assert_eq!(record.device_calls["cuda_malloc"], 7);
    assert_eq!(int("device_time_ns"), record.device_time_ns.values().sum::<u64>());
    assert_eq!(record.ooms.len(), 2);
    assert_eq!((record.ooms[0].event, record.ooms[0].recorded), (4, false));
    assert_eq!((record.ooms[1].event, record.ooms[1].recorded), (5, true));
    let oom = &record.ooms[0];
    assert_eq!((oom.active, oom.reserved, oom.cached, oom.device_free), (2 * G, 2 * G, 0, 2 * G));
}

#[test]
fn losses_at_the_peak_are_told_apart() {
    let other = |script: Script, kind, slot, size| script.on(3).push(kind, slot, size).on(0);
    let script = other(Script::default(), EventKind::Alloc, 0, 4 * G)
        .alloc(1, 2 * G)
        .alloc(2, G / 2)
        .free(0)
        .free(1)
        .alloc(3, 3 * G - 7)
        .push(EventKind::EmptyCache, 0, 0);
    let mut totals = Totals::default();
    run(script.clone(), 64, &mut totals);
    assert_eq!(totals.peak_event(), Some(5));
    let (mut policy, mut dev) = (Shelf::default(), device(64));
    let state = peak_state(&mut script.source(), &mut policy, &mut dev, None, 5).unwrap();
    let expected = PeakState {
        event: 5,
        requested: G / 2 + 3 * G - 7,
        reserved: 10 * G,
        rounding: G / 2 + 7,
        stranded: 0,
        free_ranges: 6 * G,
        other_streams: 4 * G,
        largest_free: 4 * G,
    };
    assert_eq!(state, expected);
    let sum = state.requested + state.rounding + state.stranded + state.free_ranges;
    assert_eq!(sum, state.reserved);
}

/// Takes the log line by line, so that the device need not keep it.
#[derive(Default)]
struct Drain(Vec<record::Decision>);

impl Observer for Drain {
    fn on_step(&mut self, step: &poolsim_sim::Step<'_>) {
        self.0.extend_from_slice(step.log);
    }

    fn drains_log(&self) -> bool {
        true
    }
}

#[test]
fn decisions_come_with_their_event_and_are_forgotten_if_an_observer_drains_them() {
    let mut drain = Drain::default();
    let script = Script::default().alloc(0, 5).alloc(1, 9 * G).free(0);
    let (_, device) = run(script, 4, &mut drain);
    let lines: Vec<_> = drain.0.iter().map(|d| (d.event, d.action, d.size)).collect();
    assert_eq!(
        lines,
        [
            (0, Action::SegmentAlloc, 2_097_152),
            (0, Action::Alloc, 5),
            (1, Action::Oom, 9 * G),
            (2, Action::FreeRequested, 5),
            (2, Action::FreeCompleted, 5),
        ]
    );
    assert_eq!(drain.0[2].addr, 3 * G, "a refusal shows the device's free memory");
    assert_eq!(device.log(), []);
}

proptest! {
    /// However short the series: it covers every event once, and keeps exact extremes.
    #[test]
    fn a_decimated_series_keeps_the_extremes(
        sizes in prop::collection::vec((1..6u64, 0..12usize), 1..300),
        limit in 2..20usize,
    ) {
        let mut script = Script::default();
        let mut live: Vec<u32> = Vec::new();
        for (i, (granules, victim)) in sizes.into_iter().enumerate() {
            script = script.at(i as u64 * 3).alloc(i as u32, granules * G);
            live.push(i as u32);
            if victim < live.len() {
                script = script.free(live.swap_remove(victim));
            }
        }
        let mut exact = Vec::new();
        let mut observer = (Series::new(limit), Samples(|s: &record::Sample| exact.push(*s)));
        let (end, _) = run(script, 64, &mut observer);
        let points = observer.0.points().to_vec();
        prop_assert!(points.len() <= limit);
        prop_assert_eq!(exact.len() as u64, end.events);
        let mut next = 0;
        for p in &points {
            prop_assert_eq!(p.first_event, next);
            next = p.last_event + 1;
            let part = &exact[p.first_event as usize..next as usize];
            prop_assert_eq!(p.low.active, part.iter().map(|s| s.active).min().unwrap());
            prop_assert!(p.high.active >= part.iter().map(|s| s.active).max().unwrap());
            prop_assert_eq!(p.last.reserved, part.last().unwrap().reserved);
            prop_assert_eq!((p.first_at, p.last_at), (part[0].at, part.last().unwrap().at));
        }
        prop_assert_eq!(next, end.events);
        let high = points.iter().map(|p| p.high.reserved).max().unwrap();
        prop_assert_eq!(high, end.stats.reserved.peak);
        let high = points.iter().map(|p| p.high.requested).max().unwrap();
        prop_assert_eq!(high, end.stats.requested.peak);
    }
}

#[test]
fn runs_are_the_same_every_time() {
    let once = || {
        let mut observer = (Series::new(3), (Totals::default(), Ooms::default()));
        let (end, mut device) = run(story(), 4, &mut observer);
        (
            end,
            device.take_log(),
            device.ledger().clone(),
            observer.0.points().to_vec(),
            observer.1.0.means(),
        )
    };
    assert_eq!(once(), once());
}
