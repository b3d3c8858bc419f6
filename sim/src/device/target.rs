//! What an engine does with the simulated device.

use super::SimDevice;
use poolsim_core::record::Decision;
use poolsim_core::{Bytes, DevAddr, Ledger, Nanos, ReplayTarget, Slot};

impl ReplayTarget for SimDevice {
    #[inline]
    fn advance_to(&mut self, at: Nanos) {
        self.now = self.now.max(at);
    }

    fn hold(&mut self, slot: Slot) {
        self.fences.hold(slot);
    }

    fn end_hold(&mut self) {
        self.fences.end_hold();
    }

    fn complete(&mut self, slot: Slot) {
        self.fences.complete(slot);
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn used_bytes(&self) -> Bytes {
        self.used
    }

    fn keeps_log(&self) -> bool {
        self.keep_log
    }

    #[inline]
    fn set_event(&mut self, event: u64) {
        self.event = event;
    }

    fn log(&self) -> &[Decision] {
        &self.log
    }

    fn clear_log(&mut self) {
        self.log.clear();
    }

    fn backed(&self, addr: DevAddr, len: Bytes) -> Option<bool> {
        Some(self.ranges.backed(addr, len))
    }
}
