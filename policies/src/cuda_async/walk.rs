//! The heap as seen from outside: backed stretches and the blocks in them.

use super::CudaAsync;
use super::backing::{PAGE, touched};
use super::blocks::Block;
use poolsim_core::{BlockState, BlockView, Bytes, HeapVisitor, PoolId, RangeView};

/// A backed stretch, as far as it is known.
#[derive(Default)]
struct Stretch {
    blocks: Vec<BlockView>,
}

impl CudaAsync {
    /// Shows each backed stretch as a range. A pool has no stream of its own: the one of the latest request is named.
    pub(super) fn walk(&self, visitor: &mut dyn HeapVisitor) {
        let mut stretch = Stretch::default();
        for id in self.pool.blocks.in_order() {
            let block = self.pool.blocks.get(id);
            if block.holes == 0 {
                self.show_backed(&mut stretch, block);
                continue;
            }
            for (start, end) in self.backed_parts(block) {
                if start > block.start {
                    self.show_range(&mut stretch, visitor);
                }
                stretch.free(self.pool.backing.base() + start, end - start);
            }
            // A block with holes that ends backed goes on in its neighbour.
            let last = (block.end.div_ceil(PAGE) - 1) as usize;
            if !self.pool.backing.backed().get(last) {
                self.show_range(&mut stretch, visitor);
            }
        }
        self.show_range(&mut stretch, visitor);
    }

    /// The backed stretches of a block with holes.
    fn backed_parts(&self, block: &Block) -> Vec<(Bytes, Bytes)> {
        let (backed, pages) = (self.pool.backing.backed(), touched(block.start, block.end));
        let mut parts = Vec::new();
        let mut next = pages.start;
        while let Some(first) = backed.first(next..pages.end) {
            next = backed.first_without(first..pages.end).unwrap_or(pages.end);
            let (start, end) = (first as Bytes * PAGE, next as Bytes * PAGE);
            parts.push((start.max(block.start), end.min(block.end)));
        }
        parts
    }

    fn show_backed(&self, stretch: &mut Stretch, block: &Block) {
        let base = self.pool.backing.base();
        if block.home == super::blocks::Home::Live {
            stretch.blocks.push(BlockView {
                addr: base + block.start,
                size: block.size(),
                requested: block.requested,
                state: BlockState::Allocated,
                slot: Some(block.slot),
                stack: Default::default(),
            });
            return;
        }
        let mut at = block.start;
        for free in self.pending.within(block.start, block.end) {
            stretch.free(base + at, free.start - at);
            stretch.blocks.push(BlockView {
                addr: base + free.start,
                size: free.end - free.start,
                requested: free.requested,
                state: BlockState::Pending,
                slot: None,
                stack: Default::default(),
            });
            at = free.end;
        }
        stretch.free(base + at, block.end - at);
    }

    fn show_range(&self, stretch: &mut Stretch, visitor: &mut dyn HeapVisitor) {
        let (Some(first), Some(last)) = (stretch.blocks.first(), stretch.blocks.last()) else {
            return;
        };
        visitor.range(&RangeView {
            addr: first.addr,
            size: last.addr + last.size - first.addr,
            stream: self.latest,
            pool: PoolId::DEFAULT,
            small: false,
            expandable: true,
            stack: Default::default(),
        });
        stretch.blocks.drain(..).for_each(|block| visitor.block(&block));
    }
}

impl Stretch {
    /// Appends free memory, if it is any.
    fn free(&mut self, addr: u64, size: Bytes) {
        if size > 0 {
            self.blocks.push(BlockView {
                addr,
                size,
                requested: 0,
                state: BlockState::Free,
                slot: None,
                stack: Default::default(),
            });
        }
    }
}
