//! What is kept of runs beyond their numbers, for reports.

use crate::choice::Choice;
use crate::load::Events;
use crate::runner::{Finished, Setting, Verdict};
use poolsim_core::stack::{StackId, StackTable};
use poolsim_core::{Keyframe, Moment, TraceError};
use poolsim_reports::data::{Run, RunSet};
use poolsim_sim::observe::{Calls, Keyframes, Series};
use poolsim_sim::{Placement, ReplayOptions, replay};
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
pub type Kept = (Series, Calls);

/// A watcher for one run.
pub fn watcher() -> Kept {
    (Series::new(POINTS), Calls::default())
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
        series: kept.0.points().to_vec(),
        calls: kept.1.points().to_vec(),
        keyframes,
    }
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
