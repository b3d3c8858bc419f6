//! The heap at one moment: which ranges are held and which blocks lie in them.

use crate::stack::StackId;
use crate::units::{Bytes, DevAddr, PoolId, Slot, StreamId};
use serde::{Deserialize, Serialize};

/// What a block is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockState {
    /// In use.
    Allocated,
    /// Freed by the program, still used by other streams.
    Pending,
    /// In the cache.
    Free,
}

/// A block of a heap, as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockView {
    /// First address.
    pub addr: DevAddr,
    /// Length in bytes.
    pub size: Bytes,
    /// Bytes asked for; for free blocks the policy's stale value or 0.
    pub requested: Bytes,
    /// What it is doing.
    pub state: BlockState,
    /// The slot it serves, where that is known.
    pub slot: Option<Slot>,
    /// The stack of its allocation, where that is known.
    #[serde(default)]
    pub stack: StackId,
}

/// A mapped range of a heap: a PyTorch segment, or a maximal mapped stretch of an expandable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeView {
    /// First address.
    pub addr: DevAddr,
    /// Length in bytes.
    pub size: Bytes,
    /// The stream that its blocks serve.
    pub stream: StreamId,
    /// The pool that it belongs to.
    pub pool: PoolId,
    /// Whether it serves small requests (PyTorch's small pool); false where a policy has no such class.
    pub small: bool,
    /// Whether it can grow by mapping pages.
    pub expandable: bool,
    /// The stack of the request that made it, where that is known.
    #[serde(default)]
    pub stack: StackId,
}

/// Receives a heap walk: each range, followed by its blocks in address order without gaps.
pub trait HeapVisitor {
    /// A range starts.
    fn range(&mut self, range: &RangeView);
    /// The next block of the current range.
    fn block(&mut self, block: &BlockView);
}

/// A heap, written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapImage {
    /// Ranges with their blocks in address order.
    pub ranges: Vec<(RangeView, Vec<BlockView>)>,
}

impl HeapVisitor for HeapImage {
    fn range(&mut self, range: &RangeView) {
        self.ranges.push((*range, Vec::new()));
    }

    fn block(&mut self, block: &BlockView) {
        self.ranges.last_mut().expect("a block follows its range").1.push(*block);
    }
}

impl HeapImage {
    /// All blocks with their ranges.
    pub fn blocks(&self) -> impl Iterator<Item = (&RangeView, &BlockView)> {
        self.ranges.iter().flat_map(|(r, blocks)| blocks.iter().map(move |b| (r, b)))
    }

    /// Bytes in blocks of a state.
    pub fn bytes_in(&self, state: BlockState) -> Bytes {
        self.blocks().filter(|(_, b)| b.state == state).map(|(_, b)| b.size).sum()
    }

    /// Bytes of all ranges.
    pub fn reserved(&self) -> Bytes {
        self.ranges.iter().map(|(r, _)| r.size).sum()
    }

    /// Puts the ranges into address order, as PyTorch's snapshot lists them.
    pub fn sort(&mut self) {
        self.ranges.sort_by_key(|(r, _)| r.addr);
    }
}
