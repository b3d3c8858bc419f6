//! How close are fits to real recordings, and do the adversarial programs hurt whom they say?

mod common;
#[allow(dead_code, reason = "another test uses the rest")]
mod recordings;

use common::{ROOMY, device, env, registry};
use poolsim_core::{Bytes, Trace, TraceReader};
use poolsim_policies::pytorch::infer::infer;
use poolsim_sim::{ReplayOptions, RunEnd, replay};
use poolsim_traces::synth::{Change, Fit, Order, closeness, find};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

fn run(trace: &Arc<Trace>, spec: &str, total: Bytes) -> RunEnd {
    let spec = spec.parse().expect("a spec");
    let mut policy = registry().build(&spec, &env(total)).expect("a policy").policy;
    let (mut source, mut target) = (TraceReader::new(Arc::clone(trace)), device(total));
    let options = ReplayOptions::default();
    replay(&mut source, &mut policy, &mut target, &mut (), &options).expect("it runs")
}

/// Each program, an allocator that it is made for, and one that it does not hurt: the first reserves more, by at least
/// the share that stands there.
#[test]
fn adversarial_programs_hurt_whom_they_say() {
    for (program, hurt, spared, more) in [
        ("hurt-comb", "best-fit", "expandable", 0.2),
        ("hurt-rounding", "pow2", "best-fit", 0.2),
        ("hurt-growing", "best-fit", "expandable", 0.2),
        ("hurt-streams", "best-fit", "cuda-async", 0.2),
        ("hurt-splitting", "best-fit", "expandable", 0.2),
        ("hurt-planning", "planned", "best-fit", 0.2),
    ] {
        let trace = find(program).expect("a program").generate(&[], 1).expect("made");
        let trace = Arc::new(trace);
        let peak = |spec| run(&trace, spec, ROOMY).stats.reserved.peak as f64;
        let (hurt_peak, spared_peak) = (peak(hurt), peak(spared));
        assert!(
            hurt_peak > (1.0 + more) * spared_peak,
            "{program}: {hurt} reserves {hurt_peak}, {spared} {spared_peak}"
        );
    }
}

/// What is given back first is needed next: on a device that lacks 1 block of the rotation, `lru` calls the driver for
/// nearly every request; one that holds everything makes each range once.
#[test]
fn rotation_defeats_least_recently_used() {
    let trace = find("hurt-lru").expect("a program").generate(&[], 1).expect("made");
    let trace = Arc::new(trace);
    let all = run(&trace, "lru", ROOMY).stats.reserved.peak;
    let (roomy, tight) = (retries(&trace, ROOMY), retries(&trace, all - all / 8));
    let requests = trace.events.len() as u64 / 2;
    assert_eq!(roomy, 0);
    assert!(tight * 2 > requests, "{tight} of {requests} requests had to give something back");
}

fn retries(trace: &Arc<Trace>, total: Bytes) -> u64 {
    run(trace, "lru", total).stats.retries
}

/// How close made traces are to the recordings of the corpus: twice as long, shuffled or drawn. The table is the
/// statement; `UPDATE_GOLDEN=1` writes it anew.
#[test]
fn fits_of_recordings_are_as_close_as_committed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/fits.txt");
    let now = table();
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|v| !v.is_empty()) {
        std::fs::write(&path, &now).expect("the table can be written");
    }
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(now == before, "fits changed; run this test with UPDATE_GOLDEN=1 and read the diff");
}

fn table() -> String {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/corpus");
    let mut out = String::from(
        "How close traces made by `poolsim synth --fit` are to the recording: twice its cycles, seed 1. Distances of two-sample\n\
         Kolmogorov-Smirnov tests (0: the same, 1: nothing in common) with their p; the made trace's bytes in use by the\n\
         recording's. Written by tests/synthetic.rs.\n\n",
    );
    let head = [
        "recording",
        "cycles",
        "told apart by",
        "order",
        "sizes",
        "p",
        "lives",
        "p",
        "peak",
        "mean",
    ];
    row(&mut out, head.map(String::from));
    for path in recordings::snapshots(&corpus) {
        let rec = recordings::read(&path).unwrap_or_else(|| panic!("{}", path.display()));
        let trace = infer(&rec, &recordings::config_of(&rec)).trace;
        let fit = Fit::of(&trace).expect("a recording holds events");
        let name = path.strip_prefix(&corpus).expect("below the corpus").display().to_string();
        for order in [Order::Shuffled, Order::Drawn] {
            let change = Change { cycles: Some(2 * fit.cycles()), order, ..Change::default() };
            let made = fit.make(&change, 1).expect("twice a recording");
            let c = closeness(&trace, &made);
            let cells = [
                name.trim_end_matches(".pickle.zst").into(),
                fit.cycles().to_string(),
                fit.found().to_string(),
                format!("{order:?}").to_lowercase(),
                format!("{:.3}", c.sizes.distance),
                format!("{:.3}", c.sizes.p),
                format!("{:.3}", c.lifetimes.distance),
                format!("{:.3}", c.lifetimes.p),
                format!("{:.3}", c.peak_ratio),
                format!("{:.3}", c.mean_ratio),
            ];
            row(&mut out, cells);
        }
    }
    out
}

fn row(out: &mut String, cells: [String; 10]) {
    let [name, cycles, found, order, numbers @ ..] = cells;
    let numbers: String = numbers.iter().map(|cell| format!(" {cell:>6}")).collect();
    writeln!(out, "{name:32} {cycles:>6} {found:26} {order:9}{numbers}").expect("into a string");
}
