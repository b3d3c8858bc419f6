//! Memory freed in one stream's order may not serve another stream before somebody waited.

use poolsim_core::{Bytes, DevAddr, DeviceOp, Ledger, StreamId};
use std::collections::BTreeMap;

/// Device calls after which work of other streams may be known to be done: host waits, waits between streams,
/// fences that passed, and giving memory back, which waits inside the driver.
const BARRIERS: [DeviceOp; 6] = [
    DeviceOp::Synchronize,
    DeviceOp::Wait,
    DeviceOp::Query,
    DeviceOp::Free,
    DeviceOp::Unmap,
    DeviceOp::PoolShrink,
];

/// The stream whose work last touched each freed interval, since the last barrier.
#[derive(Default)]
pub struct StreamOrder {
    freed: BTreeMap<(DevAddr, Bytes), StreamId>,
    barriers: u64,
    host_waits: u64,
    /// The host waited in the present step: what is freed in it is used by nobody.
    host_waited: bool,
}

impl StreamOrder {
    /// Before anything else about a step: forgets everything if there was a barrier in it.
    pub fn see(&mut self, ledger: &Ledger) {
        let host_waits = ledger.calls[DeviceOp::Synchronize as usize];
        self.host_waited = host_waits != self.host_waits;
        self.host_waits = host_waits;
        let barriers = BARRIERS.iter().map(|&op| ledger.calls[op as usize]).sum();
        if barriers != self.barriers {
            self.barriers = barriers;
            self.freed.clear();
        }
    }

    pub fn freed(&mut self, addr: DevAddr, size: Bytes, stream: StreamId) {
        if !self.host_waited {
            self.freed.insert((addr, size), stream);
        }
    }

    pub fn granted(&self, addr: DevAddr, size: Bytes, stream: StreamId) -> Result<(), String> {
        let overlaps = |a: DevAddr, s: Bytes| a < addr + size && addr < a + s;
        match self.freed.iter().find(|&(&(a, s), &of)| of != stream && overlaps(a, s)) {
            None => Ok(()),
            Some((&(a, s), of)) => Err(format!(
                "{size} bytes at {addr:#x} serve stream {stream}, but {s} bytes at {a:#x} were freed in the order of \
                 stream {of} and nobody waited"
            )),
        }
    }
}
