//! `poolsim convert`: a trace in another format.

use crate::args::ConvertArgs;
use crate::load::Input;
use crate::output::{Ending, Out, Usage};
use poolsim_core::units::ShowBytes;
use poolsim_reports::quantity::show_plural;
use poolsim_sim::DeviceProfile;
use poolsim_traces::export::{self, BASE_ATTRIBUTE, Exporter, OutputOptions};
use poolsim_traces::import::kineto::base_time;
use poolsim_traces::{Source, read_all};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::Path;

/// Reads one file and writes the other.
pub fn run(args: &ConvertArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let to_stdout = args.output.as_os_str() == "-";
    if to_stdout && args.json {
        return Err(Usage("--json would mix with the trace on standard output".into()).into());
    }
    if same_file(&args.input, &args.output) {
        return Err(Usage("IN and OUT are the same file; write another one".into()).into());
    }
    let exporter = exporter(args)?;
    let profile = DeviceProfile::h200();
    let mut input = Input::open(&args.input, &args.select, &args.machine, &profile)?;
    if let Some(path) = &args.beside {
        beside(&mut input, exporter, path)?;
    }
    if exporter.takes_recordings && matches!(input.source, Source::Recording(_)) {
        return decisions(args, exporter, input, out);
    }
    let loaded = input.load()?;
    for remark in &loaded.remarks {
        eprintln!("note: {remark}");
    }
    if !exporter.loses.is_empty() {
        eprintln!("note: {} cannot hold {}", exporter.name, exporter.loses);
    }
    let (events, digest) = (loaded.events.count(), loaded.digest);
    write(args, exporter, &loaded.events.into_source(), (events, Some(&digest)), out)
}

/// Puts the timeline on the clock of a profiler trace.
fn beside(input: &mut Input, exporter: &Exporter, profile: &Path) -> anyhow::Result<()> {
    if exporter.name != "chrome" {
        return Err(Usage("--beside is for timelines; let OUT end with .trace.json".into()).into());
    }
    if input.header().start_unix_us.is_none() {
        anyhow::bail!(
            "{}: does not say when it was recorded, so it cannot be laid beside a profile",
            input.path.display()
        );
    }
    let base = base_time(poolsim_traces::content(profile)?).map_err(|e| e.in_file(profile))?;
    let attributes = match &mut input.source {
        Source::Recording(recording) => &mut recording.header.attributes,
        Source::Trace(trace) => &mut trace.header.attributes,
        Source::Pst(reader) => {
            let trace = read_all(reader.reopen())?;
            input.source = Source::Trace(Box::new(trace));
            let Source::Trace(trace) = &mut input.source else { unreachable!("just put there") };
            &mut trace.header.attributes
        }
    };
    attributes.insert(BASE_ATTRIBUTE.into(), base.to_string());
    Ok(())
}

/// Writes a recording with what its allocator decided.
fn decisions(
    args: &ConvertArgs,
    exporter: &Exporter,
    input: Input,
    out: &mut Out,
) -> anyhow::Result<Ending> {
    let Source::Recording(recording) = &input.source else { unreachable!("the caller looked") };
    let entries = recording.entries.len() as u64;
    write(args, exporter, &input.source, (entries, None), out)
}

fn write(
    args: &ConvertArgs,
    exporter: &Exporter,
    source: &Source,
    facts: (u64, Option<&str>),
    out: &mut Out,
) -> anyhow::Result<Ending> {
    if args.output.as_os_str() == "-" {
        (exporter.write)(source, out)?;
        return Ok(Ending::Fine);
    }
    export::write_file(source, exporter, &args.output, OutputOptions { overwrite: true })?;
    said(args, exporter, facts, out)?;
    Ok(Ending::Fine)
}

fn exporter(args: &ConvertArgs) -> Result<&'static Exporter, Usage> {
    let name = args.output.file_name().unwrap_or_default().to_string_lossy();
    let is_snapshot = [".pickle", ".pkl"].iter().any(|ending| name.contains(ending));
    if is_snapshot && args.to.is_none() {
        return Err(Usage(format!(
            "{name}: a snapshot shows decisions, which a trace does not hold; `poolsim replay IN --policy … \
             --snapshot-out {name}` writes that of a simulated run"
        )));
    }
    export::find(args.to.as_deref(), &args.output).map_err(|error| Usage(error.to_string()))
}

fn same_file(one: &Path, other: &Path) -> bool {
    matches!((fs::canonicalize(one), fs::canonicalize(other)), (Ok(a), Ok(b)) if a == b)
}

fn said(
    args: &ConvertArgs,
    exporter: &Exporter,
    (events, digest): (u64, Option<&str>),
    out: &mut Out,
) -> anyhow::Result<()> {
    let bytes = fs::metadata(&args.output)?.len();
    let each = bytes as f64 / events.max(1) as f64;
    if args.json {
        return out.json(&json!({
            "input": args.input.display().to_string(),
            "output": args.output.display().to_string(),
            "format": exporter.name,
            "events": events,
            "bytes": bytes,
            "bytes_per_event": each,
            "trace_digest": digest,
        }));
    }
    let output = args.output.display();
    let (events, bytes) = (show_plural(events, "event"), ShowBytes(bytes));
    writeln!(out, "{output}: {}, {events}, {bytes} ({each:.2} bytes an event)", exporter.name)?;
    Ok(())
}
