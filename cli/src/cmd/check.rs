//! `poolsim check`: does a run keep to its budget?

mod junit;

use crate::args::CheckArgs;
use crate::asked::{Asked, Files};
use crate::output::{Ending, Out, Usage};
use anyhow::Context;
use poolsim_advice::budget::{Clause, Judged, parse};
use poolsim_advice::growth::{Grown, growth};
use poolsim_core::RunRecord;
use poolsim_core::metric::Unit;
use poolsim_core::record::Value;
use poolsim_core::units::ShowBytes;
use poolsim_reports::quantity::show;
use poolsim_sim::DeviceProfile;
use serde_json::json;
use std::io::Write;

/// One condition on one run.
struct Outcome {
    /// The run's file.
    trace: String,
    clause: Clause,
    judged: Judged,
    /// In a sentence, why it does not hold; empty if it does.
    reason: String,
}

/// One run.
struct Checked {
    trace: String,
    outcomes: Vec<Outcome>,
    /// Places that hold more than in the baseline, most first; empty without one.
    grown: Vec<Grown>,
}

/// Holds every run against the budget.
pub fn run(args: &CheckArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let text = args.budget.clone().unwrap_or_else(|| match args.baseline {
        Some(_) => "ooms==0, reserved<=baseline+1%".into(),
        None => "ooms==0".into(),
    });
    let clauses = parse(&text).map_err(|error| Usage(format!("--budget: {error}")))?;
    if args.baseline.is_none()
        && let Some(clause) = clauses.iter().find(|clause| clause.needs_baseline())
    {
        let text = format!("--budget: `{}` needs a --baseline to compare with", clause.text);
        return Err(Usage(text).into());
    }
    // Made before the work starts, so that a wrong path fails at once.
    let xml = match &args.junit {
        Some(path) => {
            Some((path, std::fs::File::create(path).with_context(|| path.display().to_string())?))
        }
        None => None,
    };
    let checked = check_all(args, &clauses)?;
    if let Some((path, file)) = xml {
        junit::write(&checked, file).with_context(|| path.display().to_string())?;
    }
    let holds = checked.iter().all(|run| run.outcomes.iter().all(|o| o.judged.holds));
    if args.json {
        out.json(&document(&checked, holds))?;
    } else {
        write_text(&checked, out)?;
    }
    Ok(if holds { Ending::Fine } else { Ending::Failed })
}

fn check_all(args: &CheckArgs, clauses: &[Clause]) -> anyhow::Result<Vec<Checked>> {
    let profile = DeviceProfile::h200();
    let files = Files {
        select: &args.select,
        machine: &args.machine,
        capacity: args.capacity,
        profile: &profile,
    };
    let asked = files.read_all(&args.trace)?;
    let mut baselines = match &args.baseline {
        Some(path) => files.read_all(path)?,
        None => Vec::new(),
    };
    let mut checked = Vec::new();
    for one in &asked {
        let base = match (baselines.len(), asked.len()) {
            (0, _) => None,
            (1, 1) => baselines.pop(),
            _ => {
                let at = baselines.iter().position(|b| b.path.file_name() == one.path.file_name());
                let Some(at) = at else {
                    anyhow::bail!(
                        "{}: the baseline holds no file of this name",
                        one.path.display()
                    );
                };
                Some(baselines.swap_remove(at))
            }
        };
        checked.push(check(args, one, base.as_ref(), clauses)?);
    }
    Ok(checked)
}

fn record(args: &CheckArgs, asked: &Asked) -> anyhow::Result<RunRecord> {
    let setting = asked.setting(args.policy.as_deref())?;
    Ok(asked.job.record(&setting.resolved).map_err(|error| error.in_file(&asked.path))?)
}

fn check(
    args: &CheckArgs,
    asked: &Asked,
    base: Option<&Asked>,
    clauses: &[Clause],
) -> anyhow::Result<Checked> {
    for remark in &asked.remarks {
        eprintln!("note: {remark}");
    }
    let run = record(args, asked)?;
    let before = base.map(|base| record(args, base)).transpose()?;
    let grown = match base {
        Some(base) => growth(&base.job, &asked.job, &asked.setting(args.policy.as_deref())?)?,
        None => Vec::new(),
    };
    let trace = asked.path.display().to_string();
    let outcomes = clauses
        .iter()
        .map(|clause| {
            let judged = clause.judge(&run, before.as_ref());
            let reason = if judged.holds { String::new() } else { reason(clause, judged, &grown) };
            Outcome { trace: trace.clone(), clause: clause.clone(), judged, reason }
        })
        .collect();
    Ok(Checked { trace, outcomes, grown })
}

/// A value with its unit.
fn shown(value: Option<f64>, unit: Unit) -> String {
    value.map_or("not measured".into(), |x| match unit {
        Unit::Ratio => show(Value::Real(x), unit),
        _ => show(Value::Int(x.round().max(0.0) as u64), unit),
    })
}

fn reason(clause: &Clause, judged: Judged, grown: &[Grown]) -> String {
    let unit = clause.metric.unit;
    let limit = match clause.needs_baseline() {
        true => format!("{} ({})", clause.text, shown(judged.limit, unit)),
        false => clause.text.clone(),
    };
    let mut text =
        format!("{} is {}, which breaks {limit}", clause.metric.title, shown(judged.value, unit));
    match grown.first().filter(|place| unit == Unit::Bytes && place.now > place.before) {
        Some(place) => {
            text += &format!(
                "; at the moment of the greatest need, most of the growth is of {}: {} instead of {}",
                place.place,
                ShowBytes(place.now),
                ShowBytes(place.before)
            );
        }
        None if !grown.is_empty() => text += "; no place of the program holds more than before",
        None => {}
    }
    text
}

fn document(checked: &[Checked], holds: bool) -> serde_json::Value {
    let outcome = |o: &Outcome| {
        json!({
            "clause": o.clause.text,
            "metric": o.clause.metric.name,
            "holds": o.judged.holds,
            "value": o.judged.value,
            "limit": o.judged.limit,
            "reason": o.reason,
        })
    };
    let runs = checked.iter().map(|run| {
        json!({
            "trace": run.trace,
            "outcomes": run.outcomes.iter().map(outcome).collect::<Vec<_>>(),
            "grown": run.grown,
        })
    });
    json!({
        "poolsim_version": env!("CARGO_PKG_VERSION"),
        "holds": holds,
        "runs": runs.collect::<Vec<_>>(),
    })
}

fn write_text(checked: &[Checked], out: &mut Out) -> anyhow::Result<()> {
    for outcome in checked.iter().flat_map(|run| &run.outcomes) {
        let word = if outcome.judged.holds { "holds" } else { "fails" };
        let text = match outcome.judged.holds {
            true => {
                let value = shown(outcome.judged.value, outcome.clause.metric.unit);
                format!("{word}  {}: {} ({value})", outcome.trace, outcome.clause.text)
            }
            false => format!("{word}  {}: {}", outcome.trace, outcome.reason),
        };
        writeln!(out, "{text}")?;
    }
    Ok(())
}
