//! The binary buddy system: blocks are powers of two, and each has one other that it may merge with.

use crate::arena::{Arena, LaneId};
use crate::caching::Caching;
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind, Params};
use crate::registry::{OomRule, PolicyDef, no_version, no_warnings};
use crate::stage::bins::Bins;
use crate::stage::growth::{Chunks, GROW_CHUNK};
use crate::stage::reclaim::ReleaseAll;
use crate::stage::{Placement, Rounding};
use poolsim_core::{BlockId, Bytes, ConfigError};

const MIN_BLOCK: ParamDef = ParamDef {
    key: "min_block",
    kind: ParamKind::Bytes { min: 256, multiple_of: 256 },
    default: ParamDefault::Is("512"),
    unit: "bytes",
    doc: "Smallest block; a power of two.",
    effect: Effect::Simulated,
};

const SEGMENT: ParamDef = ParamDef {
    key: "segment",
    doc: "Size of a range; a power of two. A larger request gets one of its own size.",
    ..GROW_CHUNK
};

/// `buddy`.
pub static DEF: PolicyDef = PolicyDef {
    name: "buddy",
    aliases: &[],
    presets: &[],
    summary: "Binary buddies: blocks are powers of two, halved and joined again, within segments",
    rules: "A request is rounded up to a power of two, at least `min_block`.\n\
            The smallest free block of its stream and pool that is large enough serves it, among equals the one freed last. It is \
            halved until it has the size; the upper halves become free blocks.\n\
            If no block serves, a range of `segment` bytes, or of the rounded size if that is more or if the device has no such \
            range left, is taken from the device. Ranges are powers of two, too.\n\
            If the device is full, pending frees are waited for and all idle ranges are given back.\n\
            A freed block joins the other half of the block that it was cut from, its buddy, as soon as that is free and whole, \
            and so on upwards. Free neighbours that are not buddies stay apart. A block that other streams used waits for them.",
    source: "K. C. Knowlton, A fast storage allocator, CACM 8(10), 1965; D. E. Knuth, The Art of Computer Programming, volume 1, \
             section 2.5, algorithms R and S",
    checked_against: "a list of free blocks that is halved and joined by the definition (every address), naive judges (heap)",
    params: &[MIN_BLOCK, SEGMENT],
    refuses: &[OomRule::CacheReleased, OomRule::NothingFits, OomRule::DeviceLacks],
    version: no_version,
    check: no_warnings,
    build: |p, env| {
        let round = PowerAtLeast(power(p, MIN_BLOCK.key)?);
        let grow = Chunks(power(p, SEGMENT.key)?);
        Ok(Box::new(Caching::new(round, Buddies(Bins::powers()), grow, ReleaseAll, env)))
    },
};

/// A parameter that has to be a power of two.
fn power(params: &Params, key: &str) -> Result<Bytes, ConfigError> {
    let value = params.bytes(key);
    if value.is_power_of_two() {
        return Ok(value);
    }
    let above = value.checked_next_power_of_two().map_or(String::new(), |n| format!(" or {n}"));
    let below = 1u64 << value.ilog2();
    Err(ConfigError(format!("`{key}` is {value}; it has to be a power of two: {below}{above}")))
}

/// Up to a power of two, and never less than this one.
#[derive(Clone, Copy, Debug)]
struct PowerAtLeast(Bytes);

impl Rounding for PowerAtLeast {
    #[inline]
    fn round(&self, asked: Bytes) -> Bytes {
        asked.next_power_of_two().max(self.0)
    }
}

/// A list for each power of two. The ranges are powers of two, so a block's buddy is found by its offset:
///
/// ```text
/// offset   0      1      2             4                           8
///          | in use | free |   free    |          in use           |
///            buddies: 0 and 1; 0-1 and 2-3; 0-3 and 4-7. 1 and 2-3 touch and are none.
/// ```
#[derive(Clone, Debug)]
struct Buddies(Bins);

impl Buddies {
    fn offset(arena: &Arena, block: BlockId) -> Bytes {
        arena.addr(block) - arena.addr(arena.first_block(arena.range_of(block)))
    }

    /// Joins a block, in no index, with its buddy if that is free and whole. Returns both as one.
    fn join(&mut self, arena: &mut Arena, block: BlockId) -> Option<BlockId> {
        let size = arena.size(block);
        let is_lower = Self::offset(arena, block) & size == 0;
        let (prev, next) = arena.free_neighbours(block);
        let buddy = if is_lower { next } else { prev }.filter(|&b| arena.size(b) == size)?;
        self.0.remove(arena, buddy);
        let (prev, next) = if is_lower { (None, Some(buddy)) } else { (Some(buddy), None) };
        Some(arena.merge(block, prev, next))
    }
}

impl Placement for Buddies {
    #[inline]
    fn take(&mut self, arena: &Arena, size: Bytes, lane: LaneId) -> Option<BlockId> {
        self.0.take(arena, size, lane)
    }

    #[inline]
    fn insert(&mut self, arena: &Arena, block: BlockId) {
        self.0.insert(arena, block);
    }

    #[inline]
    fn remove(&mut self, arena: &Arena, block: BlockId) {
        self.0.remove(arena, block);
    }

    fn largest(&self, arena: &Arena, lane: LaneId) -> Bytes {
        self.0.largest(arena, lane)
    }

    fn take_up(&mut self, arena: &mut Arena, block: BlockId) {
        let mut whole = block;
        while let Some(joined) = self.join(arena, whole) {
            whole = joined;
        }
        // A block that was the whole range all along is idle from now on.
        let whole = arena.merge(whole, None, None);
        self.0.insert(arena, whole);
    }

    /// What is left of a halved block are its upper halves, the smallest first.
    fn take_up_rest(&mut self, arena: &mut Arena, rest: BlockId) {
        let mut rest = rest;
        loop {
            let offset = Self::offset(arena, rest);
            let half = offset & offset.wrapping_neg();
            let last = arena.size(rest) == half;
            let next = if last { rest } else { arena.split(rest, half) };
            self.0.insert(arena, rest);
            if last {
                return;
            }
            rest = next;
        }
    }

    fn coalesces(&self) -> bool {
        false
    }
}
