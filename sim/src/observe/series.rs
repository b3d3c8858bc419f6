//! Memory over time, in bounded space.

use crate::engine::{Observer, Step};
use poolsim_core::record::Sample;
use poolsim_core::{Bytes, Levels, Point};

/// A run's memory in at most so many points. Each point stands for as many events as every other (the last for fewer) and
/// keeps the exact extremes of them all, so that no peak is lost however long the run.
#[derive(Clone, Debug)]
pub struct Series {
    limit: usize,
    /// Events per point.
    width: u64,
    points: Vec<Point>,
    peaks: Levels,
}

impl Default for Series {
    fn default() -> Self {
        Series::new(4096)
    }
}

impl Series {
    /// A series of at most `limit` points (at least 2).
    pub fn new(limit: usize) -> Self {
        let limit = limit.max(2);
        Series { limit, width: 1, points: Vec::new(), peaks: Levels::default() }
    }

    /// The points, oldest first.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    #[cold]
    fn halve(&mut self) {
        let mut kept = 0;
        for i in (0..self.points.len()).step_by(2) {
            let mut point = self.points[i];
            if let Some(next) = self.points.get(i + 1) {
                point = point.join(next);
            }
            self.points[kept] = point;
            kept += 1;
        }
        self.points.truncate(kept);
        self.width *= 2;
    }
}

impl Observer for Series {
    fn on_step(&mut self, step: &Step<'_>) {
        let now = Levels::now(step.stats);
        let peaks = Levels::peaks(step.stats);
        let mut high = now;
        if peaks != self.peaks {
            // A peak that rose in this event was reached in it, even if the value is lower again now.
            let new = |old: Bytes, peak: Bytes| if peak > old { peak } else { 0 };
            high = now.zip(self.peaks.zip(peaks, new), Bytes::max);
            self.peaks = peaks;
        }
        let (event, at) = (step.index, step.event.at);
        if let Some(point) = self.points.last_mut()
            && event - point.first_event < self.width
        {
            (point.last_event, point.last_at, point.last) = (event, at, now);
            point.low = point.low.zip(now, Bytes::min);
            point.high = point.high.zip(high, Bytes::max);
            return;
        }
        self.points.push(Point {
            first_event: event,
            first_at: at,
            last_event: event,
            last_at: at,
            last: now,
            low: now,
            high,
        });
        if self.points.len() > self.limit {
            self.halve();
        }
    }
}

/// The moment after a step.
#[inline]
pub fn sample(step: &Step<'_>) -> Sample {
    let now = Levels::now(step.stats);
    Sample {
        event: step.index,
        at: step.event.at,
        requested: now.requested,
        allocated: now.allocated,
        active: now.active,
        reserved: now.reserved,
    }
}

/// Every single moment of a run, handed on as it comes.
pub struct Samples<F>(pub F);

impl<F: FnMut(&Sample)> Observer for Samples<F> {
    #[inline]
    fn on_step(&mut self, step: &Step<'_>) {
        (self.0)(&sample(step));
    }
}
