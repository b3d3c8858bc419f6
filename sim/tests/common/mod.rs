//! A small policy and hand-made traces for the tests of the engine.
#![allow(dead_code)] // each test binary uses its own part

use poolsim_core::error::OomCause;
use poolsim_core::trace::Trace;
use poolsim_core::*;
use poolsim_sim::{DeviceProfile, SimConfig, SimDevice};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One granule.
pub const G: Bytes = 2 << 20;

/// A policy that takes a whole range per block, keeps freed ones on a shelf, and hands them out again to requests of the
/// same rounded size and stream. It respects streams and writes the log.
#[derive(Default)]
pub struct Shelf {
    blocks: Vec<Block>,
    shelf: Vec<BlockId>,
    waiting: BTreeMap<FenceId, BlockId>,
    stats: PoolStats,
    /// Hands blocks out before their fences passed.
    pub careless: bool,
    /// Shifts every grant by this much.
    pub shift: Bytes,
}

#[derive(Clone, Copy)]
struct Block {
    range: Range,
    requested: Bytes,
    stream: StreamId,
    state: BlockState,
    uses: u32,
    open: u32,
    slot: Slot,
}

impl Shelf {
    fn complete(&mut self, dev: &mut dyn Device, id: BlockId, late: bool) {
        let b = &mut self.blocks[id.index()];
        b.state = BlockState::Free;
        self.stats.active.sub(b.range.size);
        self.stats.requested.sub(b.requested);
        if late {
            dev.note(Action::FreeCompleted, b.range.addr, b.requested, b.stream);
        }
        self.shelf.push(id);
    }

    fn poll(&mut self, dev: &mut dyn Device) {
        let mut passed = Vec::new();
        dev.poll(&mut passed);
        for fence in passed {
            let id = self.waiting.remove(&fence).expect("only this policy records fences");
            self.blocks[id.index()].open -= 1;
            if self.blocks[id.index()].open == 0 && !self.careless {
                self.complete(dev, id, true);
            }
        }
    }

    fn release(&mut self, dev: &mut dyn Device) -> Bytes {
        let before = self.stats.reserved.current;
        for id in std::mem::take(&mut self.shelf) {
            let b = &self.blocks[id.index()];
            dev.note(Action::SegmentFree, b.range.addr, b.range.size, b.stream);
            dev.release(b.range.id).unwrap();
            self.stats.reserved.sub(b.range.size);
        }
        before - self.stats.reserved.current
    }

    fn grow(&mut self, dev: &mut dyn Device, size: Bytes, stream: StreamId) -> Option<BlockId> {
        let range = match dev.reserve(size, Backing::Whole) {
            Ok(range) => range,
            Err(DeviceError::OutOfMemory { .. }) => return None,
            Err(e) => panic!("{e}"),
        };
        self.stats.reserved.add(size);
        dev.note(Action::SegmentAlloc, range.addr, size, stream);
        self.blocks.push(Block {
            range,
            requested: 0,
            stream,
            state: BlockState::Free,
            uses: 0,
            open: 0,
            slot: Slot(0),
        });
        Some(BlockId(self.blocks.len() as u32 - 1))
    }
}

impl Policy for Shelf {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        self.poll(dev);
        let size = req.size.next_multiple_of(G);
        let blocks = &self.blocks;
        let found = self.shelf.iter().position(|&id| {
            let b = &blocks[id.index()];
            b.range.size == size && b.stream == req.stream
        });
        let id = match found {
            Some(i) => Some(self.shelf.remove(i)),
            None => self.grow(dev, size, req.stream).or_else(|| {
                self.stats.retries += 1;
                self.release(dev);
                self.grow(dev, size, req.stream)
            }),
        };
        let Some(id) = id else {
            self.stats.ooms += 1;
            return Err(AllocError::OutOfMemory {
                requested: req.size,
                rounded: size,
                reserved: self.stats.reserved.current,
                largest_free: 0,
                cause: OomCause::DeviceFull,
            });
        };
        let b = &mut self.blocks[id.index()];
        (b.requested, b.state, b.slot) = (req.size, BlockState::Allocated, req.slot);
        self.stats.requested.add(req.size);
        self.stats.allocated.add(size);
        self.stats.active.add(size);
        Ok(Grant { block: id, addr: b.range.addr + self.shift, size })
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        let b = &mut self.blocks[block.index()];
        assert_eq!(b.state, BlockState::Allocated);
        self.stats.allocated.sub(b.range.size);
        if b.uses == 0 || self.careless {
            b.uses = 0;
            return self.complete(dev, block, false);
        }
        b.state = BlockState::Pending;
        b.open = std::mem::take(&mut b.uses);
        for _ in 0..b.open {
            let fence = dev.record(StreamId(9)).unwrap();
            self.waiting.insert(fence, block);
        }
    }

    fn record_stream(&mut self, _: &mut dyn Device, block: BlockId, _: StreamId) {
        self.blocks[block.index()].uses += 1;
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        dev.synchronize(SyncScope::Fences).unwrap();
        self.poll(dev);
        self.release(dev)
    }

    fn stats(&self) -> &PoolStats {
        &self.stats
    }

    fn visit(&self, v: &mut dyn HeapVisitor) {
        for (i, b) in self.blocks.iter().enumerate() {
            if b.state == BlockState::Free && !self.shelf.contains(&BlockId(i as u32)) {
                continue;
            }
            v.range(&RangeView {
                addr: b.range.addr,
                size: b.range.size,
                stream: b.stream,
                pool: PoolId::DEFAULT,
                small: false,
                expandable: false,
                stack: Default::default(),
            });
            v.block(&BlockView {
                addr: b.range.addr,
                size: b.range.size,
                requested: b.requested,
                state: b.state,
                slot: (b.state != BlockState::Free).then_some(b.slot),
                stack: Default::default(),
            });
        }
    }
}

/// Builds a trace, one event a call.
#[derive(Clone, Default)]
pub struct Script {
    events: Vec<Event>,
    time: Nanos,
    stream: u16,
}

impl Script {
    /// An event at the present time, on the present stream, of the default pool.
    pub fn push(mut self, kind: EventKind, slot: u32, size: Bytes) -> Self {
        let (slot, stream) = (Slot(slot), StreamId(self.stream));
        self.events.push(Event::new(kind, self.time, slot, size, stream, PoolId::DEFAULT));
        self
    }

    pub fn alloc(self, slot: u32, size: Bytes) -> Self {
        self.push(EventKind::Alloc, slot, size)
    }

    pub fn free(self, slot: u32) -> Self {
        self.push(EventKind::Free, slot, 0)
    }

    /// Later events come at this time.
    pub fn at(mut self, time: Nanos) -> Self {
        self.time = time;
        self
    }

    /// Later events come on this stream.
    pub fn on(mut self, stream: u16) -> Self {
        self.stream = stream;
        self
    }

    pub fn trace(self) -> Trace {
        Trace { events: self.events, ..Trace::default() }
    }

    pub fn source(self) -> TraceReader {
        TraceReader::new(Arc::new(self.trace()))
    }
}

/// A device of `granules` granules whose calls cost what the H200's cost, with a log.
pub fn device(granules: u64) -> SimDevice {
    let mut config = SimConfig::new(DeviceProfile::h200());
    config.capacity = Some(granules * G);
    config.keep_log = true;
    SimDevice::new(config)
}
