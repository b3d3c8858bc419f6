//! How allocators of the BFC family take regions from the device, and how much of a chunk a request gets.

use crate::arena::{Arena, LaneId};
use crate::ordered::Refusal;
use poolsim_core::{BlockId, Bytes, Device};

/// Every chunk is a multiple of this.
pub const ALIGN: Bytes = 256;

/// What an allocator's regions are to be.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The bound of all regions together.
    pub limit: Bytes,
    /// The first region, unless the request is larger.
    pub first: Bytes,
    /// The size at which regions stop doubling by themselves; a request may still double them on.
    pub doubles_to: Bytes,
    /// Whether the next region doubles although the device refused this one.
    pub doubles_when_refused: bool,
    /// A region is what the request needs, no more.
    pub exact: bool,
    /// After a refusal, the device is not asked for regions below this.
    pub least_retry: Bytes,
}

/// The rules, and the size of the next region.
#[derive(Clone, Debug)]
pub struct Growth {
    rules: Rules,
    next: Bytes,
}

impl Growth {
    /// Growth by these rules.
    pub fn new(rules: Rules) -> Self {
        Growth { rules, next: rules.first }
    }

    /// The bound of all regions together.
    pub fn limit(&self) -> Bytes {
        self.rules.limit
    }

    /// What the next region is to be, if the limit and the request allow it.
    pub fn next_region(&self) -> Bytes {
        self.next
    }

    /// As at the start of a process.
    pub fn restart(&mut self) {
        self.next = self.rules.first;
    }

    /// The next region is to have this size.
    pub fn continue_from(&mut self, size: Bytes) {
        self.next = size;
    }

    /// How large a region for a request is to be, of `left` bytes that the limit leaves; and how large the one after
    /// it, if the device gives this one.
    fn plan(&mut self, size: Bytes, left: Bytes) -> (Bytes, Bytes) {
        if self.rules.exact {
            return (size, self.next);
        }
        let doubled = size > self.next;
        while size > self.next {
            // For good, even where the device then gives nothing.
            self.next *= 2;
        }
        let bytes = self.next.min(left);
        let after = self.next.saturating_mul(2).min(self.rules.doubles_to);
        if doubled { (bytes, self.next) } else { (bytes, after) }
    }

    /// A region for a request of `size` bytes, as one free chunk that is in no index.
    #[cold]
    pub fn extend(
        &mut self,
        arena: &mut Arena,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
    ) -> Result<BlockId, Refusal> {
        let left = self.rules.limit.saturating_sub(arena.stats().reserved.current) / ALIGN * ALIGN;
        if size > left {
            return Err(Refusal::Limit);
        }
        let (mut bytes, after) = self.plan(size, left);
        if self.rules.doubles_when_refused {
            self.next = after;
        }
        let chunk = loop {
            match arena.reserve_exactly(dev, bytes, lane).map_err(Refusal::from) {
                Err(Refusal::Full) => bytes = backpedal(bytes),
                answer => break answer?,
            }
            if bytes < size.max(self.rules.least_retry) {
                return Err(Refusal::Full);
            }
        };
        self.next = after;
        Ok(chunk)
    }
}

/// How much of a free chunk a request of `size` bytes, after rounding, gets: all of it, unless it is at least twice as
/// large or `max_waste` bytes or more would be left over.
#[inline]
pub fn share(chunk: Bytes, size: Bytes, max_waste: Bytes) -> Bytes {
    if chunk >= 2 * size || chunk - size >= max_waste { size } else { chunk }
}

/// Nine tenths, in the originals' single precision, and less in any case.
fn backpedal(bytes: Bytes) -> Bytes {
    let less = (bytes as f32 * 0.9) as Bytes;
    less.next_multiple_of(ALIGN).min(bytes.saturating_sub(ALIGN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolsim_core::units::MIB;

    #[test]
    fn backpedalling_ends() {
        assert_eq!(backpedal(64 * MIB), 60_398_080);
        assert_eq!(backpedal(2560), 2304);
        assert_eq!(backpedal(512), 256);
        assert_eq!(backpedal(256), 0);
        let steps = std::iter::successors(Some(1 << 40), |&b| Some(backpedal(b)));
        assert!(steps.take_while(|&b| b > 0).count() < 250);
    }
}
