//! `poolsim replay`: a trace through policies, side by side.

use crate::args::ReplayArgs;
use crate::bounds::{Bound, Units};
use crate::choice::{Choice, choose, warnings};
use crate::cmd::report;
use crate::gpu::{Gpu, OnGpu, Target as Place};
use crate::keep;
use crate::lab;
use crate::load::{Events, Input, Loaded};
use crate::output::{self, Ending, Out, Usage};
use crate::profile;
use crate::runner::{Finished, Setting, Verdict};
use crate::watch::{Curve, Rows, Watch};
use anyhow::Context;
use poolsim_core::units::ShowBytes;
use poolsim_core::{Bytes, Entry, HeapImage, Recording, TraceHeader};
use poolsim_reports::data::{Run, RunSet};
use poolsim_reports::report::Target;
use poolsim_reports::sparkline::Highs;
use poolsim_reports::table::{self, Row};
use poolsim_reports::{json, latency, prose, torch};
use poolsim_sim::Observer;
use poolsim_sim::bound::Budget;
use poolsim_traces::export::write_torch_snapshot;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Events from which on a run is long enough for a progress bar.
const LONG: u64 = 2_000_000;

/// What was being done when a row could not be written.
const ROWS_FAILED: &str = "writing the file of --series or --decisions";

/// Replays the trace under every policy.
pub fn run(args: &ReplayArgs, out: &mut Out) -> anyhow::Result<Ending> {
    if args.snapshot_out.is_some() && args.policies.len() > 1 {
        let text = "--snapshot-out takes exactly one --policy: a snapshot shows one run";
        return Err(Usage(text.into()).into());
    }
    let gpu = gpu_of(args)?;
    let profile = profile::read(args.profile.as_deref())?;
    let input = Input::open(&args.trace, &args.select, &args.machine, &profile)?;
    let choices = choose(&args.policies, input.header(), &input.machine)?;
    let mut files = Files::create(args)?;
    let mut loaded = input.load()?;
    if let Some(gpu) = &gpu {
        loaded.machine.move_to(&gpu.caps);
    }
    for remark in &loaded.remarks {
        eprintln!("note: {remark}");
    }
    let capacity = args.capacity.or_else(|| capacity_of(loaded.events.header()));
    let setting = Setting::new(&loaded, &profile, capacity.filter(|_| gpu.is_none()))?;
    let on_gpu = gpu.as_ref().map(|gpu| OnGpu::new(gpu, &args.gpu, &setting)).transpose()?;
    let (mut runs, mut kept, mut curves) = (Vec::new(), Vec::new(), Vec::new());
    for choice in &choices {
        let mut curve = Curve::default();
        let (run, data) = one(&setting, on_gpu.as_ref(), choice, &mut files, &mut curve)?;
        runs.push(run);
        curves.push(curve.0);
        kept.extend(data);
    }
    if args.bound {
        let bound = Bound::of(&loaded, Units::of(&loaded, None), Budget::default())?;
        runs.iter_mut().for_each(|run| bound.set(&mut run.record));
        kept.iter_mut().for_each(|run| bound.set(&mut run.record));
    }
    if files.keeps() && gpu.is_none() {
        lab::add(args.lab, &setting, &choices, &mut kept)?;
    }
    let set = if files.keeps() { Some(keep::set(&setting, kept)?) } else { None };
    files.finish(set)?;
    show(args, &setting, &choices, &runs, &curves, out)?;
    let short = runs.iter().any(|run| run.verdict != Verdict::Fits);
    Ok(if short { Ending::OutOfMemory } else { Ending::Fine })
}

/// The GPU to run on, if it is to be one.
fn gpu_of(args: &ReplayArgs) -> anyhow::Result<Option<Gpu>> {
    if args.on == Place::Gpu {
        if args.capacity.is_some() || args.machine.device_memory.is_some() {
            let text =
                "--on gpu takes the GPU's own memory; leave out --capacity and --device-memory";
            return Err(Usage(text.into()).into());
        }
        return Gpu::open(&args.gpu).map(Some);
    }
    match args.gpu.given() {
        Some(option) => Err(Usage(format!("{option} needs --on gpu")).into()),
        None => Ok(None),
    }
}

/// The capacity that a native trace asks for.
fn capacity_of(header: &TraceHeader) -> Option<Bytes> {
    header.attributes.get("capacity")?.parse().ok()
}

