//! `poolsim trace merge`.

use super::{exporter, load, write};
use crate::args::{MachineArgs, SelectArgs};
use crate::load::{Input, has_history};
use crate::output::{Ending, Out};
use crate::trace_args::{AlignArg, InOut, MergeArgs};
use poolsim_core::TraceError;
use poolsim_sim::DeviceProfile;
use poolsim_traces::Source;
use poolsim_traces::transform::{Align, Flow, merge, start_of};

/// Reads every trace and writes one.
pub fn run(args: &MergeArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let exporter = exporter(&args.output, &args.inputs)?;
    let mut sources = Vec::new();
    for input in &args.inputs {
        let files = InOut {
            input: input.clone(),
            output: args.output.clone(),
            select: SelectArgs { device: None, recover: false },
            machine: MachineArgs::default(),
        };
        sources.push(source(&files)?);
    }
    let mut clocks = true;
    let mut open = |n: usize| -> Result<Flow, TraceError> { Flow::of(again(&sources[n])) };
    for n in 0..args.inputs.len() {
        clocks &= open(n)?.source.header().start_unix_us.is_some();
    }
    let align = match args.align {
        Some(AlignArg::Clock) => Align::Clock,
        Some(AlignArg::Start) => Align::Start,
        Some(AlignArg::After) => Align::After,
        None if clocks => Align::Clock,
        None => Align::Start,
    };
    let merged = merge(&mut open, args.inputs.len(), align, args.same_streams)?;
    write(merged, exporter, &args.output, out)
}

/// The requests of a file, or, of a state without a history, its allocations.
fn source(files: &InOut) -> anyhow::Result<Source> {
    let profile = DeviceProfile::h200();
    let input = Input::open(&files.input, &files.select, &files.machine, &profile)?;
    match &input.source {
        Source::Recording(state) if !has_history(state) => {
            Ok(Source::Trace(Box::new(start_of(state))))
        }
        _ => Ok(load(files)?.events.into_source()),
    }
}

/// The same once more, from its start.
fn again(source: &Source) -> Source {
    match source {
        Source::Trace(trace) => Source::Trace(trace.clone()),
        Source::Pst(reader) => Source::Pst(reader.reopen()),
        Source::Recording(_) => unreachable!("a loaded trace holds requests"),
    }
}
