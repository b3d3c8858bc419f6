//! Are made traces legal, repeatable, and as close to their recordings as is said?

use poolsim_core::{EventKind, Trace, TraceReader};
use poolsim_traces::check::check;
use poolsim_traces::synth::{Change, Fit, GENERATORS, Order, closeness, find};
use poolsim_traces::{OpenOptions, Source, open};
use std::path::Path;
use std::sync::Arc;

fn legal(trace: &Trace, what: &str) {
    let mut source = TraceReader::new(Arc::new(trace.clone()));
    check(&mut source).unwrap_or_else(|error| panic!("{what}: {error}"));
}

/// The traces of requests in the repository.
fn by_hand() -> Trace {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/by-hand.json");
    match open(&path, &OpenOptions::default()).expect("the corpus").source {
        Source::Trace(trace) => *trace,
        other => panic!("a trace of requests: {other:?}"),
    }
}

/// Every generator at its defaults and at its smallest: legal, the same for a seed, and ending with what lasts alone.
#[test]
fn generated_traces_are_legal_and_repeatable() {
    for generator in GENERATORS {
        let least: Vec<_> =
            generator.knobs.iter().map(|knob| (knob.key.to_string(), knob.bounds.0)).collect();
        for settings in [Vec::new(), least] {
            let name = format!("{} {settings:?}", generator.name);
            let make = |seed| generator.generate(&settings, seed).expect("it can be made");
            let trace = make(1);
            legal(&trace, &name);
            assert_eq!(trace.events, make(1).events, "{name}: one seed, two traces");
            assert!(!trace.events.is_empty(), "{name}");
        }
        let beyond = generator.knobs.iter().map(|knob| (knob.key.to_string(), knob.bounds.1 + 1));
        for wrong in beyond.chain([("nothing".into(), 1)]) {
            let error =
                generator.generate(std::slice::from_ref(&wrong), 1).expect_err("out of bounds");
            assert!(error.what.contains(&wrong.0), "{error}");
        }
    }
}

fn fits() -> Vec<(String, Trace)> {
    let made = GENERATORS.iter().map(|g| (g.name.to_string(), g.generate(&[], 3).expect("made")));
    made.chain([("by hand".into(), by_hand())]).collect()
}

/// Nothing changed is nothing changed.
#[test]
fn a_fit_in_recorded_order_is_the_recording() {
    for (name, trace) in fits() {
        let fit = Fit::of(&trace).expect("there are events");
        let same = fit.make(&Change::default(), 1).expect("as long as the recording");
        let of = |t: &Trace| -> Vec<_> {
            t.events.iter().map(|e| (e.at, e.kind(), e.size, e.stream, e.pool())).collect()
        };
        assert!(of(&same) == of(&trace), "{name}: {:?}", fit.found());
    }
}

#[test]
fn changed_fits_are_legal_and_as_long_as_asked_for() {
    for (name, trace) in fits() {
        let fit = Fit::of(&trace).expect("there are events");
        for order in [Order::Recorded, Order::Shuffled, Order::Drawn] {
            let cycles = 2 * fit.cycles() + 1;
            let change =
                Change { cycles: Some(cycles), order, sizes: 0.05, lengths: Some((0.5, 1.5)) };
            let made = fit.make(&change, 7).expect("twice the recording");
            legal(&made, &format!("{name} {order:?}"));
            assert_eq!(made.events, fit.make(&change, 7).expect("again").events, "{name}");
            assert_eq!(made.annotations.len(), cycles, "{name}");
            let frees = made.events.iter().filter(|e| e.kind() == EventKind::Free).count();
            assert!(frees > 0 || name == "hurt-growing", "{name}: nothing is freed");
        }
        let too_many = Change { cycles: Some(usize::MAX), ..Change::default() };
        assert!(fit.make(&too_many, 1).is_err());
    }
}

/// A loop drawn again and again stays the loop that it was.
#[test]
fn longer_traces_keep_the_distributions() {
    for name in ["train", "train-checkpointed", "train-moe", "pipeline"] {
        let trace = find(name).expect("a generator").generate(&[], 3).expect("made");
        let fit = Fit::of(&trace).expect("there are events");
        let change =
            Change { cycles: Some(4 * fit.cycles()), order: Order::Drawn, ..Change::default() };
        let made = fit.make(&change, 5).expect("four times the recording");
        let close = closeness(&trace, &made);
        assert!(close.sizes.distance < 0.1, "{name}: {close:?}");
        assert!(close.lifetimes.distance < 0.1, "{name}: {close:?}");
        assert!((0.98..=1.02).contains(&close.peak_ratio), "{name}: {close:?}");
    }
}
