//! What is kept of runs beyond their numbers, for reports.

use crate::choice::Choice;
use crate::load::Events;
use crate::runner::{Finished, Setting, Verdict};
use poolsim_core::stack::{StackId, StackTable};
use poolsim_core::{DeviceOp, Keyframe, Ledger, Moment, TraceError};
use poolsim_real_backend::Latency;
use poolsim_reports::data::{Distribution, Run, RunSet, Source};
use poolsim_sim::observe::{Calls, Keyframes, Series};
use poolsim_sim::{Observer, Placement, ReplayOptions, Step, replay};
use std::collections::BTreeSet;

/// Points of memory over time. Each holds the extremes of its events, so this bounds what a zoom shows, not what is seen.
const POINTS: usize = 1 << 14;

/// Heaps at equal distances.
const KEYFRAMES: u64 = 48;

/// Blocks in all of these together; beyond, there are fewer heaps.
const BLOCKS: usize = 400_000;

/// Refused requests whose heap is kept.
const REFUSED: usize = 4;

/// Watches a run.
pub type Kept = ((Series, Calls), Prices);

/// A watcher for one run.
pub fn watcher() -> Kept {
    ((Series::new(POINTS), Calls::default()), Prices::default())
}

/// What the simulated device took for each call, by call.
#[derive(Default)]
pub struct Prices {
    before: Ledger,
    by_call: [Option<Latency>; DeviceOp::ALL.len()],
}

impl Observer for Prices {
    fn on_step(&mut self, step: &Step<'_>) {
        for (i, latency) in self.by_call.iter_mut().enumerate() {
            let calls = step.ledger.calls[i] - self.before.calls[i];
            let time = step.ledger.time[i] - self.before.time[i];
            if let Some(each) = time.checked_div(calls) {
                latency.get_or_insert_default().add_many(each, calls);
            }
        }
        self.before = step.ledger.clone();
    }
}

/// The heap at moments that are known once the run is over; runs the policy again.
///
/// # Errors
/// Those of the trace.
pub fn keyframes(
    setting: &Setting<'_>,
    choice: &Choice,
    finished: &Finished,
) -> Result<Vec<Keyframe>, TraceError> {
    let mut named: Vec<(u64, Moment)> =
        finished.peak_event.into_iter().map(|event| (event, Moment::Peak)).collect();
    let refused = finished.record.ooms.iter().take(REFUSED);
    named.splice(0..0, refused.map(|oom| (oom.event, Moment::Refused)));
    let stride = setting.loaded.events.count().div_ceil(KEYFRAMES);
    let mut frames = Keyframes::new(stride, BLOCKS, named);
    let mut policy = setting.policy(choice);
    let mut device = setting.device(Placement::Driver, false);
    let options = ReplayOptions { restore: setting.restore(choice), ..ReplayOptions::default() };
    let mut source = setting.loaded.events.source();
    replay(&mut *source, &mut policy, &mut device, &mut frames, &options)?;
    Ok(frames.into_frames())
}

/// A run with what was kept of it.
pub fn run(choice: &Choice, finished: &Finished, kept: &Kept, keyframes: Vec<Keyframe>) -> Run {
    let verdict = match finished.verdict {
        Verdict::Fits => "fits",
        Verdict::OutOfMemory => "out_of_memory",
        Verdict::Uncertain => "uncertain",
    };
    Run {
        label: choice.label.clone(),
        verdict: verdict.into(),
        record: finished.record.clone(),
        series: kept.0.0.points().to_vec(),
        calls: kept.0.1.points().to_vec(),
        keyframes,
        distributions: distributions(finished, &kept.1),
        ..Run::default()
    }
}

/// Times as measured, or, of a run in simulation, as priced.
fn distributions(finished: &Finished, prices: &Prices) -> Vec<Distribution> {
    let of = |call: &str, source, latency: &Latency| Distribution {
        call: call.into(),
        source,
        steps: latency.steps(),
    };
    if finished.record.measured.is_some() {
        let measured = finished.latency.iter().filter(|(_, latency)| latency.calls() > 0);
        return measured.map(|(call, latency)| of(call, Source::Measured, latency)).collect();
    }
    let priced = DeviceOp::ALL.iter().zip(&prices.by_call);
    priced
        .filter_map(|(op, latency)| Some(of(op.name(), Source::Modelled, latency.as_ref()?)))
        .collect()
}

/// Runs with what the trace says of all of them.
///
/// # Errors
/// Those of the trace.
pub fn set(setting: &Setting<'_>, runs: Vec<Run>) -> Result<RunSet, TraceError> {
    let tables;
    let (stacks, annotations) = match &setting.loaded.events {
        Events::Memory(trace) => (&trace.stacks, trace.annotations.clone()),
        Events::Stream(reader) => {
            tables = reader.tables()?;
            (&tables.stacks, tables.annotations.clone())
        }
    };
    let command: Vec<String> =
        std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    Ok(RunSet {
        machine: setting.loaded.machine.words(),
        command: format!("poolsim {}", command.join(" ")),
        stacks: used(&runs, stacks),
        annotations,
        runs,
    })
}

/// The stacks that the runs' heaps name.
fn used(
    runs: &[Run],
    table: &StackTable,
) -> std::collections::BTreeMap<StackId, Vec<poolsim_core::stack::Frame>> {
    let frames = runs.iter().flat_map(|run| &run.keyframes);
    let blocks = frames.flat_map(|frame| frame.heap.blocks());
    let ids: BTreeSet<StackId> = blocks.map(|(_, block)| block.stack).collect();
    let named = ids.into_iter().filter(|id| *id != StackId::NONE);
    named.map(|id| (id, table.stack(id).cloned().collect())).collect()
}
