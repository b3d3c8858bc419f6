//! Does `planned` plan, does planning pay, and does it know nothing but the past?

mod common;
#[allow(dead_code, reason = "another test uses the rest")]
mod recordings;

use common::{ROOMY, device, env, registry};
use poolsim_core::record::Decision;
use poolsim_core::units::MIB;
use poolsim_core::{
    Bytes, Event, EventKind, PoolId, Slot, StreamId, Trace, TraceHeader, TraceReader,
};
use poolsim_policies::PolicySpec;
use poolsim_policies::planned::{Planned, Served, Settings};
use poolsim_policies::pytorch::infer::infer;
use poolsim_sim::adapt::Checked;
use poolsim_sim::judge::Judge;
use poolsim_sim::{ReplayOptions, RunEnd, replay};
use poolsim_traces::synth;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::path::Path;
use std::sync::Arc;

const SETTINGS: Settings = Settings {
    times: 2,
    least: 32,
    window: 16,
    large: MIB,
    learn_by_driver: false,
    quantum: 512,
    unit: 2 * MIB,
};

/// Passes of one loop: the same sizes, streams and lifetimes each time, but for requests that only `odd` has.
fn passes(seed: u64, count: usize, odd: impl Fn(usize, &mut Pcg64) -> Option<Bytes>) -> Trace {
    let mut rng = Pcg64::seed_from_u64(seed);
    let shape: Vec<(Bytes, u16, usize)> = (0..120)
        .map(|i| {
            let stream = u16::from(rng.random_range(0..8) == 0);
            (rng.random_range(1..40 * MIB), stream, rng.random_range(1..60).min(120 - i))
        })
        .collect();
    let mut trace = Trace {
        header: TraceHeader { streams: vec![0, 1], ..TraceHeader::default() },
        ..Trace::default()
    };
    let (mut spare, mut slots) = (Vec::new(), 0);
    let mut live: Vec<(usize, Slot, Bytes, StreamId)> = Vec::new();
    for pass in 0..count {
        for (i, &(size, stream, life)) in shape.iter().enumerate() {
            let now = pass * shape.len() + i;
            let odd = odd(pass, &mut rng).map(|size| (size, 0, 3));
            for (size, stream, life) in odd.into_iter().chain([(size, stream, life)]) {
                let slot = spare.pop().unwrap_or_else(|| {
                    slots += 1;
                    Slot(slots - 1)
                });
                live.push((now + life, slot, size, StreamId(stream)));
                push(&mut trace, EventKind::Alloc, slot, size, StreamId(stream));
            }
            for (_, slot, size, stream) in live.extract_if(.., |block| block.0 <= now + 1) {
                push(&mut trace, EventKind::Free, slot, size, stream);
                spare.push(slot);
            }
        }
    }
    trace
}

fn push(trace: &mut Trace, kind: EventKind, slot: Slot, size: Bytes, stream: StreamId) {
    let at = trace.events.len() as u64;
    trace.events.push(Event::new(kind, at, slot, size, stream, PoolId::DEFAULT));
}

/// Under the judge's eyes; what was served, the decisions, and the end.
fn run(trace: &Arc<Trace>, total: Bytes) -> (Served, Vec<Decision>, RunEnd) {
    let mut policy = Planned::new(SETTINGS, &env(total));
    let mut judge = Judge::every(13);
    let mut target = Checked::new(device(total));
    let mut source = TraceReader::new(Arc::clone(trace));
    let end = replay(&mut source, &mut policy, &mut target, &mut judge, &ReplayOptions::default())
        .expect("it runs");
    judge.verdict().unwrap_or_else(|what| panic!("{what}"));
    let log = target.inner.take_log();
    let served = policy.served();
    judge.drain(&mut policy, &mut target, &end).unwrap_or_else(|what| panic!("{what}"));
    (served, log, end)
}

