//! Is every policy a legal allocator? One battery over whatever the registry holds and a sample of compositions:
//! a policy that someone adds is covered without an edit here.

mod common;

use common::breaking::Breaking;
use common::order::StreamOrder;
use common::{ROOMY, compositions, device, env, policy_specs, registry, traces};
use poolsim_core::record::{Decision, OomRecord};
use poolsim_core::units::MIB;
use poolsim_core::{
    BlockState, Bytes, DevAddr, DeviceOp, Event, EventKind, HeapImage, Ledger, OomCause, Policy,
    PoolId, ReplayTarget, Slot, Trace, TraceReader,
};
use poolsim_policies::{BuildEnv, OomRule, PolicySpec};
use poolsim_sim::adapt::{Checked, Faulty};
use poolsim_sim::engine::Heap;
use poolsim_sim::judge::Judge;
use poolsim_sim::{Observer, Outcome, ReplayOptions, RunEnd, Step, replay};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Holds refusals to what the policy declares ([`poolsim_policies::PolicyDef::refuses`]).
#[derive(Default)]
struct Refusals {
    rules: &'static [OomRule],
    largest: Bytes,
    roomy: bool,
    /// Whether the spec sets any.
    parameters: bool,
    dropped: BTreeSet<PoolId>,
    open: i64,
    wrong: Option<String>,
}

impl Refusals {
    fn check(&self, oom: &OomRecord, image: &HeapImage, free: Bytes) -> Result<(), String> {
        // A parameter may be a limit of the policy's own.
        let own_limit = oom.cause == OomCause::Limit && self.parameters;
        if self.roomy && oom.requested <= self.largest && !own_limit {
            return Err(format!("refused on a device of {ROOMY} bytes: {oom:?}"));
        }
        if oom.cause != OomCause::DeviceFull {
            return Ok(());
        }
        for rule in self.rules {
            let broken = match rule {
                OomRule::CacheReleased => {
                    self.open == 0
                        && image.ranges.iter().any(|(r, blocks)| {
                            let kept = r.pool.is_private() && !self.dropped.contains(&r.pool);
                            !kept && blocks.iter().all(|b| b.state == BlockState::Free)
                        })
                }
                OomRule::NothingFits => image.blocks().any(|(r, b)| {
                    let same = (r.stream, r.pool) == (oom.stream, oom.pool);
                    same && b.state == BlockState::Free && b.size >= oom.rounded
                }),
                OomRule::DeviceLacks => free >= oom.rounded.next_multiple_of(2 * MIB),
                OomRule::PageLacks => free >= 32 * MIB,
                OomRule::FractionOfRequests => false,
            };
            if broken {
                return Err(format!("{rule:?} does not hold: {oom:?}, device has {free} free"));
            }
        }
        Ok(())
    }

    fn see_pool(&mut self, event: &Event) {
        match event.kind() {
            EventKind::PoolOpen => self.open += 1,
            EventKind::PoolClose => self.open -= 1,
            EventKind::PoolDrop | EventKind::PoolDestroy => {
                self.dropped.insert(event.pool());
            }
            _ => {}
        }
    }
}

impl Observer for Refusals {
    fn on_step(&mut self, step: &Step<'_>) {
        self.see_pool(step.event);
    }

    fn wants_heap(&self, step: &Step<'_>) -> bool {
        step.oom.is_some() && self.wrong.is_none()
    }

    fn on_heap(&mut self, step: &Step<'_>, heap: &dyn Heap, device: &dyn ReplayTarget) {
        let mut image = HeapImage::default();
        heap.visit(&mut image);
        let oom = step.oom.expect("asked for at refusals only");
        if let Err(what) = self.check(oom, &image, device.free_bytes()) {
            self.wrong = Some(format!("event {}: {what}", step.index));
        }
    }
}

/// Holds grants to the order of streams.
#[derive(Default)]
struct Order {
    order: StreamOrder,
    held: BTreeMap<Slot, (DevAddr, Bytes)>,
    wrong: Option<String>,
}

impl Observer for Order {
    fn on_step(&mut self, step: &Step<'_>) {
        // What a free itself waited for is done.
        let waited = self.order.see(step.ledger);
        let event = step.event;
        match (event.kind(), step.outcome) {
            (kind, Outcome::Granted(grant)) => {
                if let Err(what) = self.order.granted(grant.addr, grant.size, event.stream) {
                    self.wrong.get_or_insert(format!("event {}: {what}", step.index));
                }
                if kind.makes_live() {
                    self.held.insert(event.slot, (grant.addr, grant.size));
                } else if !waited {
                    self.order.freed(grant.addr, grant.size, event.stream);
                }
            }
            (EventKind::Free | EventKind::FreeLater, Outcome::Done) => {
                if let Some((addr, size)) = self.held.remove(&event.slot).filter(|_| !waited) {
                    self.order.freed(addr, size, event.stream);
                }
            }
            _ => {}
        }
    }
}

