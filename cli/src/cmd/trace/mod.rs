//! `poolsim trace`: tools that make a trace of traces.

mod merge;
mod shrink;
mod simple;

use crate::load::{Input, Loaded};
use crate::output::{Ending, Out, Usage};
use crate::trace_args::{InOut, Tool, TraceArgs};
use poolsim_core::units::ShowBytes;
use poolsim_sim::DeviceProfile;
use poolsim_traces::export::{self, Exporter, OutputOptions};
use poolsim_traces::transform::{Flow, anonymize};
use std::io::Write;
use std::path::Path;

/// Runs a tool.
pub fn run(args: &TraceArgs, out: &mut Out) -> anyhow::Result<Ending> {
    match &args.tool {
        Tool::Slice(args) => simple::run_slice(args, out),
        Tool::Merge(args) => merge::run(args, out),
        Tool::Scale(args) => simple::run_scale(args, out),
        Tool::Strip(args) => simple::run_strip(args, out),
        Tool::Shrink(args) => shrink::run(args, out),
        Tool::Anonymize(args) => {
            let exporter = exporter(&args.files.output, std::slice::from_ref(&args.files.input))?;
            let flow = anonymize(flow(load(&args.files)?)?);
            write(flow, exporter, &args.files.output, out)
        }
    }
}

/// Reads a trace and says what has to be known of how it was read.
fn load(files: &InOut) -> anyhow::Result<Loaded> {
    let profile = DeviceProfile::h200();
    let loaded = Input::open(&files.input, &files.select, &files.machine, &profile)?.load()?;
    for remark in &loaded.remarks {
        eprintln!("note: {remark}");
    }
    Ok(loaded)
}

fn flow(loaded: Loaded) -> anyhow::Result<Flow> {
    Ok(Flow::of(loaded.events.into_source())?)
}

/// The format of the output, asked for before the work starts.
fn exporter(output: &Path, inputs: &[std::path::PathBuf]) -> Result<&'static Exporter, Usage> {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    if inputs.iter().any(|input| real(input).is_some() && real(input) == real(output)) {
        return Err(Usage("the output is a file that is read; write another one".into()));
    }
    let exporter = export::find(None, output).map_err(|error| Usage(error.to_string()))?;
    if exporter.name == "torch-pickle" {
        let text =
            "a snapshot shows decisions, which a trace does not hold; write .pst, .json or .jsonl";
        return Err(Usage(text.into()));
    }
    Ok(exporter)
}

fn write(flow: Flow, exporter: &Exporter, output: &Path, out: &mut Out) -> anyhow::Result<Ending> {
    if !exporter.loses.is_empty() {
        eprintln!("note: {} cannot hold {}", exporter.name, exporter.loses);
    }
    export::write_flow(flow, exporter, output, OutputOptions { overwrite: true })?;
    let bytes = std::fs::metadata(output)?.len();
    writeln!(out, "{}: {}, {}", output.display(), exporter.name, ShowBytes(bytes))?;
    Ok(Ending::Fine)
}
