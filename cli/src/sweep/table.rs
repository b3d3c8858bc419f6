//! The results of a sweep as text, CSV, JSON lines and Parquet.

use super::{Plan, Results};
use poolsim_core::metric::METRICS;
use poolsim_core::record::Value as Number;
use poolsim_core::units::ShowBytes;
use poolsim_core::{Bytes, RunRecord};
use poolsim_reports::data::{SweepRow, sweep_table};
use poolsim_reports::quantity::show;
use poolsim_reports::table::{finish, numbers_right, plain_table};
use serde::Deserialize;
use serde_json::Value;
use std::io::{self, Write};
use std::path::Path;

/// The metrics that the table shows; the files have all.
const SHOWN: &[&str] =
    &["peak_reserved_bytes", "utilisation", "over_bound", "ooms", "retries", "device_time_ns"];

/// A result a line, in the plan's order.
///
/// # Errors
/// Those of `out`.
pub fn jsonl(results: &Results, out: &mut impl Write) -> io::Result<()> {
    for result in results.iter().flatten() {
        writeln!(out, "{result}")?;
    }
    Ok(())
}

/// A row a result: what it was, how it ended, every metric.
///
/// # Errors
/// Those of `out`.
pub fn csv(results: &Results, out: &mut impl Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let facts =
        ["trace", "trace_digest", "label", "policy", "capacity", "seed", "verdict", "error"];
    csv.write_record(facts.into_iter().chain(METRICS.iter().map(|m| m.name)))?;
    for result in results.iter().flatten() {
        let facts = facts.iter().map(|key| cell(&result[*key]));
        let metrics = METRICS.iter().map(|m| cell(&result["metrics"][m.name]));
        csv.write_record(facts.chain(metrics))?;
    }
    csv.flush()
}

/// A row a result, as Parquet for a file at `path`.
///
/// # Errors
/// Those of the library that writes it.
pub fn parquet(path: &Path, results: &Results) -> anyhow::Result<Vec<u8>> {
    let rows: Vec<SweepRow> = results.iter().flatten().map(row).collect::<Result<_, _>>()?;
    Ok(sweep_table(path, &rows)?)
}

fn row(result: &Value) -> serde_json::Result<SweepRow> {
    let outcome = match result["error"].as_str() {
        Some(error) => Err(error.into()),
        None => Ok((cell(&result["verdict"]), RunRecord::deserialize(result)?)),
    };
    Ok(SweepRow {
        trace: cell(&result["trace"]),
        label: cell(&result["label"]),
        capacity: result["capacity"].as_u64(),
        seed: u64::deserialize(&result["seed"])?,
        outcome,
    })
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A trace and a capacity.
type Group = (usize, Option<Bytes>);

/// One table for each trace and capacity.
pub fn text(plan: &Plan, results: &Results) -> String {
    let mut text = String::new();
    let mut groups: Vec<(Group, Vec<&Value>)> = Vec::new();
    for (cell, result) in plan.cells.iter().zip(results) {
        let Some(result) = result else { continue };
        let key = (cell.trace, cell.capacity);
        match groups
            .iter_mut()
            .rev()
            .take_while(|(k, _)| k.0 == cell.trace)
            .find(|(k, _)| *k == key)
        {
            Some((_, rows)) => rows.push(result),
            None => groups.push((key, vec![result])),
        }
    }
    for ((trace, capacity), rows) in groups {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &plan.traces[trace].name;
        if let Some(capacity) = capacity {
            text += &format!(", {} of the device", ShowBytes(capacity));
        }
        text.push('\n');
        text += &one_table(&rows);
    }
    if plan.traces.len() > 1 {
        text += &summary(plan, results);
    }
    text
}

/// The policies over all traces and capacities.
fn summary(plan: &Plan, results: &Results) -> String {
    let mut labels: Vec<&str> = Vec::new();
    for cell in &plan.cells {
        if !labels.contains(&cell.policy.as_str()) {
            labels.push(&cell.policy);
        }
    }
    let mut table = plain_table();
    let heads =
        ["policy", "runs", "refused\nrequests", "median\nabove bound", "worst\nabove bound"];
    table.set_header(heads);
    for label in labels {
        let rows = results.iter().flatten().filter(|row| row["label"] == label);
        let rows: Vec<&Value> = rows.filter(|row| row["error"].is_null()).collect();
        let refused = rows.iter().filter(|row| row["metrics"]["ooms"] != 0).count();
        let mut over: Vec<f64> =
            rows.iter().filter_map(|row| row["metrics"]["over_bound"].as_f64()).collect();
        over.sort_by(f64::total_cmp);
        let show = |over: Option<&f64>| over.map_or("-".into(), |x| format!("{:.1} %", x * 100.0));
        table.add_row([
            label.replace(',', ",\n"),
            rows.len().to_string(),
            refused.to_string(),
            show(over.get(over.len().saturating_sub(1) / 2)),
            show(over.last()),
        ]);
    }
    numbers_right(&mut table);
    format!("\nOver all runs; those that refused requests have no distance\n{}", finish(&table))
}

fn one_table(rows: &[&Value]) -> String {
    let metrics: Vec<_> = METRICS.iter().filter(|m| SHOWN.contains(&m.name)).collect();
    let mut table = plain_table();
    let heads = metrics.iter().map(|m| m.title.replacen(' ', "\n", 1));
    table.set_header(["policy".to_string()].into_iter().chain(heads));
    let mut errors = String::new();
    for row in rows {
        let label = cell(&row["label"]);
        if let Some(error) = row["error"].as_str() {
            errors += &format!(" {label}: {error}\n");
            continue;
        }
        let value = |name: &str| -> Option<Number> {
            serde_json::from_value(row["metrics"].get(name)?.clone()).ok()
        };
        let cells = metrics
            .iter()
            .map(|m| value(m.name).map_or_else(|| "-".into(), |value| show(value, m.unit)));
        let mut label = label.replace(',', ",\n");
        if row["verdict"] == "uncertain" {
            label += "\n(uncertain)";
        }
        table.add_row([label].into_iter().chain(cells));
    }
    numbers_right(&mut table);
    finish(&table) + &errors
}