/// Never more than the fraction that the process may take, in bytes held from the device or in bytes asked for.
struct Bounded {
    limit: Bytes,
    of_requests: bool,
    /// Bytes asked for by what the program holds.
    asked: Bytes,
}

impl Observer for Bounded {
    fn on_step(&mut self, step: &Step<'_>) {
        let size = step.event.size;
        match (step.event.kind(), step.outcome) {
            (EventKind::Alloc, Outcome::Granted(_)) => self.asked += size,
            (EventKind::Free | EventKind::FreeLater, Outcome::Done) => self.asked -= size,
            _ => {}
        }
        let held = if self.of_requests { self.asked } else { step.stats.reserved.current };
        assert!(held <= self.limit, "event {}: {held} bytes are held", step.index);
    }
}

struct Case<'a> {
    spec: &'a PolicySpec,
    trace: &'a Arc<Trace>,
    env: BuildEnv,
    what: String,
    /// Whether the device fails on purpose, so that refusals prove nothing.
    faults: bool,
}

impl Case<'_> {
    fn policy(&self) -> Box<dyn Policy> {
        let built = registry().build(self.spec, &self.env);
        built.unwrap_or_else(|e| panic!("{}: {e}", self.spec)).policy
    }

    /// Replays, with `extra` watching, frees everything, and panics at whatever is wrong.
    fn run<T: ReplayTarget>(
        &self,
        mut target: T,
        every: u64,
        extra: &mut dyn Observer,
    ) -> (RunEnd, T) {
        let def = registry().resolve(self.spec).expect("it was built").def;
        let mut refusals = Refusals {
            rules: if self.faults { &[] } else { def.refuses },
            largest: 1 << 40,
            roomy: !self.faults
                && self.env.caps.total == ROOMY
                && self.env.memory_fraction.is_none(),
            parameters: !self.spec.items.is_empty(),
            ..Refusals::default()
        };
        let (mut judge, mut order) = (Judge::every(every), Order::default());
        let mut policy = self.policy();
        let mut source = TraceReader::new(Arc::clone(self.trace));
        let mut observer = ((&mut judge, &mut order), (&mut refusals, extra));
        let options = ReplayOptions::default();
        let end = replay(&mut source, &mut policy, &mut target, &mut observer, &options);
        let end = end.unwrap_or_else(|e| panic!("{} on {}: {e}", self.spec, self.what));
        let wrong = judge.verdict().err().or(order.wrong).or(refusals.wrong);
        let drained = judge.drain(&mut *policy, &mut target, &end);
        if let Some(what) = wrong.or(drained.err()) {
            panic!("{} on {}: {what}", self.spec, self.what);
        }
        (end, target)
    }

    /// Addresses without memory may stay out: PyTorch keeps a reservation whose first map failed.
    fn all_back<D: ReplayTarget>(&self, device: &Checked<D>) {
        let mut left = device.outstanding();
        left.retain(|what| !what.ends_with("(Paged)"));
        assert!(left.is_empty(), "{} on {}: {left:?} is still out", self.spec, self.what);
    }

    fn logged(&self) -> (RunEnd, Vec<Decision>) {
        let (end, mut device) = self.run(device(self.env.caps.total), 1 << 20, &mut ());
        (end, device.take_log())
    }
}

