//! Real work on the streams: memory that is written and checked, and kernels that keep streams busy.

use crate::call::{Context, Result};
use crate::device::CudaDevice;
use crate::gates::Gates;
use crate::kernels::Kernels;
use crate::latency::Latency;
use crate::metered::Metered;
use crate::streams::StreamTable;
use poolsim_core::{
    AllocError, AllocRequest, BlockId, Bytes, DevAddr, Device, DeviceOp, Grant, HeapImage,
    HeapVisitor, Nanos, Policy, PoolId, PoolOp, PoolStats, Slot, StreamId,
};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What work a replay puts on the streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkOptions {
    /// Write every allocation with a pattern of its own and check it before it is freed, in stream order.
    pub touch: bool,
    /// How long the stream is kept busy after each allocation and each use.
    pub busy: Busy,
}

/// How long a stream is kept busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Busy {
    /// Not at all.
    #[default]
    Never,
    /// So long.
    For(Nanos),
    /// As long as the recording took since the work before, at most [`LONGEST_RECORDED`]: the GPU is as busy in all as
    /// the recorded program's clock ran.
    AsRecorded,
}

/// Recorded stretches of more than 10 ms are taken for pauses of the program, not for work.
pub const LONGEST_RECORDED: Nanos = 10_000_000;

/// A policy whose blocks are really used on the GPU, so that a block handed out twice shows in memory.
pub struct Worked<P> {
    inner: P,
    options: WorkOptions,
    context: Arc<Context>,
    streams: Arc<StreamTable>,
    gates: Arc<Gates>,
    kernels: Kernels,
    /// Eight bytes of device memory with the number of wrong words.
    wrong: DevAddr,
    live: HashMap<BlockId, Touched>,
    next_tag: u32,
    trace_time: Arc<AtomicU64>,
    /// The trace's time when work was put on a stream last.
    worked_at: Cell<Nanos>,
}

#[derive(Clone, Copy)]
struct Touched {
    addr: DevAddr,
    words: u64,
    tag: u32,
    stream: StreamId,
}

impl<P: Policy> Worked<P> {
    /// Lets `inner`'s blocks be used on the GPU of `device`.
    pub fn new(device: &CudaDevice, inner: P, options: WorkOptions) -> Result<Worked<P>> {
        let context = device.context().clone();
        let worked = Worked {
            inner,
            options,
            kernels: Kernels::load(&context)?,
            wrong: context.alloc(8)?,
            streams: device.streams().clone(),
            gates: device.gates().clone(),
            context,
            live: HashMap::new(),
            next_tag: 1,
            trace_time: device.trace_time().clone(),
            worked_at: Cell::new(0),
        };
        let stream = worked.streams.get(StreamId(0))?;
        worked.context.fill(worked.wrong, 0, 2, stream)?;
        worked.context.synchronize()?;
        Ok(worked)
    }

    /// Waits for all work and returns how many 32-bit words were found overwritten.
    pub fn overwritten_words(&self) -> Result<u64> {
        self.gates.open_all();
        self.context.synchronize()?;
        self.context.read_word(self.wrong)
    }

    fn work(&self, stream: StreamId) -> Result<()> {
        let busy = match self.options.busy {
            Busy::Never => return Ok(()),
            Busy::For(time) => time,
            Busy::AsRecorded => {
                let now = self.trace_time.load(Ordering::Relaxed);
                (now - self.worked_at.replace(now)).min(LONGEST_RECORDED)
            }
        };
        let raw = self.streams.get(stream)?;
        self.kernels.spin(raw, busy)
    }

    fn start(&mut self, grant: &Grant, size: Bytes, stream: StreamId) -> Result<()> {
        if self.options.touch {
            let touched = Touched { addr: grant.addr, words: size / 4, tag: self.next_tag, stream };
            self.next_tag = self.next_tag.wrapping_add(1);
            if touched.words > 0 {
                let raw = self.streams.get(stream)?;
                self.context.fill(touched.addr, touched.tag, touched.words, raw)?;
                self.live.insert(grant.block, touched);
            }
        }
        self.work(stream)
    }

    fn check(&mut self, block: BlockId) -> Result<()> {
        let Some(t) = self.live.remove(&block) else { return Ok(()) };
        let raw = self.streams.get(t.stream)?;
        self.kernels.count_wrong(raw, t.addr, t.words, t.tag, self.wrong)
    }
}

impl<P: Metered> Metered for Worked<P> {
    fn allocs(&self) -> &Latency {
        self.inner.allocs()
    }

    fn frees(&self) -> &Latency {
        self.inner.frees()
    }

    fn driver_calls(&self) -> Vec<(DeviceOp, &Latency)> {
        self.inner.driver_calls()
    }
}

impl<P: Policy> Policy for Worked<P> {
    fn malloc(
        &mut self,
        dev: &mut dyn Device,
        req: AllocRequest,
    ) -> std::result::Result<Grant, AllocError> {
        let grant = self.inner.malloc(dev, req)?;
        self.start(&grant, req.size, req.stream)?;
        Ok(grant)
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        if let Err(e) = self.check(block) {
            panic!("the check of a block before its free did not start: {e}");
        }
        self.inner.free(dev, block);
    }

    fn record_stream(&mut self, dev: &mut dyn Device, block: BlockId, stream: StreamId) {
        self.inner.record_stream(dev, block, stream);
        if let Err(e) = self.work(stream) {
            panic!("work on stream {stream} did not start: {e}");
        }
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        self.inner.empty_cache(dev)
    }

    fn pool(&mut self, dev: &mut dyn Device, pool: PoolId, op: PoolOp) {
        self.inner.pool(dev, pool, op);
    }

    fn synchronized(&mut self, dev: &mut dyn Device, stream: Option<StreamId>) {
        self.inner.synchronized(dev, stream);
    }

    fn stats(&self) -> &PoolStats {
        self.inner.stats()
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.inner.visit(visitor);
    }

    fn restore(&mut self, dev: &mut dyn Device, heap: &HeapImage) -> Option<Vec<(Slot, BlockId)>> {
        self.inner.restore(dev, heap)
    }

    fn native_stats(&self) -> Vec<(String, i64)> {
        self.inner.native_stats()
    }
}

impl<P> Drop for Worked<P> {
    fn drop(&mut self) {
        let _ = self.context.enter();
        self.gates.open_all();
        let _ = self.context.synchronize();
        let _ = self.context.free(self.wrong);
    }
}