/// A loop that repeats exactly: nearly all of it is planned, and in less memory than the best fit takes.
#[test]
fn a_loop_that_repeats_is_planned_and_takes_less() {
    let trace = Arc::new(passes(3, 12, |_, _| None));
    let (served, log, end) = run(&trace, ROOMY);
    assert_eq!(served.plans, 1);
    let all = served.planned + served.unplanned;
    assert!(served.planned * 10 > all * 9, "{served:?}");
    assert!(all > 700, "{served:?}");
    let best_fit: PolicySpec = "best-fit".parse().expect("a spec");
    let mut policy = registry().build(&best_fit, &env(ROOMY)).expect("best-fit").policy;
    let (mut source, mut target) = (TraceReader::new(Arc::clone(&trace)), device(ROOMY));
    let options = ReplayOptions::default();
    let plain = replay(&mut source, &mut policy, &mut target, &mut (), &options).expect("it runs");
    let (mine, other) = (end.stats.reserved.current, plain.stats.reserved.current);
    assert!(mine < other, "{mine} bytes with a plan, {other} without; {} decisions", log.len());
}

/// What nobody foresaw is served too, and does not spoil the plan.
#[test]
fn unforeseen_requests_leave_the_plan_in_force() {
    let odd = |pass: usize, rng: &mut Pcg64| {
        (pass >= 4 && rng.random_range(0..6) == 0).then(|| rng.random_range(MIB..30 * MIB))
    };
    let trace = Arc::new(passes(5, 12, odd));
    let (served, ..) = run(&trace, ROOMY);
    assert_eq!(served.plans, 1, "{served:?}");
    assert!(served.planned * 10 > (served.planned + served.unplanned) * 7, "{served:?}");
    // A tight device: gaps of the plan serve before anything is refused.
    let (_, _, end) = run(&trace, end_of(&trace) + 64 * MIB);
    assert_eq!(end.ooms, 0);
}

fn end_of(trace: &Arc<Trace>) -> Bytes {
    run(trace, ROOMY).2.stats.reserved.peak
}

/// Two jobs with one past and different futures: as long as the past lasts, every decision is the same.
#[test]
fn it_knows_nothing_but_the_past() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/corpus/default");
    let recorded = recordings::read(&corpus.join("unet_multires.pickle.zst")).expect("the corpus");
    let recorded = infer(&recorded, &recordings::config_of(&recorded)).trace;
    for (what, trace) in [("a loop", passes(3, 8, |_, _| None)), ("a recording", recorded)] {
        let whole = run(&Arc::new(trace.clone()), ROOMY).1;
        for tenths in [3, 6, 9] {
            let past = trace.events.len() * tenths / 10;
            let mut other = trace.clone();
            other.events.truncate(past);
            let known = run(&Arc::new(other), ROOMY).1;
            let until = |log: &[Decision]| log.partition_point(|d| d.event < past as u64);
            let (a, b) = (&whole[..until(&whole)], &known[..until(&known)]);
            assert!(a == b, "{what}: the first {past} events are decided otherwise if more follow");
            assert!(!a.is_empty());
        }
    }
}

/// Learning by the driver: in a loop that repeats, no more is ever reserved than is in use or planned, which the best fit
/// exceeds from its first pass on.
#[test]
fn learning_by_the_driver_takes_no_more_than_the_plan() {
    let made = |name| synth::find(name).expect("a program").generate(&[], 1).expect("made");
    for (trace, most) in [
        (passes(3, 12, |_, _| None), 1.2),
        (made("train"), 1.01),
        (made("train-checkpointed"), 1.01),
    ] {
        let trace = Arc::new(trace);
        let stats = |spec: &str| {
            let spec: PolicySpec = spec.parse().expect("a spec");
            let mut policy = registry().build(&spec, &env(ROOMY)).expect("a policy").policy;
            let (mut source, mut target) = (TraceReader::new(Arc::clone(&trace)), device(ROOMY));
            let options = ReplayOptions::default();
            let end = replay(&mut source, &mut policy, &mut target, &mut (), &options);
            end.expect("it runs").stats
        };
        let (planned, plain) = (stats("planned,learn:driver"), stats("best-fit"));
        assert!(planned.reserved.peak < plain.reserved.peak, "{planned:?}, best fit: {plain:?}");
        let more = planned.reserved.peak as f64 / planned.requested.peak as f64;
        assert!(more < most, "{more} of what was asked for");
    }
}
