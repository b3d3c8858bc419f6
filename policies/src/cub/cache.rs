//! CUB's cached blocks, and when each may change streams.

use poolsim_core::{BlockId, Bytes, Device, FenceId, StreamId, SyncScope};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// So many fences may be open before they are asked for without need.
const MANY_FENCES: usize = 1024;

/// When a cached block's own stream is done with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ready {
    /// Nobody knows: the device recorded no fence.
    #[default]
    Unknown,
    /// When this fence passes.
    At(FenceId),
    Now,
}

/// The bins.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    /// Each bin's blocks in the order in which they were freed.
    bins: Vec<VecDeque<BlockId>>,
    bytes: Bytes,
    /// By block.
    ready: Vec<Ready>,
    waiting: FxHashMap<FenceId, BlockId>,
    /// Fences recorded since the last poll.
    unpolled: usize,
}

impl Cache {
    pub(super) fn new(bins: usize) -> Cache {
        Cache {
            bins: vec![VecDeque::new(); bins],
            bytes: 0,
            ready: Vec::new(),
            waiting: FxHashMap::default(),
            unpolled: 0,
        }
    }

    /// Bytes of all cached blocks.
    #[inline]
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes
    }

    pub(super) fn blocks(&self) -> usize {
        self.bins.iter().map(VecDeque::len).sum()
    }

    pub(super) fn has_many_fences(&self) -> bool {
        self.unpolled >= MANY_FENCES
    }

    /// The block at a place of a bin.
    #[inline]
    pub(super) fn get(&self, bin: usize, at: usize) -> Option<BlockId> {
        self.bins[bin].get(at).copied()
    }

    /// Whether the fence of a cached block is known to have passed.
    pub(super) fn is_ready(&self, block: BlockId) -> bool {
        self.ready[block.index()] == Ready::Now
    }

    /// Takes the block at a place of a bin out.
    #[inline]
    pub(super) fn take(&mut self, bin: usize, at: usize, size: Bytes) {
        let block = self.bins[bin].remove(at).expect("a block was found there");
        self.bytes -= size;
        self.forget(block);
    }

    fn forget(&mut self, block: BlockId) {
        if let Ready::At(fence) = std::mem::take(&mut self.ready[block.index()]) {
            self.waiting.remove(&fence);
        }
    }

    /// Keeps a block that was freed on a stream, and takes the fence after which other streams may have it. Without a
    /// fence the host waits instead; if that fails too, only its own stream ever gets it.
    #[inline]
    pub(super) fn put(
        &mut self,
        dev: &mut dyn Device,
        bin: usize,
        block: BlockId,
        size: Bytes,
        stream: StreamId,
    ) {
        self.bins[bin].push_back(block);
        self.bytes += size;
        if block.index() >= self.ready.len() {
            self.ready.resize(block.index() + 1, Ready::Unknown);
        }
        self.ready[block.index()] = match dev.record(stream) {
            Ok(fence) => {
                self.waiting.insert(fence, block);
                self.unpolled += 1;
                Ready::At(fence)
            }
            Err(_) if dev.synchronize(SyncScope::Stream(stream)).is_ok() => Ready::Now,
            Err(_) => Ready::Unknown,
        };
    }

    /// These fences have passed.
    pub(super) fn passed(&mut self, fences: Vec<FenceId>) {
        self.unpolled = 0;
        for block in fences.iter().filter_map(|fence| self.waiting.remove(fence)) {
            self.ready[block.index()] = Ready::Now;
        }
    }

    /// Takes all blocks out, the smallest bin's first.
    pub(super) fn clear(&mut self) -> Vec<BlockId> {
        let blocks: Vec<BlockId> = self.bins.iter_mut().flat_map(|bin| bin.drain(..)).collect();
        self.bytes = 0;
        blocks.iter().for_each(|&block| self.forget(block));
        blocks
    }
}
