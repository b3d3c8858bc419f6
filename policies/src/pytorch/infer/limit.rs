//! A memory limit that the recording does not name.
//!
//! A limit leaves traces: what was held never went above it, and every refused request would have. Where the device had
//! room for what it refused, there was a limit, and these two bounds bracket it.

use super::super::size::segment_size;
use super::facts::Facts;
use poolsim_core::recording::Action;
use poolsim_core::units::{Bytes, GIB};

/// Bounds of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bracket {
    /// So much was held.
    pub at_least: Bytes,
    /// So much was refused.
    pub below: Bytes,
}

/// Where a limit must lie, if requests were refused although the device had room for them.
pub(super) fn bracket(facts: &Facts) -> Option<Bracket> {
    let mut held: Bytes = facts.start.ranges.iter().map(|r| r.size).sum();
    let (mut at_least, mut below) = (0, Bytes::MAX);
    // What was held before the pages that the request on its way had mapped. The limit is checked for a segment's size,
    // whatever is mapped then.
    let mut before_maps = None;
    for e in &facts.rec.entries {
        match e.action {
            Action::SegmentAlloc => {
                held = held.saturating_add(e.size);
                at_least = at_least.max(held);
            }
            Action::SegmentMap => {
                before_maps = before_maps.or(Some(held));
                held = held.saturating_add(e.size);
                continue;
            }
            Action::SegmentFree | Action::SegmentUnmap => held = held.saturating_sub(e.size),
            Action::Alloc => {
                if let Some(before) = before_maps {
                    let wanted = segment_size(facts.config, facts.rounded(e.size));
                    at_least = at_least.max(wanted.saturating_add(before));
                }
            }
            Action::Oom => {
                let wanted = segment_size(facts.config, e.size);
                if e.addr < wanted {
                    return None;
                }
                below = below.min(held.saturating_add(wanted));
            }
            _ => {}
        }
        before_maps = None;
    }
    (at_least < below && below < Bytes::MAX).then_some(Bracket { at_least, below })
}

/// Fractions of `total` that put the limit into the bracket, the roundest first: people set a limit as a round number of
/// GiB or as a round fraction.
pub(super) fn fractions(bracket: Bracket, total: Bytes) -> Vec<f64> {
    let inside = |f: f64| {
        let limit = (f * total as f64) as Bytes;
        f < 1.0 && (bracket.at_least..bracket.below).contains(&limit)
    };
    let mut found: Vec<f64> = Vec::new();
    for step in [1.0, 0.5, 0.25, 0.1, 0.05, 0.01, 0.001] {
        let gib = step * GIB as f64;
        let first = (bracket.at_least as f64 / gib).ceil();
        found.push(first * gib / total as f64);
        let share = step / 10.0;
        let first = (bracket.at_least as f64 / total as f64 / share).ceil();
        found.push(first * share);
    }
    found.push(bracket.at_least as f64 / total as f64);
    found.push((bracket.below - 1) as f64 / total as f64);
    let mut kept: Vec<f64> = Vec::new();
    for f in found {
        if inside(f) && !kept.contains(&f) {
            kept.push(f);
        }
    }
    kept
}
