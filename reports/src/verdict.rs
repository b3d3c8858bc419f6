//! What a set of runs says, in sentences: who took least memory, who ran out of it, and what nobody measured.

use crate::data::{Run, RunSet};
use crate::quantity::{show, show_plural};
use poolsim_core::metric::{self, name};
use poolsim_core::units::ShowBytes;

/// The runs' result in two sentences.
pub fn verdict(set: &RunSet) -> String {
    match set.runs.as_slice() {
        [] => "There are no runs to compare.".into(),
        [run] => format!("{} {}", one_run(run), who_ran_out(set)),
        _ => format!("{} {}", who_took_least(set), who_ran_out(set)),
    }
}

fn peak(run: &Run) -> Option<u64> {
    run.record.metric(name::peak_reserved_bytes).map(|value| value.as_f64() as u64)
}

fn one_run(run: &Run) -> String {
    let words = |name: &str| {
        let metric = metric::find(name).expect("a name of the table");
        run.record.metric(name).map_or("an unknown share".into(), |value| show(value, metric.unit))
    };
    format!(
        "{} reserved {} at its peak, of which active blocks needed {} at most ({} fragmentation).",
        run.label,
        words(name::peak_reserved_bytes),
        words(name::peak_active_bytes),
        words(name::fragmentation),
    )
}

fn who_took_least(set: &RunSet) -> String {
    let mut peaks: Vec<(u64, &Run)> =
        set.runs.iter().filter_map(|run| Some((peak(run)?, run))).collect();
    peaks.sort_by_key(|(bytes, _)| *bytes);
    let (Some((least, best)), Some((most, worst))) = (peaks.first(), peaks.last()) else {
        return "No run says how much memory it reserved.".into();
    };
    if least == most {
        return format!("All policies reserved {} at their peaks.", ShowBytes(*least));
    }
    let (saved, share) = (most - least, (most - least) as f64 / *most as f64);
    format!(
        "{} reserved least at its peak, {}: {} ({:.1} %) less than {}, which reserved most with {}.",
        best.label,
        ShowBytes(*least),
        ShowBytes(saved),
        share * 100.0,
        worst.label,
        ShowBytes(*most),
    )
}

fn who_ran_out(set: &RunSet) -> String {
    let labels = |verdict: &str| -> Vec<&str> {
        let runs = set.runs.iter().filter(|run| run.verdict == verdict);
        runs.map(|run| run.label.as_str()).collect()
    };
    let (refused, uncertain) = (labels("out_of_memory"), labels("uncertain"));
    let mut text = match (refused.len(), set.runs.len()) {
        (0, 1) => "No request was refused".to_string(),
        (0, _) if uncertain.is_empty() => "None ran out of memory".into(),
        (0, _) => "None certainly ran out of memory".into(),
        (1, 1) => {
            let ooms = set.runs[0].record.metric(name::ooms).map_or(0, |v| v.as_f64() as u64);
            format!("It ran out of memory: {} refused", show_plural(ooms, "request"))
        }
        (n, all) if n == all => "All of them ran out of memory".into(),
        _ => format!("{} ran out of memory", list(&refused)),
    };
    if !uncertain.is_empty() {
        text += &format!(
            "; for {} it hangs on where the driver puts memory",
            if set.runs.len() == 1 { "this run".into() } else { list(&uncertain) }
        );
    }
    text + "."
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).into(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// What a reader might take for measured and was not, a line each.
pub fn not_measured(set: &RunSet) -> Vec<String> {
    let runs = &set.runs;
    let mut lines = Vec::new();
    if runs.iter().all(|run| run.record.provenance.target != "gpu") {
        lines.push(
            "Nothing here ran on a GPU: times in device calls and their distributions are predicted from the device \
             profile; no latency was measured."
                .into(),
        );
    }
    if runs.iter().any(|run| run.record.provenance.placement == "driver-model") {
        lines.push(
            "Where the driver would have put memory comes from a model; it decides ties between equal free blocks."
                .into(),
        );
    }
    let without = |missing: fn(&Run) -> bool| -> Vec<&str> {
        runs.iter().filter(|run| missing(run)).map(|run| run.label.as_str()).collect()
    };
    for (labels, what) in [
        (without(|run| run.series.is_empty()), "Memory over time"),
        (without(|run| run.calls.is_empty()), "Device calls over time"),
        (without(|run| run.keyframes.is_empty()), "The address space"),
    ] {
        if !labels.is_empty() {
            lines.push(format!("{what} was not kept for {}.", list(&labels)));
        }
    }
    if set.stacks.is_empty() {
        lines.push(
            "The trace has no stacks, so memory is not put down to places in the program.".into(),
        );
    }
    if runs.iter().all(|run| run.record.metric(name::live_bound_bytes).is_none()) {
        lines.push(
            "How far any policy could go (a lower bound) was not computed; --bound does that."
                .into(),
        );
    }
    let simulated = |run: &&Run| run.record.provenance.target == "sim";
    let without = |missing: fn(&Run) -> bool| -> Vec<&str> {
        let runs = runs.iter().filter(simulated).filter(|run| missing(run));
        runs.map(|run| run.label.as_str()).collect()
    };
    for (labels, what, command) in [
        (
            without(|run| run.waterfall.is_none()),
            "Which rule costs how much",
            "`poolsim waterfall TRACE --policy …`",
        ),
        (
            without(|run| run.frontier.is_none()),
            "On how little memory the job would live",
            "`poolsim frontier TRACE --policy …`",
        ),
    ] {
        if !labels.is_empty() {
            lines.push(format!(
                "{what} was not computed for {}; {command} does, and so does `--lab always` where the runs are made.",
                list(&labels)
            ));
        }
    }
    let digests: std::collections::BTreeSet<&str> =
        runs.iter().map(|run| run.record.provenance.trace_digest.as_str()).collect();
    if digests.len() > 1 {
        lines.push(format!(
            "The runs are of {} different traces: their numbers are not comparable with each other.",
            digests.len()
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolsim_core::record::Value;
    use poolsim_core::units::GIB;

    fn run(label: &str, peak: u64, verdict: &str) -> Run {
        let mut run = Run { label: label.into(), verdict: verdict.into(), ..Run::default() };
        run.record.set(name::peak_reserved_bytes, Value::Int(peak));
        run
    }

    #[test]
    fn the_verdict_names_the_least_the_most_and_who_ran_out() {
        let set = RunSet {
            runs: vec![
                run("recorded", 4 * GIB, "fits"),
                run("expandable", 3 * GIB, "uncertain"),
                run("split128", 8 * GIB, "out_of_memory"),
            ],
            ..RunSet::default()
        };
        assert_eq!(
            verdict(&set),
            "expandable reserved least at its peak, 3.00 GiB: 5.00 GiB (62.5 %) less than split128, which reserved \
             most with 8.00 GiB. split128 ran out of memory; for expandable it hangs on where the driver puts memory."
        );
    }
}
