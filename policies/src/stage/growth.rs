//! How much is taken from the device when no free block serves.

use super::StageDef;
use crate::arena::{Arena, LaneId};
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind, Params};
use poolsim_core::units::{GIB, MIB};
use poolsim_core::{BlockId, Bytes, Device, DeviceError};
use std::ops::Bound;

/// Takes memory from the device. Runs after placement failed, and again after memory was given back.
pub trait Growth: Send {
    /// A new range of the lane with at least `need` bytes, as one free block that is in no index.
    fn grow(
        &mut self,
        arena: &mut Arena,
        dev: &mut dyn Device,
        need: Bytes,
        lane: LaneId,
    ) -> Result<BlockId, DeviceError>;
}

impl<T: Growth + ?Sized> Growth for Box<T> {
    fn grow(
        &mut self,
        arena: &mut Arena,
        dev: &mut dyn Device,
        need: Bytes,
        lane: LaneId,
    ) -> Result<BlockId, DeviceError> {
        (**self).grow(arena, dev, need, lane)
    }
}

/// What is needed, up to a multiple of a unit, or of 2 MiB if the device has no more.
#[derive(Clone, Copy, Debug)]
pub struct Exact(pub Bytes);

impl Growth for Exact {
    fn grow(
        &mut self,
        arena: &mut Arena,
        dev: &mut dyn Device,
        need: Bytes,
        lane: LaneId,
    ) -> Result<BlockId, DeviceError> {
        largest_first(arena, dev, [need.next_multiple_of(self.0)], need, lane)
    }
}

/// Chunks of a fixed size; a larger need gets what it needs, in units of 2 MiB. If the device has no
/// chunk left, a need is tried at its own size before growth fails.
#[derive(Clone, Copy, Debug)]
pub struct Chunks(pub Bytes);

impl Growth for Chunks {
    fn grow(
        &mut self,
        arena: &mut Arena,
        dev: &mut dyn Device,
        need: Bytes,
        lane: LaneId,
    ) -> Result<BlockId, DeviceError> {
        largest_first(arena, dev, [self.0], need, lane)
    }
}

/// Each range `factor` times the one before it, up to `max`; a larger need gets what it needs. If the device
/// has no such range left, half of it is tried and so on down to the need.
#[derive(Clone, Copy, Debug)]
pub struct Doubling {
    next: Bytes,
    factor: f64,
    max: Bytes,
}

impl Growth for Doubling {
    fn grow(
        &mut self,
        arena: &mut Arena,
        dev: &mut dyn Device,
        need: Bytes,
        lane: LaneId,
    ) -> Result<BlockId, DeviceError> {
        let halves = std::iter::successors(Some(self.next), |&size| Some(size / 2));
        let halves = halves.take_while(|&size| size > need);
        let block = largest_first(arena, dev, halves, need, lane)?;
        let grown = (self.next as f64 * self.factor) as Bytes;
        self.next = grown.min(self.max).next_multiple_of(UNIT);
        Ok(block)
    }
}

/// Tries ranges of the given sizes that are larger than the need, then one for the need itself.
fn largest_first(
    arena: &mut Arena,
    dev: &mut dyn Device,
    sizes: impl IntoIterator<Item = Bytes>,
    need: Bytes,
    lane: LaneId,
) -> Result<BlockId, DeviceError> {
    let need = need.next_multiple_of(UNIT);
    for size in sizes {
        let size = size.next_multiple_of(UNIT);
        if size <= need {
            break;
        }
        match arena.reserve(dev, size, lane) {
            Err(DeviceError::OutOfMemory { .. } | DeviceError::OutOfAddresses { .. }) => {}
            answer => return answer,
        }
    }
    arena.reserve(dev, need, lane)
}

/// The unit of ranges that follow no unit of their own.
const UNIT: Bytes = 2 * MIB;

/// The growth stages.
pub const GROWTHS: &[StageDef<dyn Growth>] = &[
    StageDef {
        name: "exact",
        summary: "what is needed, up to a multiple of grow.unit (of 2 MiB if the device has no more)",
        params: &[GROW_UNIT],
        build: |p: &Params| Box::new(Exact(p.bytes(GROW_UNIT.key))),
    },
    StageDef {
        name: "chunk",
        summary: "chunks of grow.chunk, or what is needed if that is more",
        params: &[GROW_CHUNK],
        build: |p: &Params| Box::new(Chunks(p.bytes(GROW_CHUNK.key))),
    },
    StageDef {
        name: "double",
        summary: "each range grow.factor times the one before it, from grow.first up to grow.max",
        params: &[FACTOR, FIRST, MAX],
        build: |p: &Params| {
            Box::new(Doubling {
                next: p.bytes(FIRST.key),
                factor: p.float(FACTOR.key),
                max: p.bytes(MAX.key).min(64 * GIB).max(p.bytes(FIRST.key)),
            })
        },
    },
];

const fn size(key: &'static str, default: &'static str, doc: &'static str) -> ParamDef {
    ParamDef {
        key,
        kind: ParamKind::Bytes { min: UNIT, multiple_of: UNIT },
        default: ParamDefault::Is(default),
        unit: "bytes",
        doc,
        effect: Effect::Simulated,
    }
}

/// `grow.unit`.
pub const GROW_UNIT: ParamDef = size("grow.unit", "2MiB", "Ranges are multiples of this.");
/// `grow.chunk`.
pub const GROW_CHUNK: ParamDef = size("grow.chunk", "64MiB", "Size of a range.");
const FIRST: ParamDef = size("grow.first", "2MiB", "Size of the first range.");
const MAX: ParamDef = size("grow.max", "1GiB", "Size that ranges do not grow past.");
const FACTOR: ParamDef = ParamDef {
    key: "grow.factor",
    kind: ParamKind::Float { min: Bound::Included(1.0), max: Bound::Included(16.0) },
    default: ParamDefault::Is("2"),
    unit: "",
    doc: "How many times larger each range is than the one before it.",
    effect: Effect::Simulated,
};
