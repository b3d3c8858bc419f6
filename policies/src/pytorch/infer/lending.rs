//! Pools that lend their free blocks to the default pool before anything is released (`use_on_oom`).
//!
//! Nothing in a recording says that a request fell back to such a pool: a request to the pool itself leaves the same entries.
//! But if, from some moment on, a pool serves only requests for which the default pool would have been refused, and no
//! refused request passed it by, then it lends.

use super::super::size::segment_size;
use super::search::Search;
use poolsim_core::recording::Action;
use poolsim_core::units::Bytes;
use std::collections::BTreeMap;

/// So many requests must have been served by lending before it is believed.
const ENOUGH: usize = 3;

/// Looks for lending pools in a finished search, and has the search use what it finds.
pub(super) fn find(search: &mut Search) {
    let Some(limit) = search.run.state.policy.limit() else { return };
    if search.facts.config.expandable {
        // Falling back passes by blocks of expandable segments.
        return;
    }
    for (group, requests) in refused_elsewhere(search, limit) {
        if requests.len() >= ENOUGH {
            search.try_lending(group, &requests);
        }
    }
}

/// By group of private lots: the requests that it served at its end, for which the default pool had no room.
fn refused_elsewhere(search: &Search, limit: Bytes) -> BTreeMap<u32, Vec<u32>> {
    let facts = search.facts;
    let labels = &search.run.labels;
    let mut held: Bytes = facts.start.ranges.iter().map(|r| r.size).sum();
    let mut by_group: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (i, e) in facts.rec.entries.iter().enumerate() {
        match e.action {
            Action::SegmentAlloc | Action::SegmentMap => held = held.saturating_add(e.size),
            Action::SegmentFree | Action::SegmentUnmap => held = held.saturating_sub(e.size),
            Action::Alloc => {
                let lot = facts.lot[i] as usize;
                if !labels.pool.get(lot).is_some_and(|p| p.is_private()) {
                    continue;
                }
                let served = by_group.entry(labels.group[lot]).or_default();
                let wanted = segment_size(facts.config, facts.rounded(e.size));
                if held.saturating_add(wanted) > limit && facts.lots[lot].first_alloc != i as u32 {
                    served.push(i as u32);
                } else {
                    served.clear();
                }
            }
            _ => {}
        }
    }
    by_group
}
