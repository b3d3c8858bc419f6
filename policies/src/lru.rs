//! Best fit that gives cached ranges back one by one, the one that was used longest ago first.

use crate::caching::Caching;
use crate::params::{ParamDef, Params};
use crate::registry::{BuildEnv, OomRule, PolicyDef, Warning, no_version};
use crate::stage::growth::{Exact, GROW_UNIT};
use crate::stage::placement::BestFit;
use crate::stage::reclaim::{KEEP, LeastRecentlyUsed, THRESHOLD};
use crate::stage::rounding::{QUANTUM, Quantum};

const PARAMS: &[ParamDef] = &[
    ParamDef { key: "keep", ..KEEP },
    ParamDef { key: "threshold", ..THRESHOLD },
    ParamDef { key: "quantum", ..QUANTUM },
    ParamDef { key: "unit", ..GROW_UNIT },
];

/// `lru`.
pub static DEF: PolicyDef = PolicyDef {
    name: "lru",
    aliases: &[],
    presets: &[],
    summary: "Best fit whose idle ranges go back least recently used first, as many as needed",
    rules: "Requests are served as by `best-fit`.\n\
            A range is idle from the free that emptied it until a block in it is used again; the one that is idle longest was \
            used longest ago.\n\
            If the device is full, pending frees are waited for, then idle ranges are given back, the longest idle first, \
            until the device has free what is needed; `best-fit` gives back all.\n\
            With `keep`, every free that leaves more than so many bytes idle gives ranges back until it is so.\n\
            With `threshold`, idle ranges are given back while more than this share of the device is reserved, after a free \
            and before memory is taken.",
    source: "the project's own: the order of P. J. Denning's least recently used rule (The working set model for program \
             behavior, CACM 1968), on cached ranges; the threshold as PyTorch's garbage_collection_threshold",
    checked_against: "a linear scan (index), naive judges (heap and idle list)",
    params: PARAMS,
    refuses: &[OomRule::CacheReleased, OomRule::NothingFits, OomRule::DeviceLacks],
    version: no_version,
    check,
    build: |p, env| {
        let round = Quantum(p.bytes("quantum"));
        let grow = Exact(p.bytes("unit"));
        let reclaim = LeastRecentlyUsed {
            keep: p.bytes_if_set("keep"),
            threshold: p.float_if_set("threshold"),
        };
        Ok(Box::new(Caching::new(round, BestFit::default(), grow, reclaim, env)))
    },
};

fn check(params: &Params, _: &BuildEnv) -> Vec<Warning> {
    let nothing_kept = params.bytes_if_set("keep") == Some(0) && params.given("threshold");
    let text = "`threshold` is without effect: with `keep:0` no range stays idle";
    nothing_kept.then(|| Warning(text.into())).into_iter().collect()
}
