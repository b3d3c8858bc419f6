//! Walking the heap, as PyTorch's snapshot lists it.

use super::Pytorch;
use super::blocks::{ALLOCATED, Block, MAPPED, NO_SLOT, NONE, SHARED, User};
use super::heap::{SMALL, Segment};
use poolsim_core::heap::{BlockState, BlockView, HeapVisitor, RangeView};
use poolsim_core::stack::StackId;
use poolsim_core::units::Slot;

impl Pytorch {
    /// Visits segments in address order; of expandable ones each maximal mapped stretch.
    pub(super) fn walk(&self, visitor: &mut dyn HeapVisitor) {
        let heads = self.segment_heads();
        for (segment, head) in self.heaps.segments.values().zip(heads) {
            let mut at = head;
            while at != NONE {
                if self.blocks.get(at).is(MAPPED) {
                    at = self.walk_stretch(segment, at, visitor);
                } else {
                    at = self.blocks.get(at).next;
                }
            }
        }
    }

    /// The first block of each segment, in address order.
    fn segment_heads(&self) -> Vec<u32> {
        let mut heads: Vec<(u64, u32)> = Vec::new();
        for (id, b) in self.blocks.table.iter().enumerate().skip(1) {
            // Entries on the free list have no flags.
            let lives = b.flags != 0;
            if lives && b.prev == NONE {
                heads.push((b.addr, id as u32));
            }
        }
        heads.sort_unstable();
        debug_assert_eq!(heads.len(), self.heaps.segments.len());
        heads.into_iter().map(|(_, id)| id).collect()
    }

    /// Visits the mapped blocks from `first` on; returns the block behind them.
    fn walk_stretch(&self, segment: &Segment, first: u32, visitor: &mut dyn HeapVisitor) -> u32 {
        let heap = self.heaps.get(segment.heap);
        let mut end = first;
        let mut size = 0;
        while end != NONE && self.blocks.get(end).is(MAPPED) {
            size += self.blocks.get(end).size();
            end = self.blocks.get(end).next;
        }
        visitor.range(&RangeView {
            addr: self.blocks.get(first).addr,
            size,
            stream: heap.stream,
            pool: heap.pool,
            small: usize::from(segment.heap & 1) == SMALL,
            expandable: segment.expandable,
            stack: StackId::NONE,
        });
        let mut at = first;
        while at != end {
            let block = self.blocks.get(at);
            visitor.block(&self.view(at, block));
            at = block.next;
        }
        end
    }

    fn view(&self, id: u32, block: &Block) -> BlockView {
        let state = if block.is(ALLOCATED) {
            BlockState::Allocated
        } else if block.is(SHARED) {
            BlockState::Pending
        } else {
            BlockState::Free
        };
        let User { requested, slot } = self.blocks.users[id as usize];
        BlockView {
            addr: block.addr,
            size: block.size(),
            requested,
            state,
            slot: (state != BlockState::Free && slot != NO_SLOT).then_some(Slot(slot)),
            stack: StackId::NONE,
        }
    }
}
