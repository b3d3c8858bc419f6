//! `poolsim sweep`: many runs, several at a time, that survive a kill.

use crate::args::SweepArgs;
use crate::output::{self, Ending, Out};
use crate::sweep::{self, Experiment, Journal, Limits, Plan, Results};
use anyhow::Context;
use poolsim_reports::quantity::show_plural;
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Runs what is not done yet, and writes the results.
pub fn run(args: &SweepArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let started = Instant::now();
    let experiment = Experiment::read(&args.experiment)?;
    let folder = args.experiment.parent().unwrap_or(Path::new(""));
    let to = args.out.clone().unwrap_or_else(|| args.experiment.with_extension("sweep"));
    fs::create_dir_all(&to).with_context(|| to.display().to_string())?;
    let plan = Plan::new(&experiment, folder, experiment.make_traces(&to)?)?;
    let journal = Journal::open(&to.join("journal"))?;
    let deadline = args.budget.and_then(|s| started.checked_add(Duration::from_secs(s)));
    let limits = Limits { jobs: args.jobs.unwrap_or(0), deadline };
    let bar = output::progress(plan.cells.len() as u64, 2, "sweeping");
    let results = sweep::run(&plan, &journal, &limits, &bar)?;
    bar.finish_and_clear();
    let files = write_files(&to, &plan, &results)?;
    let done = results.iter().flatten().count();
    let failed = results.iter().flatten().filter(|result| result["error"].is_string()).count();
    if args.json {
        out.json(&json!({
            "cells": plan.cells.len(),
            "done": done,
            "failed": failed,
            "results": results.iter().flatten().collect::<Vec<_>>(),
        }))?;
    } else {
        out.write_all(sweep::text(&plan, &results).as_bytes())?;
    }
    for file in files {
        eprintln!("wrote {}", file.display());
    }
    let cells = show_plural(plan.cells.len() as u64, "run");
    if done < plan.cells.len() {
        eprintln!(
            "the budget is used up: {done} of {cells} are done; the same command goes on from here"
        );
    }
    if failed > 0 {
        eprintln!("{failed} of {cells} could not be run; the results say why");
    }
    Ok(if failed > 0 { Ending::Failed } else { Ending::Fine })
}

/// Writes each file whole under another name first, so that a kill leaves the old one or the new one.
fn write_files(folder: &Path, plan: &Plan, results: &Results) -> anyhow::Result<Vec<PathBuf>> {
    let (mut jsonl, mut csv) = (Vec::new(), Vec::new());
    sweep::jsonl(results, &mut jsonl)?;
    sweep::csv(results, &mut csv)?;
    let text = sweep::text(plan, results).into_bytes();
    let parquet = sweep::parquet(&folder.join("results.parquet"), results)?;
    let mut written = Vec::new();
    for (name, bytes) in [
        ("results.jsonl", jsonl),
        ("results.csv", csv),
        ("results.parquet", parquet),
        ("table.txt", text),
    ] {
        let (path, part) = (folder.join(name), folder.join(format!("{name}.part")));
        fs::write(&part, bytes)
            .and_then(|()| fs::rename(&part, &path))
            .with_context(|| path.display().to_string())?;
        written.push(path);
    }
    Ok(written)
}
