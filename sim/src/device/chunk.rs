//! A chunk: the unit in which the driver takes address space for `cudaMalloc`.

use poolsim_core::{Bytes, DevAddr};

/// A stretch of address space that the driver cuts `cudaMalloc` ranges from.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    /// Age: larger is newer.
    pub(super) number: u64,
    pub(super) base: DevAddr,
    pub(super) len: Bytes,
    /// Free stretches (start, length) in address order.
    pub(super) free: Vec<(DevAddr, Bytes)>,
}

pub(super) fn longest(free: &[(DevAddr, Bytes)]) -> Bytes {
    free.iter().map(|f| f.1).max().unwrap_or(0)
}

impl Chunk {
    /// Takes the start of the smallest sufficient free stretch, the lowest of equals.
    pub(super) fn take_best(&mut self, size: Bytes) -> DevAddr {
        let best = (0..self.free.len())
            .filter(|&i| self.free[i].1 >= size)
            .min_by_key(|&i| self.free[i].1)
            .expect("the caller saw a long enough stretch");
        let (at, len) = self.free[best];
        if len == size {
            self.free.remove(best);
        } else {
            self.free[best] = (at + size, len - size);
        }
        at
    }

    pub(super) fn give(&mut self, addr: DevAddr, size: Bytes) {
        let i = self.free.partition_point(|&(start, _)| start < addr);
        let joins_next = self.free.get(i).is_some_and(|&(start, _)| addr + size == start);
        let joins_previous = i > 0 && self.free[i - 1].0 + self.free[i - 1].1 == addr;
        match (joins_previous, joins_next) {
            (true, true) => {
                self.free[i - 1].1 += size + self.free[i].1;
                self.free.remove(i);
            }
            (true, false) => self.free[i - 1].1 += size,
            (false, true) => self.free[i] = (addr, size + self.free[i].1),
            (false, false) => self.free.insert(i, (addr, size)),
        }
    }
}
