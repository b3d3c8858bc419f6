//! A run over time: memory and device calls in bounded numbers of points, and the heap at chosen events.

use crate::device::DeviceOp;
use crate::heap::HeapImage;
use crate::policy::PoolStats;
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// The four quantities of one moment, or the lowest or highest values of a stretch of moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// Requested bytes.
    pub requested: Bytes,
    /// Allocated bytes.
    pub allocated: Bytes,
    /// Active bytes.
    pub active: Bytes,
    /// Reserved bytes.
    pub reserved: Bytes,
}

impl Levels {
    /// The present values.
    #[inline]
    pub fn now(stats: &PoolStats) -> Self {
        Levels {
            requested: stats.requested.current,
            allocated: stats.allocated.current,
            active: stats.active.current,
            reserved: stats.reserved.current,
        }
    }

    /// The highest values so far.
    pub fn peaks(stats: &PoolStats) -> Self {
        Levels {
            requested: stats.requested.peak,
            allocated: stats.allocated.peak,
            active: stats.active.peak,
            reserved: stats.reserved.peak,
        }
    }

    /// Both, combined quantity by quantity.
    pub fn zip(self, other: Levels, f: impl Fn(Bytes, Bytes) -> Bytes) -> Levels {
        Levels {
            requested: f(self.requested, other.requested),
            allocated: f(self.allocated, other.allocated),
            active: f(self.active, other.active),
            reserved: f(self.reserved, other.reserved),
        }
    }
}

/// Some consecutive events of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Index of the first of them.
    pub first_event: u64,
    /// When that was.
    pub first_at: Nanos,
    /// Index of the last of them.
    pub last_event: u64,
    /// When that was.
    pub last_at: Nanos,
    /// The values after the last of them.
    pub last: Levels,
    /// The lowest values after any of them.
    pub low: Levels,
    /// The highest values during any of them, peaks inside an event included.
    pub high: Levels,
}

impl Point {
    /// This point and the one that follows it as one, with the extremes of both.
    pub fn join(self, next: &Point) -> Point {
        Point {
            last_event: next.last_event,
            last_at: next.last_at,
            last: next.last,
            low: self.low.zip(next.low, Bytes::min),
            high: self.high.zip(next.high, Bytes::max),
            ..self
        }
    }
}

/// Device calls in some consecutive events of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallsPoint {
    /// Index of the last of them.
    pub last_event: u64,
    /// When that was.
    pub last_at: Nanos,
    /// Calls since the run's start, by [`DeviceOp`] index.
    pub calls: [u64; DeviceOp::ALL.len()],
    /// Time in them since the run's start, by [`DeviceOp`] index.
    pub time: [Nanos; DeviceOp::ALL.len()],
}

/// Why the heap was written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// One of the moments at equal distances.
    Regular,
    /// Reserved bytes first reached their peak.
    Peak,
    /// A request was refused.
    Refused,
}

impl Moment {
    /// The stable name, as results print it.
    pub fn name(self) -> &'static str {
        match self {
            Moment::Regular => "regular",
            Moment::Peak => "peak",
            Moment::Refused => "refused",
        }
    }
}

/// From when to when a block served its request, as event and time; `None` where the run does not show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// The request.
    pub born: Option<(u64, Nanos)>,
    /// The program's free.
    pub died: Option<(u64, Nanos)>,
}

/// The heap after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyframe {
    /// The event.
    pub event: u64,
    /// When.
    pub at: Nanos,
    /// Why then.
    pub moment: Moment,
    /// The heap, its ranges in address order. Blocks in use name the stack of their request.
    pub heap: HeapImage,
    /// The life of each block, in the heap's order.
    pub lives: Vec<Life>,
}
