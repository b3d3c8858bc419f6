//! Several sets of runs as one.

use super::RunSet;
use poolsim_core::stack::StackId;
use std::collections::{BTreeMap, BTreeSet};

impl RunSet {
    /// One set of all runs. Labels that occur twice get their set's name in front; spans are kept only if all runs are of
    /// one trace, as they would lie on a wrong time axis otherwise.
    pub fn merge(mut sets: Vec<(String, RunSet)>) -> RunSet {
        if sets.len() == 1 {
            return sets.remove(0).1;
        }
        let mut times: BTreeMap<String, u32> = BTreeMap::new();
        for run in sets.iter().flat_map(|(_, set)| &set.runs) {
            *times.entry(run.label.clone()).or_default() += 1;
        }
        let mut merged = RunSet::default();
        let (mut machines, mut commands) = (BTreeSet::new(), Vec::new());
        let mut next = 0;
        for (name, set) in sets {
            machines.insert(set.machine);
            commands.push(set.command);
            if merged.annotations.is_empty() {
                merged.annotations = set.annotations;
            }
            let offset = next;
            for (id, frames) in set.stacks {
                next = next.max(offset + id.0);
                merged.stacks.insert(StackId(offset + id.0), frames);
            }
            for mut run in set.runs {
                if times[&run.label] > 1 {
                    run.label = format!("{name}/{}", run.label);
                }
                let frames = run.keyframes.iter_mut();
                let ranges = frames.flat_map(|frame| &mut frame.heap.ranges);
                for block in ranges.flat_map(|(_, blocks)| blocks) {
                    if block.stack != StackId::NONE {
                        block.stack.0 += offset;
                    }
                }
                merged.runs.push(run);
            }
        }
        let digest = |run: &super::Run| run.record.provenance.trace_digest.clone();
        if merged.runs.iter().map(digest).collect::<BTreeSet<_>>().len() > 1 {
            merged.annotations.clear();
        }
        merged.machine = machines.into_iter().collect::<Vec<_>>().join("; ");
        merged.command = commands.join("\n");
        merged
    }
}
