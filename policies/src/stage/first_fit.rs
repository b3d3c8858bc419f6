//! Free blocks ordered by address, with a fast way to the first that is large enough.
//!
//! Sorted chunks of at most `CHUNK` blocks, each knowing its largest block: a search skips chunks that hold
//! nothing large enough, so it costs a comparison for every chunk before the answer and one chunk's walk.

use poolsim_core::{BlockId, Bytes, DevAddr};

const CHUNK: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Item {
    addr: DevAddr,
    size: Bytes,
    block: BlockId,
}

#[derive(Clone, Debug, Default)]
struct Chunk {
    largest: Bytes,
    items: Vec<Item>,
}

impl Chunk {
    fn measure(&mut self) {
        self.largest = self.items.iter().map(|i| i.size).max().unwrap_or(0);
    }
}

/// The free blocks of one lane.
#[derive(Clone, Debug, Default)]
pub struct AddressIndex {
    chunks: Vec<Chunk>,
}

impl AddressIndex {
    /// Adds a block that is not in the index.
    pub fn insert(&mut self, block: BlockId, size: Bytes, addr: DevAddr) {
        let item = Item { addr, size, block };
        let at = self.chunk_of(addr);
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push(Chunk { largest: size, items: vec![item] });
            return;
        };
        let place = chunk.items.partition_point(|i| i.addr < addr);
        chunk.items.insert(place, item);
        chunk.largest = chunk.largest.max(size);
        if chunk.items.len() > CHUNK {
            let mut upper = Chunk { largest: 0, items: chunk.items.split_off(CHUNK / 2) };
            chunk.measure();
            upper.measure();
            self.chunks.insert(at + 1, upper);
        }
    }

    /// Takes out the block at `addr`.
    ///
    /// # Panics
    /// If there is none.
    pub fn remove(&mut self, addr: DevAddr) {
        let at = self.chunk_of(addr);
        let chunk = &mut self.chunks[at];
        let place = chunk.items.binary_search_by_key(&addr, |i| i.addr);
        let item = chunk.items.remove(place.expect("a block in the index"));
        if chunk.items.is_empty() {
            self.chunks.remove(at);
        } else if item.size == chunk.largest {
            chunk.measure();
        }
    }

    /// The block at the lowest address that has at least `size` bytes, with that address.
    pub fn first_at_least(&self, size: Bytes) -> Option<(BlockId, DevAddr)> {
        let chunk = self.chunks.iter().find(|c| c.largest >= size)?;
        chunk.items.iter().find(|i| i.size >= size).map(|i| (i.block, i.addr))
    }

    /// Size of the largest block, 0 if there is none.
    pub fn largest(&self) -> Bytes {
        self.chunks.iter().map(|c| c.largest).max().unwrap_or(0)
    }

    /// The last chunk that starts at or before `addr`, else the first.
    fn chunk_of(&self, addr: DevAddr) -> usize {
        self.chunks.partition_point(|c| c.items[0].addr <= addr).saturating_sub(1)
    }
}
