//! The page's tables: values as people read them beside values that sort.

use crate::data::RunSet;
use crate::quantity::{show, show_count, show_nanos};
use crate::table::GROUPS;
use minijinja::{Value, context};
use poolsim_core::metric::{self, Better, Metric, name};

/// The columns of the comparison, most telling first.
const COMPARED: &[&str] = &[
    name::peak_reserved_bytes,
    name::over_bound,
    name::peak_active_bytes,
    name::fragmentation,
    name::mean_reserved_bytes,
    name::ooms,
    name::retries,
    name::device_calls,
    name::device_time_ns,
];

/// The table that says which policy did best in what.
pub(super) fn comparison(set: &RunSet) -> Value {
    table(set, COMPARED)
}

/// Every metric, in the groups of the terminal's tables.
pub(super) fn groups(set: &RunSet) -> Vec<Value> {
    let tables = GROUPS.iter().map(|(title, names)| {
        let table = table(set, names);
        context! { title => *title, ..table }
    });
    tables.collect()
}

fn table(set: &RunSet, names: &[&str]) -> Value {
    let metrics: Vec<&Metric> = names
        .iter()
        .filter(|name| set.runs.iter().any(|run| run.record.metric(name).is_some()))
        .map(|name| metric::find(name).expect("tables name only metrics of the table"))
        .collect();
    let heads: Vec<_> =
        metrics.iter().map(|m| context! { title => m.title, definition => m.definition }).collect();
    let marks: Vec<_> = metrics.iter().map(|m| extremes(set, m)).collect();
    let rows: Vec<_> = set
        .runs
        .iter()
        .map(|run| {
            let cells: Vec<_> = metrics
                .iter()
                .zip(&marks)
                .map(|(metric, mark)| {
                    let value = run.record.metric(metric.name);
                    let number = value.map(|v| v.as_f64());
                    let is = |which: Option<f64>| number.is_some() && number == which;
                    context! {
                        text => value.map_or("-".into(), |v| show(v, metric.unit)),
                        number,
                        best => mark.is_some_and(|(best, _)| is(Some(best))),
                        worst => mark.is_some_and(|(_, worst)| is(Some(worst))),
                    }
                })
                .collect();
            context! { label => run.label.as_str(), verdict => run.verdict.as_str(), target => run.record.provenance.target.as_str(), cells }
        })
        .collect();
    context! { heads, rows }
}

/// The best and the worst value, where runs differ and one direction is better.
fn extremes(set: &RunSet, metric: &Metric) -> Option<(f64, f64)> {
    let values = set.runs.iter().filter_map(|run| Some(run.record.metric(metric.name)?.as_f64()));
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
    match metric.better {
        _ if low >= high => None,
        Better::Lower => Some((low, high)),
        Better::Higher => Some((high, low)),
        Better::Neither => None,
    }
}

/// Simulated values beside measured ones, for policies that ran in both places.
pub(super) fn errors(set: &RunSet) -> Vec<Value> {
    let place = |run: &crate::data::Run| run.record.provenance.target.clone();
    let mut rows = Vec::new();
    for gpu in set.runs.iter().filter(|run| place(run) == "gpu") {
        let (policy, digest) = (&gpu.record.provenance.policy, &gpu.record.provenance.trace_digest);
        let twin = set.runs.iter().find(|run| {
            let p = &run.record.provenance;
            p.target == "sim" && p.policy == *policy && p.trace_digest == *digest
        });
        let Some(sim) = twin else { continue };
        for name in [name::peak_reserved_bytes, name::device_calls, name::device_time_ns] {
            let metric = metric::find(name).expect("a name of the table");
            let both = sim.record.metric(name).zip(gpu.record.metric(name));
            let Some((s, g)) = both else { continue };
            let error = match (s.as_f64(), g.as_f64()) {
                (s, g) if s == g => "0 %".into(),
                (_, 0.0) => "-".into(),
                (s, g) => format!("{:+.1} %", (s / g - 1.0) * 100.0),
            };
            rows.push(context! {
                label => sim.label.as_str(), metric => metric.title,
                sim => show(s, metric.unit), gpu => show(g, metric.unit), error,
            });
        }
    }
    rows
}

/// The bytes of the peak reservation by what they were, as shares of the largest.
pub(super) fn losses(set: &RunSet) -> Vec<Value> {
    let parts = [
        ("rounding", name::lost_to_rounding_bytes),
        ("stranded", name::lost_to_stranded_bytes),
        ("free ranges", name::lost_to_free_ranges_bytes),
    ];
    let bytes =
        |run: &crate::data::Run, name: &str| run.record.metric(name).map(|value| value.as_f64());
    let sum = |run: &crate::data::Run| -> f64 {
        parts.iter().filter_map(|(_, name)| bytes(run, name)).sum()
    };
    let most = set.runs.iter().map(sum).fold(1.0, f64::max);
    let known = set.runs.iter().filter(|run| bytes(run, parts[0].1).is_some());
    known
        .map(|run| {
            let parts: Vec<_> = parts
                .iter()
                .filter_map(|(title, name)| {
                    let value = run.record.metric(name)?;
                    let share = value.as_f64() / most * 100.0;
                    Some(context! { title => *title, share, text => show(value, metric::Unit::Bytes) })
                })
                .collect();
            let total = show(poolsim_core::record::Value::Int(sum(run) as u64), metric::Unit::Bytes);
            context! { label => run.label.as_str(), parts, total }
        })
        .collect()
}

/// How long calls took, as measured or as modelled.
pub(super) fn latency(set: &RunSet) -> Vec<Value> {
    let all = set.runs.iter().flat_map(|run| run.distributions.iter().map(move |kind| (run, kind)));
    all.map(|(run, kind)| {
        let times = [0.5, 0.9, 0.99, 0.999, 1.0].map(|share| kind.quantile(share));
        context! {
            label => run.label.as_str(), call => kind.call.as_str(), source => kind.source.name(),
            calls => show_count(kind.calls()), cells => times.map(|ns| context! { text => show_nanos(ns), number => ns }),
        }
    })
    .collect()
}
