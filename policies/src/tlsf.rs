//! Two-level segregated fit: a block that fits well, found in constant time.

use crate::caching::Caching;
use crate::params::ParamDef;
use crate::registry::{OomRule, PolicyDef, no_version, no_warnings};
use crate::stage::bins::Bins;
use crate::stage::growth::{Chunks, GROW_CHUNK};
use crate::stage::placement::SLI;
use crate::stage::reclaim::ReleaseAll;
use crate::stage::rounding::{QUANTUM, Quantum};

const PARAMS: &[ParamDef] = &[
    ParamDef { key: "sli", ..SLI },
    ParamDef { key: "quantum", ..QUANTUM },
    ParamDef {
        key: "segment",
        doc: "Size of a range. A larger request gets one of its own size, in multiples of 2 MiB.",
        ..GROW_CHUNK
    },
];

/// `tlsf`.
pub static DEF: PolicyDef = PolicyDef {
    name: "tlsf",
    aliases: &[],
    presets: &[],
    summary: "Two-level segregated fit: a good fit in constant time, over segments of one size",
    rules: "A request is rounded up to a multiple of `quantum`.\n\
            Free blocks are kept in lists by size, for each stream and pool: `2^sli` lists of equal steps between two powers of \
            two. Of the lists whose blocks are all large enough, the lowest one that is not empty serves, with the block freed \
            last; the rest of the block becomes a free block.\n\
            A block in the list of the request itself is not looked at, so a request may be refused though a block would do; \
            in return no search is ever longer than two bit scans.\n\
            If no block serves, a range of `segment` bytes, or of the needed size if that is more or if the device has no \
            such range left, is taken from the device.\n\
            If the device is full, pending frees are waited for and all idle ranges are given back.\n\
            A freed block merges with its free neighbours at once; one that other streams used waits for them.",
    source: "M. Masmano, I. Ripoll, A. Crespo, J. Real, TLSF: A New Dynamic Memory Allocator for Real-Time Systems, ECRTS 2004; \
             the paper's region is here one segment of many",
    checked_against: "the crate offset-allocator 0.2 (with its eight lists an octave: the same place for every request), a \
                      linear scan (index) and naive judges (heap)",
    params: PARAMS,
    refuses: &[OomRule::CacheReleased, OomRule::DeviceLacks],
    version: no_version,
    check: no_warnings,
    build: |p, env| {
        let round = Quantum(p.bytes("quantum"));
        let place = Bins::tlsf(p.uint("sli") as u32);
        let grow = Chunks(p.bytes("segment"));
        Ok(Box::new(Caching::new(round, place, grow, ReleaseAll, env)))
    },
};
