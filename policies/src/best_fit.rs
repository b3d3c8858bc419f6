//! Plain coalescing best fit: what a caching allocator does without any rule of PyTorch's.

use crate::caching::Caching;
use crate::params::ParamDef;
use crate::registry::{OomRule, PolicyDef, no_version, no_warnings};
use crate::stage::growth::{Exact, GROW_UNIT};
use crate::stage::placement::BestFit;
use crate::stage::reclaim::ReleaseAll;
use crate::stage::rounding::{QUANTUM, Quantum};

const PARAMS: &[ParamDef] =
    &[ParamDef { key: "quantum", ..QUANTUM }, ParamDef { key: "unit", ..GROW_UNIT }];

/// `best-fit`.
pub static DEF: PolicyDef = PolicyDef {
    name: "best-fit",
    aliases: &[],
    presets: &[],
    summary: "Plain best fit with coalescing, on segments of multiples of 2 MiB",
    rules: "A request is rounded up to a multiple of `quantum` and served by the smallest free block of its stream and \
            pool that is large enough, the lowest address among equals; the rest of the block becomes a free block.\n\
            If no block serves, a range of the needed size, up to a multiple of `unit`, is taken from the device.\n\
            If the device is full, pending frees are waited for and all idle ranges are given back.\n\
            A freed block merges with its free neighbours; one that other streams used waits for them.",
    source: "D. E. Knuth, The Art of Computer Programming, volume 1, section 2.5",
    checked_against: "a linear scan (index) and naive judges (heap)",
    params: PARAMS,
    refuses: &[OomRule::CacheReleased, OomRule::NothingFits, OomRule::DeviceLacks],
    version: no_version,
    check: no_warnings,
    build: |p, env| {
        let round = Quantum(p.bytes("quantum"));
        let grow = Exact(p.bytes("unit"));
        Ok(Box::new(Caching::new(round, BestFit::default(), grow, ReleaseAll, env)))
    },
};