fn one(
    setting: &Setting<'_>,
    gpu: Option<&OnGpu<'_>>,
    choice: &Choice,
    files: &mut Files,
    curve: &mut Curve,
) -> anyhow::Result<(Finished, Option<Run>)> {
    let bar = output::progress(setting.loaded.events.count(), LONG, &choice.label);
    let policy = choice.resolved.spec().to_string();
    let keep_log = files.decisions.is_some() || files.snapshot.is_some();
    let keeps = files.keeps();
    let mut watch = Watch {
        policy: &policy,
        series: files.series.as_mut(),
        decisions: files.decisions.as_mut(),
        entries: files.snapshot.is_some().then(Vec::new),
        bar: bar.clone(),
        failed: None,
    };
    let mut kept = keeps.then(keep::watcher);
    let mut watchers: Vec<Box<dyn Observer + '_>> = vec![Box::new(&mut watch), Box::new(curve)];
    watchers.extend(kept.as_mut().map(|kept| Box::new(kept) as Box<dyn Observer>));
    let finished = match gpu {
        Some(gpu) => gpu.run(choice, &mut watchers, keep_log)?.0,
        None => setting.run(choice, &mut watchers, keep_log)?,
    };
    drop(watchers);
    bar.finish_and_clear();
    let Watch { entries, failed, .. } = watch;
    if let Some(error) = failed {
        return Err(error).context(ROWS_FAILED);
    }
    if let (Some((path, file)), Some(entries)) = (&mut files.snapshot, entries) {
        let recording = snapshot(setting.loaded, choice, entries, &finished.heap);
        write_torch_snapshot(file, &recording)
            .and_then(|()| file.flush())
            .with_context(|| path.display().to_string())?;
    }
    let run = match kept {
        // The heap of a run on the GPU is not looked at: that would disturb what is measured.
        Some(kept) if gpu.is_some() => Some(keep::run(choice, &finished, &kept, Vec::new())),
        Some(kept) => {
            let keyframes = keep::keyframes(setting, choice, &finished)?;
            Some(keep::run(choice, &finished, &kept, keyframes))
        }
        None => None,
    };
    Ok((finished, run))
}

/// The run as a recorder would have seen it.
fn snapshot(loaded: &Loaded, choice: &Choice, entries: Vec<Entry>, heap: &HeapImage) -> Recording {
    let header = loaded.events.header();
    let items = choice.resolved.spec().items;
    let settings: Vec<String> = items.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    let (stacks, annotations) = match &loaded.events {
        Events::Memory(trace) => (trace.stacks.clone(), trace.annotations.clone()),
        Events::Stream(_) => Default::default(),
    };
    Recording {
        header: TraceHeader { settings: Some(settings.join(",")), ..header.clone() },
        entries,
        entry_pools: Vec::new(),
        heap: heap.clone(),
        stacks,
        annotations,
    }
}

/// The files to write, made before the work starts so that a wrong path fails at once.
#[derive(Default)]
struct Files {
    series: Option<Rows>,
    decisions: Option<Rows>,
    snapshot: Option<(PathBuf, BufWriter<File>)>,
    /// The folder for the runs themselves.
    out: Option<PathBuf>,
    reports: Vec<Target>,
}

impl Files {
    fn create(args: &ReplayArgs) -> anyhow::Result<Files> {
        let create = |path: &Path| {
            File::create(path).map(BufWriter::new).with_context(|| path.display().to_string())
        };
        let mut files = Files::default();
        if let Some(path) = &args.series {
            let rows = Rows::series(path).with_context(|| path.display().to_string())?;
            files.series = Some(rows);
        }
        if let Some(path) = &args.decisions {
            let rows = Rows::decisions(path).with_context(|| path.display().to_string())?;
            files.decisions = Some(rows);
        }
        if let Some(path) = &args.snapshot_out {
            files.snapshot = Some((path.clone(), create(path)?));
        }
        if let Some(folder) = &args.out {
            RunSet::check_target(folder)?;
        }
        files.out.clone_from(&args.out);
        files.reports = report::targets(&args.reports)?;
        Ok(files)
    }

    /// Whether more than the numbers of a run is wanted.
    fn keeps(&self) -> bool {
        self.out.is_some() || !self.reports.is_empty()
    }

