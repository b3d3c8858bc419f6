//! The driver calls of a replay: one by one, and how fast the host was while it made them.

use crate::latency::clock_cost;
use poolsim_core::{Bytes, DeviceOp, Nanos};
use std::sync::{Mutex, MutexGuard};

/// One driver call of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedCall {
    /// Index of the trace's event that it was made for.
    pub event: u64,
    /// What was called.
    pub op: DeviceOp,
    /// On how many bytes; 0 where it has no size.
    pub bytes: Bytes,
    /// How long it took; contains one reading of the clock.
    pub time: Nanos,
}

/// Driver time after which the host's speed is looked at again. A look takes a microsecond or two, between two events.
const BETWEEN_LOOKS: Nanos = 10_000;

/// The driver calls of a replay: the device's and those of a driver allocator on it.
#[derive(Debug, Default)]
pub struct CallLog {
    keeps: bool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Events so far, the present one included.
    events: u64,
    calls: Vec<TimedCall>,
    /// Driver time since the last look.
    since: Nanos,
    /// Driver time before it.
    time: f64,
    /// The same in readings of the clock, each as long as it was at the time.
    readings: f64,
}

impl CallLog {
    /// One that keeps every call, or only the host's speed.
    pub fn new(keeps: bool) -> CallLog {
        CallLog { keeps, ..CallLog::default() }
    }

    /// Counts a call.
    pub fn add(&self, op: DeviceOp, bytes: Bytes, time: Nanos) {
        let mut inner = self.lock();
        inner.since += time;
        if self.keeps {
            let event = inner.events.saturating_sub(1);
            inner.calls.push(TimedCall { event, op, bytes, time });
        }
    }

    /// The next calls are made for the trace's next event. Looks at the host's speed if driver calls were made since the last look:
    /// it changes by a third from one second to the next, so it counts what it was when the calls were made.
    pub fn next_event(&self) {
        let mut inner = self.lock();
        inner.events += 1;
        if inner.since >= BETWEEN_LOOKS {
            inner.look();
        }
    }

    /// What reading the clock cost while driver calls were made, in nanoseconds, each call with the weight of its time;
    /// `None` without calls.
    pub fn clock_cost(&self) -> Option<f64> {
        let mut inner = self.lock();
        if inner.since > 0 {
            inner.look();
        }
        (inner.readings > 0.0).then(|| inner.time / inner.readings)
    }

    /// The calls that were kept, which are then no longer.
    pub fn take(&self) -> Vec<TimedCall> {
        std::mem::take(&mut self.lock().calls)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nobody panics while a call is counted")
    }
}

impl Inner {
    fn look(&mut self) {
        self.time += self.since as f64;
        self.readings += self.since as f64 / clock_cost();
        self.since = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_kept_with_their_events_and_the_speed_is_that_of_the_clock() {
        let log = CallLog::new(true);
        assert_eq!(log.clock_cost(), None);
        log.next_event();
        log.add(DeviceOp::Alloc, 512, BETWEEN_LOOKS);
        log.next_event();
        log.add(DeviceOp::Free, 512, 3);
        let cost = log.clock_cost().unwrap();
        assert!(cost > 0.0 && cost.is_finite(), "{cost}");
        let calls = log.take();
        assert_eq!(
            calls.iter().map(|c| (c.event, c.op)).collect::<Vec<_>>(),
            [(0, DeviceOp::Alloc), (1, DeviceOp::Free)]
        );
        assert!(log.take().is_empty());
    }
}
