//! What many replays found out: the waterfall of causes and the frontier. Drawn here, so that they need no scripts.

use crate::data::{Run, RunSet, Waterfall};
use crate::quantity::{show_count, show_nanos, show_plural, show_signed};
use minijinja::{Value, context};
use poolsim_core::metric::name;
use poolsim_core::units::ShowBytes;

/// One waterfall for each run that has one: bars that float where the one before ended.
pub(super) fn waterfalls(set: &RunSet) -> Vec<Value> {
    let runs = set.runs.iter().enumerate();
    let known = runs.filter_map(|(n, run)| Some((n, run, run.waterfall.as_ref()?)));
    known
        .map(|(n, run, found)| {
            let steps = steps(found);
            let ends = steps.iter().flat_map(|step| [step.from, step.to]);
            let (low, high) = ends.fold((0, 1), |(low, high), x| (low.min(x), high.max(x)));
            let place = |x: i64| (x - low) as f64 / (high - low) as f64 * 100.0;
            let bars = steps.iter().map(|step| {
                let (left, right) = (step.from.min(step.to), step.from.max(step.to));
                context! {
                    title => step.title, how => step.how, text => step.text.as_str(), kind => step.kind,
                    left => place(left), width => place(right) - place(left),
                }
            });
            let refused = (found.ooms > 0).then(|| show_plural(found.ooms, "request"));
            context! { label => run.label.as_str(), run => n, bars => bars.collect::<Vec<_>>(), refused }
        })
        .collect()
}

/// A bar of a waterfall.
struct Bar {
    title: &'static str,
    how: &'static str,
    text: String,
    kind: &'static str,
    from: i64,
    to: i64,
}

const INTERACTION: &str =
    "what only several causes together bring about (+), or what several of them claim (-)";

fn steps(found: &Waterfall) -> Vec<Bar> {
    let whole = |title, bytes: u64| Bar {
        title,
        how: "",
        text: ShowBytes(bytes).to_string(),
        kind: "end",
        from: 0,
        to: bytes as i64,
    };
    let mut at = found.live as i64;
    let mut bars = vec![whole("live bound", found.live)];
    let causes = found.causes.iter().map(|measured| {
        let cause = measured.cause;
        (cause.title(), cause.counterfactual(), measured.peak.map(|_| measured.bytes))
    });
    let rest = ("interaction", INTERACTION, Some(found.interaction));
    for (title, how, bytes) in causes.chain([rest]) {
        let by = bytes.unwrap_or(0);
        let kind = if by < 0 { "less" } else { "more" };
        let text = bytes.map_or("not separable".into(), show_signed);
        bars.push(Bar { title, how, text, kind, from: at, to: at + by });
        at += by;
    }
    bars.push(whole("peak reserved", found.peak));
    bars
}

/// The frontier of every run that has one, on one axis of capacities.
pub(super) fn frontier(set: &RunSet) -> Option<Value> {
    let known: Vec<_> = set
        .runs
        .iter()
        .enumerate()
        .filter_map(|(n, run)| Some((n, run, run.frontier.as_ref()?)))
        .collect();
    let bound = known.iter().map(|(_, _, found)| found.bound).min()?;
    // The capacities that tell something lie between the bound and what the greediest policy takes unbounded.
    let peaks = known.iter().filter_map(|(_, run, _)| peak(run));
    let smallest = known.iter().filter_map(|(_, _, found)| found.safe());
    let (low, high) = (bound as f64 * 0.9, peaks.chain(smallest).max()?.max(bound) as f64 * 1.02);
    let place = |bytes: u64| (bytes as f64 - low) / (high - low).max(1.0) * 100.0;
    let shown = |bytes: u64| bytes as f64 >= low && bytes as f64 <= high;
    let rows = known.iter().map(|(n, run, found)| {
        let tried = found.tried.iter().filter(|(bytes, _)| shown(**bytes));
        let tried = tried.map(|(&bytes, &lives)| {
            context! { at => place(bytes), lives, text => ShowBytes(bytes).to_string() }
        });
        let smallest = found.smallest();
        let above = smallest
            .map(|bytes| format!("{:+.1} %", (bytes as f64 / bound.max(1) as f64 - 1.0) * 100.0));
        let bytes =
            |bytes: Option<u64>| bytes.map_or("none".into(), |b| ShowBytes(b).to_string());
        context! {
            run => n, label => run.label.as_str(), tried => tried.collect::<Vec<_>>(), above,
            smallest => bytes(smallest), number => smallest, at => smallest.map(place),
            safe => bytes(found.safe()), monotone => found.is_monotone(), uncertain => found.uncertain,
            peak => bytes(peak(run)), retries => found.tight.map(|tight| show_count(tight.retries)),
            time => found.tight.map(|tight| show_nanos(tight.device_time_ns)),
        }
    });
    let ticks = (0..=4).map(|i| low + (high - low) * f64::from(i) / 4.0);
    let ticks = ticks.map(|bytes| ShowBytes(bytes as u64).to_string());
    Some(context! {
        bound => ShowBytes(bound).to_string(), bound_at => place(bound),
        rows => rows.collect::<Vec<_>>(), ticks => ticks.collect::<Vec<_>>(),
    })
}

fn peak(run: &Run) -> Option<u64> {
    run.record.metric(name::peak_reserved_bytes).map(|value| value.as_f64() as u64)
}
