//! When idle ranges go back to the device, and which.

use super::StageDef;
use crate::arena::{Arena, RangeNo};
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind, Params};
use poolsim_core::Bytes;
use std::ops::Bound;

/// Chooses among the idle ranges; the skeleton gives back what was chosen. `empty_cache` is not a reclaim's
/// business: it gives back every idle range.
pub trait Reclaim: Send {
    /// Which range is too much now? Asked, until `None`, after a free that left a range idle (`growth` is 0)
    /// and before `growth` bytes are taken from a device of `total` bytes. Defaults to none.
    fn surplus(&mut self, arena: &Arena, total: Bytes, growth: Bytes) -> Option<RangeNo> {
        let _ = (arena, total, growth);
        None
    }

    /// The device is full: which range goes next? `None` ends the attempt.
    fn under_pressure(&mut self, arena: &Arena) -> Option<RangeNo>;

    /// Whether giving back under pressure goes on to the end before growth is tried again. If not, it
    /// stops as soon as the device has enough free memory.
    fn all_at_once(&self) -> bool;
}

impl<T: Reclaim + ?Sized> Reclaim for Box<T> {
    fn surplus(&mut self, arena: &Arena, total: Bytes, growth: Bytes) -> Option<RangeNo> {
        (**self).surplus(arena, total, growth)
    }
    fn under_pressure(&mut self, arena: &Arena) -> Option<RangeNo> {
        (**self).under_pressure(arena)
    }
    fn all_at_once(&self) -> bool {
        (**self).all_at_once()
    }
}

/// Nothing goes back before `empty_cache`.
#[derive(Clone, Copy, Debug)]
pub struct Never;

impl Reclaim for Never {
    fn under_pressure(&mut self, _: &Arena) -> Option<RangeNo> {
        None
    }

    fn all_at_once(&self) -> bool {
        true
    }
}

/// Every idle range, when the device is full.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseAll;

impl Reclaim for ReleaseAll {
    fn under_pressure(&mut self, arena: &Arena) -> Option<RangeNo> {
        arena.oldest_idle()
    }

    fn all_at_once(&self) -> bool {
        true
    }
}

/// The range that has been idle longest: as many as needed when the device is full, and always those
/// that exceed what may be kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastRecentlyUsed {
    /// Idle bytes that are kept at most; `None` means any number.
    pub keep: Option<Bytes>,
    /// Share of the device's memory that is reserved at most while anything is idle.
    pub threshold: Option<f64>,
}

impl Reclaim for LeastRecentlyUsed {
    #[inline]
    fn surplus(&mut self, arena: &Arena, total: Bytes, growth: Bytes) -> Option<RangeNo> {
        let too_idle = self.keep.is_some_and(|keep| arena.idle_bytes() > keep);
        let reserved = arena.stats().reserved.current + growth;
        let too_full = self.threshold.is_some_and(|x| reserved as f64 > x * total as f64);
        if too_idle || too_full { arena.oldest_idle() } else { None }
    }

    fn under_pressure(&mut self, arena: &Arena) -> Option<RangeNo> {
        arena.oldest_idle()
    }

    fn all_at_once(&self) -> bool {
        false
    }
}

/// The reclaim stages.
pub const RECLAIMS: &[StageDef<dyn Reclaim>] = &[
    StageDef {
        name: "all",
        summary: "every idle range, when the device is full",
        params: &[],
        build: |_| Box::new(ReleaseAll),
    },
    StageDef {
        name: "lru",
        summary: "longest idle first: when the device is full, and past reclaim.keep or reclaim.threshold",
        params: &[KEEP, THRESHOLD],
        build: |p: &Params| {
            Box::new(LeastRecentlyUsed {
                keep: p.bytes_if_set(KEEP.key),
                threshold: p.float_if_set(THRESHOLD.key),
            })
        },
    },
    StageDef {
        name: "none",
        summary: "nothing before empty_cache",
        params: &[],
        build: |_| Box::new(Never),
    },
];

/// `reclaim.keep`.
pub const KEEP: ParamDef = ParamDef {
    key: "reclaim.keep",
    kind: ParamKind::Bytes { min: 0, multiple_of: 1 },
    default: ParamDefault::Unset("unlimited"),
    unit: "bytes",
    doc: "Idle bytes that are kept at most.",
    effect: Effect::Simulated,
};

/// `reclaim.threshold`.
pub const THRESHOLD: ParamDef = ParamDef {
    key: "reclaim.threshold",
    kind: ParamKind::Float { min: Bound::Excluded(0.0), max: Bound::Excluded(1.0) },
    default: ParamDefault::Unset("off"),
    unit: "share of device memory",
    doc: "Reserved memory above which idle ranges are given back.",
    effect: Effect::Simulated,
};
