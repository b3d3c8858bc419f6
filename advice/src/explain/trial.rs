//! Parts of trying a remedy.

use poolsim_core::{Bytes, EventKind, StreamId, Trace};
use poolsim_sim::{Observer, Outcome, Step};

/// Keeps at most so many, evenly spread.
pub(super) fn thin(moments: &mut Vec<u64>, keep: usize) {
    if moments.len() > keep {
        let n = moments.len();
        *moments = (0..keep).map(|i| moments[i * (n - 1) / (keep - 1).max(1)]).collect();
        moments.dedup();
    }
}

/// What was asked for within a stretch of events and is live there when most of it is; nothing if more than `most` are live at once.
pub(super) fn peak_set(
    trace: &Trace,
    range: std::ops::Range<usize>,
    most: usize,
) -> Vec<(Bytes, StreamId)> {
    let mut live: Vec<(u32, Bytes, StreamId)> = Vec::new();
    let (mut now, mut peak, mut best) = (0u64, 0, Vec::new());
    for event in &trace.events[range] {
        match event.kind() {
            EventKind::Alloc | EventKind::AllocRefused if event.size > 0 => {
                live.push((event.slot.0, event.size, event.stream));
                now += event.size;
                if now > peak {
                    peak = now;
                    best.clone_from(&live);
                }
                if event.kind() == EventKind::AllocRefused {
                    live.pop();
                    now -= event.size;
                }
            }
            EventKind::Free | EventKind::FreeLater => {
                if let Some(i) = live.iter().rposition(|(slot, ..)| *slot == event.slot.0) {
                    now -= live.remove(i).1;
                }
            }
            _ => {}
        }
        if live.len() > most {
            return Vec::new();
        }
    }
    best.into_iter().map(|(_, size, stream)| (size, stream)).collect()
}

/// What became of one request.
pub(super) struct Watch {
    pub(super) event: u64,
    pub(super) granted: bool,
    pub(super) refused_before: bool,
}

impl Observer for Watch {
    fn on_step(&mut self, step: &Step<'_>) {
        if step.index < self.event {
            self.refused_before |= step.oom.is_some_and(|oom| !oom.recorded);
        } else if step.index == self.event {
            self.granted = matches!(step.outcome, Outcome::Granted(_) | Outcome::Restored);
        }
    }
}
