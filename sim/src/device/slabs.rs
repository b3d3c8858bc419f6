//! Small `cudaMalloc`s: the driver cuts them from slabs of 2 MiB.
//!
//! Measured on driver 580.159.04: ranges of up to 589,824 bytes lay side by side on borders of 512 bytes in one
//! slab, ranges from 1,179,648 bytes on began at borders of 2 MiB. Where between them the limit lies was not measured.

use super::chunk::{Chunk, longest};
use super::placement::Driver;
use poolsim_core::units::MIB;
use poolsim_core::{Bytes, DevAddr};

/// Ranges below this share slabs.
pub(super) const SMALL: Bytes = MIB;
/// Size of a slab, and unit of all larger ranges.
pub(super) const SLAB: Bytes = 2 * MIB;
/// Unit of ranges in a slab.
const UNIT: Bytes = 512;

/// What a whole range takes from a device that deals in granules. Small ones share them; the last one may be partly
/// empty, which is not counted.
pub(super) fn footprint(size: Bytes, granule: Bytes) -> Bytes {
    if size < SMALL { size } else { size.checked_next_multiple_of(granule).unwrap_or(Bytes::MAX) }
}

/// The slabs of a driver, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Slabs {
    /// Each with the number of the chunk that it was taken from.
    slabs: Vec<(Chunk, u64)>,
    next: u64,
}

impl Slabs {
    /// A new slab, at `base` in a chunk.
    pub(super) fn add(&mut self, base: DevAddr, chunk: u64) {
        let slab = Chunk { number: self.next, base, len: SLAB, free: vec![(base, SLAB)] };
        self.slabs.push((slab, chunk));
        self.next += 1;
    }

    /// Room in the newest slab that has any: its smallest sufficient stretch. Returns the slab's number too.
    pub(super) fn take(&mut self, size: Bytes) -> Option<(DevAddr, u64)> {
        let size = size.next_multiple_of(UNIT);
        let (slab, _) = self.slabs.iter_mut().rev().find(|(s, _)| longest(&s.free) >= size)?;
        Some((slab.take_best(size), slab.number))
    }

    /// Gives room back. A slab without use goes, and its base and chunk are returned.
    pub(super) fn give(
        &mut self,
        number: u64,
        addr: DevAddr,
        size: Bytes,
    ) -> Option<(DevAddr, u64)> {
        let found = self.slabs.binary_search_by_key(&number, |(s, _)| s.number);
        let i = found.expect("a slab lives as long as a range in it");
        self.slabs[i].0.give(addr, size.next_multiple_of(UNIT));
        if longest(&self.slabs[i].0.free) < SLAB {
            return None;
        }
        let (slab, chunk) = self.slabs.remove(i);
        Some((slab.base, chunk))
    }
}

impl Driver {
    /// `cudaMalloc` of less than [`SMALL`]: room in a slab, else in a new one.
    pub(super) fn take_small(&mut self, size: Bytes) -> Option<(DevAddr, u64)> {
        if let Some(taken) = self.slabs.take(size) {
            return Some(taken);
        }
        let (base, chunk) = self.take_whole(SLAB)?;
        self.slabs.add(base, chunk);
        self.slabs.take(size)
    }

    /// `cudaFree` of such a range.
    pub(super) fn give_small(&mut self, number: u64, addr: DevAddr, size: Bytes) {
        if let Some((base, chunk)) = self.slabs.give(number, addr, size) {
            self.give_whole(chunk, base, SLAB);
        }
    }
}
