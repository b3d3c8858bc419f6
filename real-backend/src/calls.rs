//! The driver calls of a replay, one by one.

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

/// Keeps the driver calls of a replay, if that is wanted: the device's and those of a driver allocator on it.
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
}

impl CallLog {
    /// One that keeps every call, or none.
    pub fn new(keeps: bool) -> CallLog {
        CallLog { keeps, ..CallLog::default() }
    }

    /// Keeps a call.
    pub fn add(&self, op: DeviceOp, bytes: Bytes, time: Nanos) {
        if self.keeps {
            let mut inner = self.lock();
            let event = inner.events.saturating_sub(1);
            inner.calls.push(TimedCall { event, op, bytes, time });
        }
    }

    /// The next calls are made for the trace's next event.
    pub fn next_event(&self) {
        if self.keeps {
            self.lock().events += 1;
        }
    }

    /// The calls that were kept, which are then no longer.
    pub fn take(&self) -> Vec<TimedCall> {
        std::mem::take(&mut self.lock().calls)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nobody panics while a call is kept")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_kept_with_their_events_if_at_all() {
        for keeps in [true, false] {
            let log = CallLog::new(keeps);
            log.next_event();
            log.add(DeviceOp::Alloc, 512, 3);
            log.next_event();
            log.add(DeviceOp::Free, 512, 3);
            let calls: Vec<_> = log.take().iter().map(|c| (c.event, c.op)).collect();
            let wanted = [(0, DeviceOp::Alloc), (1, DeviceOp::Free)];
            assert_eq!(calls, if keeps { &wanted[..] } else { &[] });
            assert!(log.take().is_empty());
        }
    }
}
