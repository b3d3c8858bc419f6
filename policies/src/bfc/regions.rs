//! How BFC takes regions from the device.

use super::ALIGN;
use crate::arena::{Arena, LaneId};
use crate::ordered::Refusal;
use poolsim_core::units::MIB;
use poolsim_core::{BlockId, Bytes, Device};

/// The first region, where not all memory is taken at once.
const FIRST: Bytes = 2 * MIB;

/// The size of the next region, and the bound of all together.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    limit: Bytes,
    first: Bytes,
    next: Bytes,
}

impl Growth {
    /// Growth up to `limit`; `at_once` makes the first region all of it.
    pub(super) fn new(limit: Bytes, at_once: bool) -> Self {
        let first = if at_once { limit } else { limit.min(FIRST) }.next_multiple_of(ALIGN);
        Growth { limit, first, next: first }
    }

    pub(super) fn limit(&self) -> Bytes {
        self.limit
    }

    /// What the next region is to be, if the limit and the request allow it.
    pub(super) fn next_region(&self) -> Bytes {
        self.next
    }

    /// As at the start of a process.
    pub(super) fn restart(&mut self) {
        self.next = self.first;
    }

    /// A region for a request of `size` bytes, as one free chunk that is in no index. The next region doubles, for
    /// good, until the request fits, even where the device then gives nothing.
    #[cold]
    pub(super) fn extend(
        &mut self,
        arena: &mut Arena,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
    ) -> Result<BlockId, Refusal> {
        let left = self.limit.saturating_sub(arena.stats().reserved.current) / ALIGN * ALIGN;
        if size > left {
            return Err(Refusal::Limit);
        }
        let doubled = size > self.next;
        while size > self.next {
            self.next *= 2;
        }
        let mut bytes = self.next.min(left);
        let chunk = loop {
            match arena.reserve_exactly(dev, bytes, lane).map_err(Refusal::from) {
                Err(Refusal::Full) => bytes = backpedal(bytes),
                answer => break answer?,
            }
            if bytes < size {
                return Err(Refusal::Full);
            }
        };
        if !doubled {
            self.next *= 2;
        }
        Ok(chunk)
    }
}

/// Nine tenths, in the original's single precision, and less in any case.
fn backpedal(bytes: Bytes) -> Bytes {
    let less = (bytes as f32 * 0.9) as Bytes;
    less.next_multiple_of(ALIGN).min(bytes.saturating_sub(ALIGN))
}

#[cfg(test)]
mod tests {
    use super::*;

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
