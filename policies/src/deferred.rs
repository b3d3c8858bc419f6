//! Frees that wait for other streams.
//!
//! A block that other streams used may not be handed out again when the program frees it: their work may
//! still touch it. At the free, a fence is recorded on each of those streams, and the block is free
//! once all of them passed, which is learned by polling in later calls.

use poolsim_core::{BlockId, Device, DeviceError, FenceId, StreamId, SyncScope};
use rustc_hash::FxHashMap;

/// Uses on other streams, and the frees that wait for them.
#[derive(Clone, Debug, Default)]
pub struct DeferredFrees {
    uses: FxHashMap<BlockId, Vec<StreamId>>,
    waiting: FxHashMap<FenceId, BlockId>,
    fences_left: FxHashMap<BlockId, u32>,
    /// Fences that the device refused to record, as it refused to wait.
    unrecorded: Vec<(BlockId, StreamId)>,
    /// Blocks with no fence left, not reported yet.
    done: Vec<BlockId>,
    passed: Vec<FenceId>,
}

impl DeferredFrees {
    /// Whether no free waits. The cheap test for the hot path.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fences_left.is_empty() && self.done.is_empty()
    }

    /// Blocks that still wait, in no particular order.
    pub fn waiting(&self) -> impl Iterator<Item = BlockId> {
        self.fences_left.keys().copied()
    }

    /// A live block is used on a stream other than its own.
    pub fn note_use(&mut self, block: BlockId, stream: StreamId) {
        let uses = self.uses.entry(block).or_default();
        if !uses.contains(&stream) {
            uses.push(stream);
        }
    }

    /// The program freed a block with uses noted: takes the fences that it has to wait for.
    #[cold]
    #[inline(never)]
    pub fn defer(&mut self, dev: &mut dyn Device, block: BlockId) {
        let uses = self.uses.remove(&block).unwrap_or_default();
        self.fences_left.insert(block, uses.len() as u32);
        for stream in uses {
            self.record(dev, block, stream);
        }
    }

    /// Without a fence, the host waits instead; if that fails too, both are tried again later.
    fn record(&mut self, dev: &mut dyn Device, block: BlockId, stream: StreamId) {
        match dev.record(stream) {
            Ok(fence) => {
                self.waiting.insert(fence, block);
            }
            Err(_) if dev.synchronize(SyncScope::Device).is_ok() => self.count_down(block),
            Err(_) => self.unrecorded.push((block, stream)),
        }
    }

    fn count_down(&mut self, block: BlockId) {
        let left = self.fences_left.get_mut(&block).expect("a fence waits for a deferred block");
        *left -= 1;
        if *left == 0 {
            self.fences_left.remove(&block);
            self.done.push(block);
        }
    }

    /// Appends the blocks whose last fence has passed, in the order in which that happened.
    pub fn settle(&mut self, dev: &mut dyn Device, free: &mut Vec<BlockId>) {
        self.settle_beside(dev, free, &mut Vec::new());
    }

    /// The same, for a policy that also records fences of its own: appends those that have passed to `others`.
    pub fn settle_beside(
        &mut self,
        dev: &mut dyn Device,
        free: &mut Vec<BlockId>,
        others: &mut Vec<FenceId>,
    ) {
        for (block, stream) in std::mem::take(&mut self.unrecorded) {
            self.record(dev, block, stream);
        }
        let mut passed = std::mem::take(&mut self.passed);
        dev.poll(&mut passed);
        for fence in passed.drain(..) {
            match self.waiting.remove(&fence) {
                Some(block) => self.count_down(block),
                None => others.push(fence),
            }
        }
        free.append(&mut self.done);
        self.passed = passed;
    }

    /// Waits until every deferred free can complete; [`DeferredFrees::settle`] then reports them all, but for those
    /// whose fence the device refused to record.
    pub fn synchronize(&mut self, dev: &mut dyn Device) -> Result<(), DeviceError> {
        for (block, stream) in std::mem::take(&mut self.unrecorded) {
            self.record(dev, block, stream);
        }
        if self.waiting.is_empty() { Ok(()) } else { dev.synchronize(SyncScope::Fences) }
    }
}
