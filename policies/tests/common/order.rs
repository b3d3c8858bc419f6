//! Memory freed in one stream's order may not serve another stream before somebody waited.

use poolsim_core::{Bytes, DevAddr, DeviceOp, Ledger, StreamId};
use std::collections::BTreeMap;

/// Device calls after which work of other streams may be known to be done: host waits, waits between streams,
/// fences that passed, giving memory back, which waits inside the driver, and requests to a driver's pool, which
/// knows how far the GPU is.
const BARRIERS: [DeviceOp; 7] = [
    DeviceOp::Synchronize,
    DeviceOp::Wait,
    DeviceOp::Query,
    DeviceOp::Free,
    DeviceOp::Unmap,
    DeviceOp::PoolShrink,
    DeviceOp::PoolMalloc,
];

/// The stream whose work last touched each freed interval, since the last barrier.
#[derive(Default)]
pub struct StreamOrder {
    freed: BTreeMap<(DevAddr, Bytes), StreamId>,
    barriers: u64,
    host_waits: u64,
}

impl StreamOrder {
    /// Before anything else about a step: forgets everything if there was a barrier in it. Returns whether the host
    /// waited: what is freed in such a step is used by nobody.
    pub fn see(&mut self, ledger: &Ledger) -> bool {
        let host_waits = [DeviceOp::Synchronize, DeviceOp::Free]
            .map(|op| ledger.calls[op as usize])
            .iter()
            .sum();
        let waited = host_waits != self.host_waits;
        self.host_waits = host_waits;
        let barriers = BARRIERS.iter().map(|&op| ledger.calls[op as usize]).sum();
        if barriers != self.barriers {
            self.barriers = barriers;
            self.freed.clear();
        }
        waited
    }

    pub fn freed(&mut self, addr: DevAddr, size: Bytes, stream: StreamId) {
        self.freed.insert((addr, size), stream);
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
