//! Which streams used the memory of each free chunk, so that another one waits for them.
//!
//! BFC itself knows no streams: it serves one compute stream, and XLA makes any other stream that gets memory wait
//! for it. Here any stream may free and ask.

use crate::arena::LaneId;
use crate::ordered::Ordered;
use poolsim_core::{BlockId, Device, DeviceError, PoolId, StreamId, SyncScope};

/// Streams as bits, by the number of their lane; the last bit stands for all from the 63rd on.
#[derive(Clone, Debug, Default)]
pub(super) struct Crossings {
    used_on: Vec<u64>,
}

const LAST: u32 = 63;

#[inline]
fn bit(lane: LaneId) -> u64 {
    1 << lane.0.min(LAST)
}

impl Crossings {
    #[inline]
    fn get(&self, chunk: BlockId) -> u64 {
        self.used_on.get(chunk.index()).copied().unwrap_or(0)
    }

    #[inline]
    fn set(&mut self, chunk: BlockId, streams: u64) {
        if chunk.index() >= self.used_on.len() {
            self.used_on.resize(chunk.index() + 1, 0);
        }
        self.used_on[chunk.index()] = streams;
    }

    /// The stream of `lane` alone used the chunk: it waited for all before it.
    #[inline]
    pub(super) fn used_on(&mut self, chunk: BlockId, lane: LaneId) {
        self.set(chunk, bit(lane));
    }

    /// `chunk` takes `other` in.
    #[inline]
    pub(super) fn join(&mut self, chunk: BlockId, other: BlockId) {
        self.set(chunk, self.get(chunk) | self.get(other));
    }

    /// `to` is a part of `from`, or the whole under another number.
    #[inline]
    pub(super) fn copy(&mut self, from: BlockId, to: BlockId) {
        self.set(to, self.get(from));
    }

    /// A region is new: nothing used it.
    pub(super) fn clear(&mut self, chunk: BlockId) {
        self.set(chunk, 0);
    }

    /// Orders `stream` behind all others that used the chunk; on the host where the device cannot.
    #[inline]
    pub(super) fn cross(
        &self,
        heap: &mut Ordered,
        dev: &mut dyn Device,
        chunk: BlockId,
        stream: StreamId,
    ) -> Result<(), DeviceError> {
        let lane = heap.arena.lane_for(stream, PoolId::DEFAULT);
        let others = self.get(chunk);
        let alone = lane.0 < LAST && others & !bit(lane) == 0;
        if alone { Ok(()) } else { wait_for(heap, dev, others, lane) }
    }
}

#[cold]
fn wait_for(
    heap: &mut Ordered,
    dev: &mut dyn Device,
    others: u64,
    lane: LaneId,
) -> Result<(), DeviceError> {
    let stream = heap.arena.lane(lane).stream;
    for other in (0..heap.arena.lanes()).map(LaneId) {
        if other == lane || others & bit(other) == 0 {
            continue;
        }
        let earlier = heap.arena.lane(other).stream;
        if heap.order(dev, earlier, stream).is_err() {
            dev.synchronize(SyncScope::Stream(earlier))?;
        }
    }
    Ok(())
}