/// Roomy, tight and too small for the trace.
fn capacities(trace: &Trace) -> [(&'static str, Bytes); 3] {
    let peak = traces::peak_live(trace);
    [("a roomy device", ROOMY), ("a tight device", peak * 5 / 4), ("a small device", peak * 3 / 5)]
}

fn battery(specs: &[PolicySpec], named: &[(&str, Arc<Trace>)]) {
    for (name, trace) in named {
        for (size, total) in capacities(trace) {
            for spec in specs {
                let case = Case {
                    spec,
                    trace,
                    env: env(total),
                    what: format!("{name}, {size}"),
                    faults: false,
                };
                let total = case.env.caps.total;
                let (_, target) = case.run(Checked::new(device(total)), 1, &mut ());
                case.all_back(&target);
            }
        }
    }
}

fn generated(count: usize) -> Vec<(&'static str, Arc<Trace>)> {
    vec![
        ("training steps", Arc::new(traces::steps(1, count / 100))),
        ("one stream", Arc::new(traces::random(2, count, false))),
        ("streams and pools", Arc::new(traces::random(3, count, true))),
        ("other streams and pools", Arc::new(traces::random(4, count, true))),
    ]
}

#[test]
fn every_policy_is_a_legal_allocator() {
    battery(&policy_specs(), &generated(600));
}

#[test]
fn every_composition_is_a_legal_allocator() {
    battery(&compositions(), &generated(300)[2..]);
}

#[test]
fn a_memory_fraction_is_a_limit() {
    let trace = Arc::new(traces::random(5, 600, true));
    let total = traces::peak_live(&trace) * 2;
    for spec in &policy_specs() {
        let env = BuildEnv { memory_fraction: Some(0.4), ..env(total) };
        let total = env.caps.total;
        let case =
            Case { spec, trace: &trace, env, what: "a memory fraction".into(), faults: false };
        let limit = (total as f64 * 0.4) as Bytes;
        let def = registry().resolve(spec).expect("a spec").def;
        let of_requests = def.refuses.contains(&OomRule::FractionOfRequests);
        let mut bounded = Bounded { limit, of_requests, asked: 0 };
        case.run(Checked::new(device(total)), 16, &mut bounded);
    }
}

/// Fails each call that takes memory, alone and with all calls after it, until a run makes no such call.
#[test]
fn failing_calls_leave_nothing_behind() {
    let trace = Arc::new(traces::random(6, 160, true));
    let mut specs = policy_specs();
    specs.extend(compositions().into_iter().step_by(5));
    for spec in &specs {
        let case =
            Case { spec, trace: &trace, env: env(1 << 40), what: String::new(), faults: true };
        for count in [1, u64::MAX] {
            for first in 0.. {
                let what = format!("a device whose call {first} fails");
                let case = Case { what, env: case.env.clone(), ..case };
                let faulty = Faulty::new(Checked::new(device(case.env.caps.total)), first, count);
                let (_, faulty) = case.run(faulty, 8, &mut ());
                case.all_back(&faulty.inner);
                if faulty.calls() <= first {
                    break;
                }
            }
        }
    }
}

/// Fails each call that records a fence once; for policies on the shared arena also those that wait or give back. What waits
/// keeps waiting and what could not go stays: nothing is lost, nothing unsafe.
#[test]
fn broken_calls_leave_nothing_behind() {
    let mut trace = traces::random(8, 260, true);
    // A program's own wait that fails ends the run.
    trace.events.retain(|e| !matches!(e.kind(), EventKind::SyncStream | EventKind::SyncDevice));
    let trace = Arc::new(trace);
    let total = traces::peak_live(&trace) * 11 / 10;
    let on_arena = ["best-fit", "bump"].map(PolicySpec::named).into_iter();
    let on_arena = on_arena.chain(compositions().into_iter().step_by(5)).map(|spec| (spec, true));
    for (spec, all) in policy_specs().into_iter().map(|spec| (spec, false)).chain(on_arena) {
        let run = |first: u64, turns: &mut Turns| {
            let what = format!("a device whose call {first} breaks");
            let case = Case { spec: &spec, trace: &trace, env: env(total), what, faults: true };
            let inner = Checked::new(device(case.env.caps.total));
            let (_, broken) = case.run(Breaking { inner, first, all, calls: 0 }, 8, turns);
            case.all_back(&broken.inner);
        };
        let mut turns = Turns { calls: 0, all };
        run(u64::MAX, &mut turns);
        (0..turns.calls).for_each(|first| run(first, &mut Turns { calls: 0, all }));
    }
}

/// Counts the calls that [`Breaking`] counts, up to the end of the trace.
struct Turns {
    calls: u64,
    all: bool,
}

impl Observer for Turns {
    fn finish(&mut self, _: &RunEnd, ledger: &Ledger) {
        let count = |op: DeviceOp| ledger.calls[op as usize];
        let rest = count(DeviceOp::Synchronize) + count(DeviceOp::Free);
        self.calls = count(DeviceOp::Record) + if self.all { rest } else { 0 };
    }
}

#[test]
fn runs_are_deterministic() {
    let trace = Arc::new(traces::random(7, 1500, true));
    let total = traces::peak_live(&trace) * 6 / 5;
    let mut specs = policy_specs();
    specs.extend(compositions().into_iter().step_by(7));
    for spec in &specs {
        let case =
            Case { spec, trace: &trace, env: env(total), what: "two runs".into(), faults: false };
        let (first, second) = (case.logged(), case.logged());
        assert!(!first.1.is_empty(), "{spec} decided nothing");
        assert_eq!(first.0, second.0, "{spec}: two runs end differently");
        let same = first.1.iter().zip(&second.1).position(|(a, b)| a != b);
        assert_eq!((same, first.1.len()), (None, second.1.len()), "{spec}: decisions differ");
    }
}
