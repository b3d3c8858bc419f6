//! Best fit on sizes rounded to powers of two, or to steps between them: fewer sizes, more exact reuse, more waste.

use crate::caching::Caching;
use crate::params::ParamDef;
use crate::registry::{OomRule, PolicyDef, no_version, no_warnings};
use crate::stage::growth::{Exact, GROW_UNIT};
use crate::stage::placement::BestFit;
use crate::stage::reclaim::ReleaseAll;
use crate::stage::rounding::{DIVISIONS, PowerOfTwo};

const PARAMS: &[ParamDef] =
    &[ParamDef { key: "divisions", ..DIVISIONS }, ParamDef { key: "unit", ..GROW_UNIT }];

/// `pow2`.
pub static DEF: PolicyDef = PolicyDef {
    name: "pow2",
    aliases: &[],
    presets: &[],
    summary: "Best fit on sizes rounded to powers of two, or to steps between them",
    rules: "A request is rounded up to the next of `divisions` equal steps between two powers of two, and to at least a \
            multiple of 512 bytes: with 4 divisions, 1200 bytes become 1536 and 1.2 MiB become 1.25 MiB.\n\
            `divisions` may differ by size, as PyTorch's `roundup_power2_divisions`; here 1 means whole powers of two, where \
            PyTorch takes 1 as no rounding.\n\
            The rest is `best-fit`: the smallest free block of the stream and pool, split; ranges in multiples of `unit`; \
            all idle ranges back when the device is full.",
    source: "PyTorch's roundup_power2_divisions (c10/cuda/CUDACachingAllocator.cpp, roundup_power2_next_division) as a policy \
             of its own; the bookkeeping as in D. E. Knuth, The Art of Computer Programming, volume 1, section 2.5",
    checked_against: "PyTorch's worked examples of divisions, a linear scan (index) and naive judges (heap)",
    params: PARAMS,
    refuses: &[OomRule::CacheReleased, OomRule::NothingFits, OomRule::DeviceLacks],
    version: no_version,
    check: no_warnings,
    build: |p, env| {
        let round = PowerOfTwo::new(&p.divisions("divisions"));
        let grow = Exact(p.bytes("unit"));
        Ok(Box::new(Caching::new(round, BestFit::default(), grow, ReleaseAll, env)))
    },
};