    fn finish(self, set: Option<RunSet>) -> anyhow::Result<()> {
        for rows in [self.series, self.decisions].into_iter().flatten() {
            rows.finish().context(ROWS_FAILED)?;
        }
        let Some(set) = set else { return Ok(()) };
        if let Some(folder) = &self.out {
            set.write(folder)?;
        }
        report::write(&set, &self.reports)
    }
}

fn show(
    args: &ReplayArgs,
    setting: &Setting<'_>,
    choices: &[Choice],
    runs: &[Finished],
    curves: &[Highs],
    out: &mut Out,
) -> anyhow::Result<()> {
    if args.json {
        return out.json(&document(args, choices, runs));
    }
    let labels = choices.iter().map(|c| c.label.as_str());
    let rows: Vec<Row<'_>> =
        labels.zip(runs).map(|(label, run)| Row { label, record: &run.record }).collect();
    warn(setting, choices, runs);
    if args.summary || args.stats {
        return torch_words(args, setting, &rows, runs, out);
    }
    let named: Vec<_> = rows.iter().map(|r| (r.label, r.record)).collect();
    let machine = setting.loaded.machine.words();
    out.write_all(prose::provenance(&named, &machine).as_bytes())?;
    writeln!(out)?;
    out.write_all(table::render(&rows, output::width()).as_bytes())?;
    over_time(&rows, curves, out)?;
    out.write_all(latency::render(&rows).as_bytes())?;
    for row in &rows {
        let paragraph = prose::ooms(row.label, row.record);
        if !paragraph.is_empty() {
            writeln!(out)?;
            out.write_all(output::paragraph(&paragraph, 0).as_bytes())?;
        }
    }
    Ok(())
}

/// A line of bars a run.
fn over_time(rows: &[Row<'_>], curves: &[Highs], out: &mut Out) -> anyhow::Result<()> {
    let scale = curves.iter().map(Highs::highest).max().unwrap_or(0);
    if scale == 0 {
        return Ok(());
    }
    writeln!(out, "\nReserved over the run (full height: {})", ShowBytes(scale))?;
    let mut lines = table::plain_table();
    lines.set_header(["policy", "highest in each stretch of events"]);
    for (row, curve) in rows.iter().zip(curves) {
        lines.add_row([row.label.replace(',', ",\n"), curve.line(scale)]);
    }
    out.write_all(table::finish(&lines).as_bytes())?;
    Ok(())
}

/// Every warning once, on standard error; what is true of the trace under every policy was said before.
fn warn(setting: &Setting<'_>, choices: &[Choice], runs: &[Finished]) {
    let of_settings = warnings(choices, &setting.loaded.machine);
    let of_runs = choices.iter().zip(runs).flat_map(|(choice, run)| {
        let new = run.record.warnings.iter().filter(|text| !setting.loaded.remarks.contains(text));
        new.map(|text| format!("{}: {text}", choice.label))
    });
    let mut said = BTreeSet::new();
    for text in of_settings.into_iter().chain(of_runs) {
        if said.insert(text.clone()) {
            eprintln!("warning: {text}");
        }
    }
}

fn torch_words(
    args: &ReplayArgs,
    setting: &Setting<'_>,
    rows: &[Row<'_>],
    runs: &[Finished],
    out: &mut Out,
) -> anyhow::Result<()> {
    let device = setting.loaded.events.header().device;
    for (row, run) in rows.iter().zip(runs) {
        if run.native_stats.is_empty() {
            anyhow::bail!(
                "{} does not reproduce an allocator that has torch's statistics; leave out --summary and --stats",
                row.label
            );
        }
        if rows.len() > 1 {
            writeln!(out, "{}", row.label)?;
        }
        if args.summary {
            out.write_all(torch::memory_summary(&run.native_stats, device).as_bytes())?;
        }
        if args.stats {
            out.write_all(torch::stats_lines(&run.native_stats).as_bytes())?;
        }
    }
    Ok(())
}

fn document(args: &ReplayArgs, choices: &[Choice], runs: &[Finished]) -> Value {
    let runs: Vec<Value> = choices
        .iter()
        .zip(runs)
        .map(|(choice, run)| {
            let mut value = json!(run.record);
            value["label"] = json!(choice.label);
            value["verdict"] = json!(run.verdict);
            if args.stats {
                let stats = run.native_stats.iter().map(|(k, v)| (k.clone(), json!(v)));
                value["native_stats"] = Value::Object(stats.collect());
            }
            value
        })
        .collect();
    json::list("runs", &runs)
}
