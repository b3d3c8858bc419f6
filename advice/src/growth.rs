//! Which place of a program holds more than it did, at the moment at which the program holds most.

use crate::explain::{greatest_need, place};
use crate::job::Job;
use crate::space::Setting;
use poolsim_core::stack::StackId;
use poolsim_core::{BlockState, Bytes, TraceError};
use serde::Serialize;
use std::collections::BTreeMap;

/// A place and what it holds in two runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grown {
    /// The call, in words; without stacks the size of the blocks in bytes.
    pub place: String,
    /// Bytes before.
    pub before: Bytes,
    /// Bytes now.
    pub now: Bytes,
}

/// Places that hold more than in the baseline, by how much more, and then those that hold less. Line numbers count: a place
/// that moved within its file is two.
///
/// # Errors
/// Those of the traces.
pub fn growth(baseline: &Job, now: &Job, setting: &Setting) -> Result<Vec<Grown>, TraceError> {
    let (before, after) = (held(baseline, setting)?, held(now, setting)?);
    let mut places: Vec<&String> = before.keys().chain(after.keys()).collect();
    places.sort_unstable();
    places.dedup();
    let bytes =
        |held: &BTreeMap<String, Bytes>, place: &String| held.get(place).copied().unwrap_or(0);
    let mut grown: Vec<Grown> = places
        .into_iter()
        .map(|place| Grown {
            place: place.clone(),
            before: bytes(&before, place),
            now: bytes(&after, place),
        })
        .filter(|grown| grown.before != grown.now)
        .collect();
    grown.sort_by_key(|g| {
        (std::cmp::Reverse(i128::from(g.now) - i128::from(g.before)), g.place.clone())
    });
    Ok(grown)
}

/// Bytes by place at the moment of the greatest need.
fn held(job: &Job, setting: &Setting) -> Result<BTreeMap<String, Bytes>, TraceError> {
    let mut held: BTreeMap<String, Bytes> = BTreeMap::new();
    let Some((_, frame)) = greatest_need(job, setting)? else { return Ok(held) };
    for (_, block) in frame.heap.blocks().filter(|(_, b)| b.state != BlockState::Free) {
        let place = match block.stack {
            StackId::NONE => format!("blocks of {} bytes", block.requested),
            stack => place(&job.trace, stack),
        };
        *held.entry(place).or_default() += block.size;
    }
    Ok(held)
}
