//! What an engine does with the GPU, and how everything is given back.

use super::{CudaDevice, Page};
use poolsim_core::record::Decision;
use poolsim_core::{Backing, Bytes, Device, Ledger, Nanos, ReplayTarget, Slot};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A paced replay looks so often whether it is to stop.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

impl ReplayTarget for CudaDevice {
    fn advance_to(&mut self, at: Nanos) {
        self.trace_time.store(at, Ordering::Relaxed);
        self.calls.next_event();
        while self.mode.paced && !self.stop.load(Ordering::Relaxed) {
            let wait = at.saturating_sub(self.now());
            if wait == 0 {
                break;
            }
            std::thread::sleep(Duration::from_nanos(wait).min(LONGEST_SLEEP));
        }
    }

    fn hold(&mut self, slot: Slot) {
        self.fences.hold(slot);
        self.gates.hold(slot);
    }

    fn end_hold(&mut self) {
        self.fences.end_hold();
        self.gates.end_hold();
    }

    fn complete(&mut self, slot: Slot) {
        self.fences.complete(slot);
        self.gates.open(slot);
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn used_bytes(&self) -> Bytes {
        self.used
    }

    fn keeps_log(&self) -> bool {
        self.mode.keep_log
    }

    fn set_event(&mut self, event: u64) {
        self.event = event;
    }

    fn log(&self) -> &[Decision] {
        &self.log
    }

    fn clear_log(&mut self) {
        self.log.clear();
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // Nothing can be done about a failure here: the driver gives back what is left when the process ends.
        let _ = self.context.enter();
        self.gates.open_all();
        let _ = self.context.synchronize();
        for state in std::mem::take(&mut self.ranges).into_values() {
            for (offset, m) in &state.mapped {
                let _ = self.context.unmap(state.range.addr + offset, m.len);
                if let Page::Own(handle) = m.page {
                    let _ = self.context.destroy(handle);
                }
            }
            let _ = match state.backing {
                Backing::Whole => self.context.free(state.range.addr),
                Backing::Paged => self.context.unreserve(state.range.addr, state.range.size),
            };
        }
        for page in std::mem::take(&mut self.pages).into_values() {
            let _ = self.context.destroy(page.handle);
        }
    }
}
