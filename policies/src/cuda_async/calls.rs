//! The driver's calls on streams, events and pools that PyTorch does not make, for programs that drive a pool by hand.

use super::{CudaAsync, EventMark};
use crate::cuda_async::order::Waited;
use poolsim_core::{BlockId, Bytes, Device, DeviceOp, StreamId};

impl CudaAsync {
    /// `cudaFreeAsync` on any stream. Unlike [`poolsim_core::Policy::free`], it does not ask which streams use the
    /// block: that is the program's business, as in CUDA.
    pub fn free_on(&mut self, dev: &mut dyn Device, block: BlockId, stream: StreamId) {
        self.uses.remove(&block.0);
        let b = *self.pool.blocks.get(block.0);
        dev.charge(DeviceOp::PoolFree, 1, b.size());
        self.give_up(&b);
        self.stats.active.sub(b.size());
        self.stats.requested.sub(b.requested);
        self.pool.free(dev, block.0, stream);
        self.checked();
    }

    /// `cudaEventRecord`.
    pub fn record_event(&self, stream: StreamId) -> EventMark {
        self.pool.record_event(stream)
    }

    /// `cudaStreamWaitEvent`: `stream` runs behind the event from now on.
    ///
    /// A free on `stream` that is followed by such a wait, with no kernel in between, is finished only when the wait
    /// is over; its fence has to say so, since only the device knows of kernels.
    pub fn wait_event(&mut self, stream: StreamId, event: &EventMark) {
        self.pool.wait_event(stream, event);
    }

    /// The host has waited for an event (`cudaEventSynchronize`); the device has done its part. Returns the bytes
    /// that were given back.
    pub fn event_synchronized(&mut self, dev: &mut dyn Device, event: &EventMark) -> Bytes {
        self.waited(dev, Waited::Event(event))
    }

    /// `cudaMemPoolTrimTo`. Frees that were not synchronised with stay. Returns the bytes that were given back.
    pub fn trim_to(&mut self, dev: &mut dyn Device, keep: Bytes) -> Bytes {
        let given = self.pool.trim(dev, keep);
        self.count_reserved();
        self.checked();
        given
    }

    /// Sets `cudaMemPoolAttrReleaseThreshold`; `None` for unlimited. Nothing is given back before the next
    /// synchronisation.
    pub fn set_release_threshold(&mut self, threshold: Option<Bytes>) {
        self.pool.attributes.release_threshold = threshold;
    }

    /// `cudaStreamDestroy` of an idle stream. A later use of the same number is a new stream.
    pub fn destroy_stream(&mut self, dev: &mut dyn Device, stream: StreamId) {
        self.pool.destroy_stream(dev, stream);
        self.complete_finished(dev);
        self.checked();
    }
}
