//! `poolsim info`: what is in a trace.

mod document;
mod layers;
mod text;

use crate::args::InfoArgs;
use crate::contents::Contents;
use crate::load::{Input, has_history, in_file, infer_requests};
use crate::machine::Machine;
use crate::output::{Ending, Out};
use poolsim_core::{BlockState, EventSource, Recording, TraceHeader, TraceReader};
use poolsim_sim::DeviceProfile;
use poolsim_traces::{DeviceSummary, Source};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that `info` says, before it is put into words or JSON.
struct Facts {
    path: String,
    format: &'static str,
    compression: Option<&'static str>,
    devices: Vec<DeviceSummary>,
    header: TraceHeader,
    machine: Machine,
    sidecar: Option<String>,
    stacks: u64,
    annotations: u64,
    contents: Contents,
    layers: Vec<layers::Layer>,
    recorded: Option<Recorded>,
    digest: String,
}

/// What only a recording holds.
struct Recorded {
    entries: u64,
    by_action: BTreeMap<&'static str, u64>,
    segments: u64,
    reserved: u64,
    allocated: u64,
    pending: u64,
    free: u64,
    unexplained_from: Option<u64>,
}

/// Describes a trace.
pub fn run(args: &InfoArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let profile = DeviceProfile::h200();
    let input = Input::open(&args.trace, &args.select, &args.machine, &profile)?;
    let facts = facts(input)?;
    if args.json {
        out.json(&document::document(&facts))?;
    } else {
        text::write(&facts, out)?;
    }
    Ok(Ending::Fine)
}

fn facts(input: Input) -> anyhow::Result<Facts> {
    let mut facts = Facts {
        path: input.path.display().to_string(),
        format: input.format,
        compression: input.compression,
        header: input.header().clone(),
        sidecar: input.sidecar.as_ref().map(|s| s.path.display().to_string()),
        devices: input.devices,
        machine: input.machine,
        stacks: 0,
        annotations: 0,
        contents: Contents::default(),
        layers: Vec::new(),
        recorded: None,
        digest: String::new(),
    };
    match input.source {
        Source::Recording(recording) => {
            facts.take_recording(&recording).map_err(|e| in_file(e, &input.path))?;
        }
        Source::Trace(trace) => {
            facts.stacks = trace.stacks.stack_count() as u64 - 1;
            facts.annotations = trace.annotations.len() as u64;
            let trace = Arc::new(*trace);
            facts.layers = layers::layers(&mut TraceReader::new(trace.clone()), &trace.stacks)?;
            facts.take_events(&mut TraceReader::new(trace))?;
        }
        Source::Pst(mut reader) => {
            let tables = reader.tables()?;
            facts.stacks = tables.stacks.stack_count() as u64 - 1;
            facts.annotations = tables.annotations.len() as u64;
            facts.layers = layers::layers(&mut reader.reopen(), &tables.stacks)?;
            facts.take_events(&mut reader)?;
        }
    }
    Ok(facts)
}

impl Facts {
    fn take_events(&mut self, source: &mut dyn EventSource) -> anyhow::Result<()> {
        self.contents = Contents::read(source)?;
        self.digest = self.contents.digest.clone();
        Ok(())
    }

    fn take_recording(&mut self, recording: &Recording) -> anyhow::Result<()> {
        let mut by_action: BTreeMap<&'static str, u64> = BTreeMap::new();
        for entry in &recording.entries {
            *by_action.entry(entry.action.name()).or_default() += 1;
        }
        let heap = &recording.heap;
        let mut recorded = Recorded {
            entries: recording.entries.len() as u64,
            by_action,
            segments: heap.ranges.len() as u64,
            reserved: heap.reserved(),
            allocated: heap.bytes_in(BlockState::Allocated),
            pending: heap.bytes_in(BlockState::Pending),
            free: heap.bytes_in(BlockState::Free),
            unexplained_from: None,
        };
        self.stacks = recording.stacks.stack_count() as u64 - 1;
        self.annotations = recording.annotations.len() as u64;
        if has_history(recording) {
            let inferred = infer_requests(recording)?;
            recorded.unexplained_from = inferred.unexplained.map(|first| first.entry);
            // The trace knows more than the recording said: pools, flags, what was rebuilt.
            self.header = inferred.trace.header.clone();
            self.take_events(&mut TraceReader::new(Arc::new(inferred.trace)))?;
        }
        self.recorded = Some(recorded);
        Ok(())
    }
}
