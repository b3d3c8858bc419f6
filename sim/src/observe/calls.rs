//! Device calls over time, in bounded space.

use crate::engine::{Observer, Step};
use poolsim_core::{CallsPoint, Ledger};

/// A run's device calls in at most so many points, each of which stands for as many events as every other (the last for
/// fewer). Sums only: a point holds all calls up to its last event.
#[derive(Clone, Debug)]
pub struct Calls {
    limit: usize,
    /// Events per point.
    width: u64,
    points: Vec<CallsPoint>,
}

impl Default for Calls {
    fn default() -> Self {
        Calls::new(1024)
    }
}

impl Calls {
    /// At most `limit` points (at least 2, and even, so that pairs stay pairs).
    pub fn new(limit: usize) -> Self {
        Calls { limit: limit.max(2).next_multiple_of(2), width: 1, points: Vec::new() }
    }

    /// The points, oldest first.
    pub fn points(&self) -> &[CallsPoint] {
        &self.points
    }

    #[cold]
    fn halve(&mut self) {
        // Points are sums since the start, so of each pair the later one says all; an odd last one stays.
        let last = self.points.len() - 1;
        let mut i = 0;
        self.points.retain(|_| {
            i += 1;
            i % 2 == 0 || i - 1 == last
        });
        self.width *= 2;
    }
}

impl Observer for Calls {
    fn on_step(&mut self, step: &Step<'_>) {
        let Ledger { calls, time, .. } = *step.ledger;
        let point = CallsPoint { last_event: step.index, last_at: step.event.at, calls, time };
        if !step.index.is_multiple_of(self.width)
            && let Some(last) = self.points.last_mut()
        {
            *last = point;
            return;
        }
        self.points.push(point);
        if self.points.len() > self.limit {
            self.halve();
        }
    }
}
