//! BFC's rules written down plainly, to follow a log rather than to serve requests.

use poolsim_core::{Bytes, DevAddr};
use std::collections::{BTreeMap, BTreeSet};

/// Rounds a request up.
pub fn rounded(bytes: Bytes) -> Bytes {
    bytes.next_multiple_of(256)
}

/// A chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chunk {
    pub addr: DevAddr,
    pub size: Bytes,
}

impl Chunk {
    pub fn end(self) -> DevAddr {
        self.addr + self.size
    }
}

/// Free chunks by address and by size, and where regions start.
#[derive(Clone, Debug, Default)]
pub struct Naive {
    free: BTreeMap<DevAddr, Bytes>,
    by_size: BTreeSet<(Bytes, DevAddr)>,
    starts: BTreeSet<DevAddr>,
    held: Bytes,
}

impl Naive {
    pub fn held(&self) -> Bytes {
        self.held
    }

    fn insert(&mut self, addr: DevAddr, size: Bytes) {
        self.free.insert(addr, size);
        self.by_size.insert((size, addr));
    }

    fn remove(&mut self, addr: DevAddr) -> Bytes {
        let size = self.free.remove(&addr).expect("a free chunk");
        self.by_size.remove(&(size, addr));
        size
    }

    pub fn add_region(&mut self, addr: DevAddr, size: Bytes) {
        self.starts.insert(addr);
        self.held += size;
        self.insert(addr, size);
    }

    /// Frees a chunk: merges it with its free neighbours of the same region.
    pub fn free(&mut self, chunk: Chunk) {
        let Chunk { mut addr, mut size } = chunk;
        let end = chunk.end();
        if self.free.contains_key(&end) && !self.starts.contains(&end) {
            size += self.remove(end);
        }
        if !self.starts.contains(&addr)
            && let Some((&before, &len)) = self.free.range(..addr).next_back()
            && before + len == addr
        {
            size += self.remove(before);
            addr = before;
        }
        self.insert(addr, size);
    }

    /// The free chunks that BFC would choose for a request, the first choice first.
    pub fn choices(&self, bytes: Bytes) -> impl Iterator<Item = Chunk> {
        self.by_size.range((rounded(bytes), 0)..).map(|&(size, addr)| Chunk { addr, size })
    }

    /// Bytes of all free chunks.
    pub fn free_bytes(&self) -> Bytes {
        self.free.values().sum()
    }

    /// The free chunk that an address lies in.
    pub fn free_at(&self, addr: DevAddr) -> Option<Chunk> {
        let (&start, &size) = self.free.range(..=addr).next_back()?;
        (addr < start + size).then_some(Chunk { addr: start, size })
    }

    /// Gives a free chunk, or its first part, to a request.
    pub fn take(&mut self, chunk: Chunk, bytes: Bytes) -> Chunk {
        let (need, whole) = (rounded(bytes), self.remove(chunk.addr));
        let size = if whole >= 2 * need || whole - need >= 128 << 20 { need } else { whole };
        if whole > size {
            self.insert(chunk.addr + size, whole - size);
        }
        Chunk { addr: chunk.addr, size }
    }
}
