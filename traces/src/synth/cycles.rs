//! Where a recording's phases begin: the cycles that its loop makes.

use poolsim_core::{EventKind, Trace};
use std::collections::BTreeMap;
use std::ops::Range;

/// How the cycles of a recording were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// By a span that comes again and again (an optimizer's step).
    Annotation(String),
    /// By the moments at which all but the lasting memory is free.
    Valleys,
    /// Not at all: stretches of equally many events.
    Windows,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Found::Annotation(name) => name,
            Found::Valleys => "lean moments",
            Found::Windows => "equal stretches",
        })
    }
}

/// A transient level of this share of its peak is high, and of that share low.
const HIGH: f64 = 0.3;
const LOW: f64 = 0.1;
/// Stretches, where there are no cycles, and events of each, at least.
const WINDOWS: usize = 16;
const WINDOW_MIN: usize = 64;

/// The events of each cycle, one after the other from the first event to the last, and how they were told apart.
/// `lives` holds how many events later each event's allocation was freed; `None` for other events and for what stayed.
pub(super) fn cycles(trace: &Trace, lives: &[Option<usize>]) -> (Vec<Range<usize>>, Found) {
    let n = trace.events.len();
    if let Some((name, cuts)) = annotated(trace)
        && cuts.len() >= 2
    {
        return (between(&cuts, n), Found::Annotation(name));
    }
    let cuts = valleys(trace, lives);
    if cuts.len() >= 2 {
        return (between(&cuts, n), Found::Valleys);
    }
    let count = WINDOWS.min(n / WINDOW_MIN).max(1);
    let cuts: Vec<usize> = (1..count).map(|i| n * i / count).collect();
    (between(&cuts, n), Found::Windows)
}

fn between(cuts: &[usize], n: usize) -> Vec<Range<usize>> {
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([n]);
    starts.zip(ends).map(|(a, b)| a..b).filter(|r| !r.is_empty()).collect()
}

/// The first events after each end of the step that comes most often.
fn annotated(trace: &Trace) -> Option<(String, Vec<usize>)> {
    let mut ends: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for span in &trace.annotations {
        let steps =
            span.name.starts_with("Optimizer.step") || span.name.starts_with("ProfilerStep");
        if let (true, Some(end)) = (steps, span.end) {
            // Profiler steps are numbered.
            let name = span.name.split_once("Step#").map_or(span.name.as_str(), |(name, _)| name);
            ends.entry(name).or_default().push(end);
        }
    }
    let (name, ends) =
        ends.into_iter().max_by_key(|(name, ends)| (ends.len(), std::cmp::Reverse(*name)))?;
    let first_after = |end: &u64| trace.events.partition_point(|e| e.at <= *end);
    let mut cuts: Vec<usize> = ends.iter().map(first_after).collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts.retain(|&cut| cut > 0 && cut < trace.events.len());
    Some((name.into(), cuts))
}

/// The leanest moment between any two stretches in which the transient memory is high.
fn valleys(trace: &Trace, lives: &[Option<usize>]) -> Vec<usize> {
    let n = trace.events.len();
    let mut change = vec![0i128; n + 1];
    for (i, event) in trace.events.iter().enumerate() {
        if let Some(life) = lives[i].filter(|&life| life <= n / 3) {
            change[i] += i128::from(event.size);
            change[i + life] -= i128::from(event.size);
        }
    }
    let level: Vec<f64> = change
        .iter()
        .scan(0i128, |now, step| {
            *now += step;
            Some(*now as f64)
        })
        .collect();
    let peak = level.iter().copied().fold(0.0, f64::max);
    let (mut cuts, mut lean): (Vec<usize>, Option<usize>) = (Vec::new(), None);
    let mut was_high = false;
    for (i, &now) in level.iter().enumerate().take(n) {
        if now >= HIGH * peak {
            cuts.extend(lean.take().map(|i| i + 1));
            was_high = true;
        } else if was_high && now <= LOW * peak && lean.is_none_or(|l| now < level[l]) {
            lean = Some(i);
        }
    }
    cuts
}

/// How many events later the allocation that each event makes was freed.
pub(super) fn lives(trace: &Trace) -> Vec<Option<usize>> {
    let mut lives = vec![None; trace.events.len()];
    let mut made: Vec<usize> = vec![0; trace.slot_count() as usize];
    for (i, event) in trace.events.iter().enumerate() {
        let slot = event.slot.index();
        match event.kind() {
            kind if kind.makes_live() => made[slot] = i,
            EventKind::Free | EventKind::FreeLater => lives[made[slot]] = Some(i - made[slot]),
            _ => {}
        }
    }
    lives
}
