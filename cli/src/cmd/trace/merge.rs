//! `poolsim trace merge`.

use super::{exporter, load, write};
use crate::args::{MachineArgs, SelectArgs};
use crate::load::{Events, Input, has_history};
use crate::output::{Ending, Out};
use crate::trace_args::{AlignArg, InOut, MergeArgs};
use poolsim_core::TraceError;
use poolsim_sim::DeviceProfile;
use poolsim_traces::Source;
use poolsim_traces::transform::{Align, Flow, merge, start_of};
use std::sync::Arc;

/// Reads every trace and writes one.
pub fn run(args: &MergeArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let exporter = exporter(&args.output, &args.inputs)?;
    let mut parts = Vec::new();
    for input in &args.inputs {
        let files = InOut {
            input: input.clone(),
            output: args.output.clone(),
            select: SelectArgs { device: None, recover: false },
            machine: MachineArgs::default(),
        };
        parts.push(requests(&files)?);
    }
    let clocks = parts.iter().all(|part| part.header().start_unix_us.is_some());
    let mut open = |n: usize| from_start(&parts[n]);
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
fn requests(files: &InOut) -> anyhow::Result<Events> {
    let profile = DeviceProfile::h200();
    let input = Input::open(&files.input, &files.select, &files.machine, &profile)?;
    match &input.source {
        Source::Recording(state) if !has_history(state) => {
            Ok(Events::Memory(Arc::new(start_of(state))))
        }
        _ => Ok(load(files)?.events),
    }
}

fn from_start(events: &Events) -> Result<Flow, TraceError> {
    match events {
        Events::Memory(trace) => Ok(Flow::shared(trace)),
        Events::Stream(reader) => Flow::of(Source::Pst(reader.reopen())),
    }
}
