//! The comparison for people.

use super::{Compared, Parity};
use crate::output::{self, Out};
use poolsim_reports::quantity::{show, show_count};
use poolsim_reports::table::{self, Row, finish, numbers_right, plain_table, words_left};
use poolsim_reports::{latency, prose};
use std::io::{self, Write};

/// Prints the runs, then what lies between simulation and GPU.
pub fn write(compared: &[Compared], machine: &str, out: &mut Out) -> io::Result<()> {
    let labels: Vec<(String, &poolsim_core::RunRecord)> = compared
        .iter()
        .flat_map(|c| c.runs().map(move |(place, run)| (format!("{} {place}", c.label), run)))
        .collect();
    let rows: Vec<Row<'_>> = labels.iter().map(|(label, record)| Row { label, record }).collect();
    let named: Vec<_> = rows.iter().map(|r| (r.label, r.record)).collect();
    out.write_all(prose::provenance(&named, machine).as_bytes())?;
    writeln!(out)?;
    out.write_all(table::render(&rows, output::width()).as_bytes())?;
    out.write_all(latency::render(&rows).as_bytes())?;
    if compared.iter().all(|c| c.parity.is_none()) {
        return Ok(());
    }
    writeln!(out, "\nSimulation against GPU, where they differ")?;
    out.write_all(differences(compared).as_bytes())?;
    writeln!(out)?;
    for c in compared {
        if let Some(parity) = &c.parity {
            out.write_all(
                output::paragraph(&format!("{}: {}", c.label, words(parity)), 0).as_bytes(),
            )?;
        }
    }
    Ok(())
}

fn differences(compared: &[Compared]) -> String {
    let mut table = plain_table();
    table.set_header(["policy", "metric", "simulated", "measured", "error"]);
    for c in compared {
        let same = c.distances.iter().filter(|d| d.error == Some(0.0)).count();
        let note = format!("{same} of {} metrics are the same", c.distances.len());
        table.add_row([c.label.clone(), note, String::new(), String::new(), String::new()]);
        for d in c.distances.iter().filter(|d| d.error != Some(0.0)) {
            table.add_row([
                String::new(),
                d.metric.title.into(),
                show(d.sim, d.metric.unit),
                show(d.gpu, d.metric.unit),
                d.error.map_or("-".into(), |e| format!("{:+.2} %", e * 100.0)),
            ]);
        }
    }
    numbers_right(&mut table);
    words_left(&mut table, 1);
    finish(&table)
}

fn words(parity: &Parity) -> String {
    match parity {
        Parity::Same { lines_are, lines } => {
            format!("{lines_are}: all {} are the same", show_count(*lines as u64))
        }
        Parity::Differs { lines_are, lines, first } => format!(
            "{lines_are}: they part after {} that are the same: {first}",
            show_count(*lines as u64)
        ),
        Parity::NotCompared { why } => format!("decisions were not compared: {why}"),
    }
}
