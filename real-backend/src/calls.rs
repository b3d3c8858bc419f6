//! The driver calls of a replay, one by one.

use poolsim_core::{Bytes, DeviceOp, Nanos};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

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
    on: bool,
    event: AtomicU64,
    calls: Mutex<Vec<TimedCall>>,
}

impl CallLog {
    /// A log that keeps calls, or one that ignores them.
    pub fn new(on: bool) -> CallLog {
        CallLog { on, ..CallLog::default() }
    }

    /// Which event the next calls are made for.
    pub fn set_event(&self, event: u64) {
        self.event.store(event, Ordering::Relaxed);
    }

    /// Keeps a call.
    pub fn add(&self, op: DeviceOp, bytes: Bytes, time: Nanos) {
        if self.on {
            let event = self.event.load(Ordering::Relaxed);
            self.lock().push(TimedCall { event, op, bytes, time });
        }
    }

    /// The calls so far, which are then no longer kept.
    pub fn take(&self) -> Vec<TimedCall> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<TimedCall>> {
        self.calls.lock().expect("nobody panics while a call is added")
    }
}
