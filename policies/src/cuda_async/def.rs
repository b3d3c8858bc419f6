//! The registry entry.

use super::{Attributes, CudaAsync, PAGE};
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind, Params};
use crate::registry::{BuildEnv, OomRule, PolicyDef, Preset, Warning};
use poolsim_core::{ConfigError, Policy};

/// The driver whose pool these rules reproduce.
pub const VERSION: &str = "cuda driver 580.159.04 (CUDA 13.0), measured on an H200";

const fn attribute(key: &'static str, doc: &'static str) -> ParamDef {
    ParamDef {
        key,
        kind: ParamKind::Bool,
        default: ParamDefault::Is("True"),
        unit: "",
        doc,
        effect: Effect::Simulated,
    }
}

static PARAMS: &[ParamDef] = &[
    ParamDef {
        key: "release_threshold",
        kind: ParamKind::Bytes { min: 0, multiple_of: 1 },
        default: ParamDefault::Unset("unlimited, as PyTorch sets it"),
        unit: "bytes",
        doc: "Host waits give free pages back while more than this is reserved. CUDA's own default is 0.",
        effect: Effect::Simulated,
    },
    ParamDef {
        key: "max_size",
        kind: ParamKind::Bytes { min: 1, multiple_of: 1 },
        default: ParamDefault::Unset("unlimited"),
        unit: "bytes",
        doc: "The most that the pool reserves, rounded up to pages of 32 MiB.",
        effect: Effect::Simulated,
    },
    attribute(
        "reuse_follow_event_dependencies",
        "A stream that waits for an event may reuse what was freed before it.",
    ),
    attribute(
        "reuse_allow_opportunistic",
        "Frees of other streams may be reused once the GPU has passed them.",
    ),
    attribute(
        "reuse_allow_internal_dependencies",
        "If there is no memory left, a stream may be made to wait for another stream's free.",
    ),
];

/// `cuda-async`.
pub static DEF: PolicyDef = PolicyDef {
    name: "cuda-async",
    aliases: &[],
    presets: &[Preset {
        name: "cuda-async-default",
        items: "release_threshold:0",
        summary: "CUDA's default pool with the release threshold that it starts with",
    }],
    summary: "The driver's stream-ordered pool (cudaMallocAsync), as PyTorch's backend:cudaMallocAsync uses it",
    rules: "A request is rounded up to a multiple of 512 bytes; blocks are cut at their low end.\n\
            The pool has one address range of twice the device's memory, backed by pages of 32 MiB.\n\
            A free goes to the list of its stream and merges with neighbours there, finished or not.\n\
            A request takes the best fit (the oldest insertion among equals) of its own stream's list; else of the \
            common list, blocks without unbacked pages only; else a free of another stream that is ordered before \
            it by events or that the GPU has passed: the best fit of each list, or the oldest that fits.\n\
            Else all finished frees move to the common list, newest first, and the best fit there is taken, unbacked \
            pages or not. Missing pages are moved from wherever the common list has wholly free ones, highest first; \
            the rest are new.\n\
            Host waits move what is finished to the common list and give wholly free pages back, highest first, \
            while more than `release_threshold` is reserved. empty_cache waits for the device and gives all of them \
            back.\n\
            If no page is left, a stream is made to wait for another stream's free; else the request fails, and keeps \
            the pages that it got.\n\
            A block that other streams used is freed on a stream of its own behind them, as PyTorch does; while one of those \
            frees waits, none of them counts as finished. A memory \
            fraction limits the bytes that the program holds, not those reserved. Private pools share the one pool.\n\
            Without word of work in flight, every free is finished by the next request.",
    source: "inferred from a real pool's answers, since the driver does not document it; PyTorch's part from \
             CUDAMallocAsyncAllocator.cpp",
    checked_against: "pointers and reserved bytes of a real pool on an H200 after each call: recorded logs of \
                      training jobs and random requests, and probe programs with work in flight",
    params: PARAMS,
    refuses: &[OomRule::PageLacks, OomRule::FractionOfRequests],
    version: |_| VERSION.into(),
    check: warnings,
    build,
};

fn build(params: &Params, env: &BuildEnv) -> Result<Box<dyn Policy>, ConfigError> {
    if !env.caps.paged || !PAGE.is_multiple_of(env.caps.granule) {
        return Err(ConfigError(format!(
            "`cuda-async` needs a device that maps pages of 32 MiB; {} {}",
            env.caps.name,
            if env.caps.paged {
                format!("maps multiples of {} bytes", env.caps.granule)
            } else {
                "maps no pages".into()
            }
        )));
    }
    let attributes = Attributes {
        release_threshold: params.bytes_if_set("release_threshold"),
        max_size: params.bytes_if_set("max_size"),
        follow_event_dependencies: params.bool("reuse_follow_event_dependencies"),
        opportunistic: params.bool("reuse_allow_opportunistic"),
        internal_dependencies: params.bool("reuse_allow_internal_dependencies"),
    };
    Ok(Box::new(CudaAsync::new(attributes, env)))
}

fn warnings(_: &Params, env: &BuildEnv) -> Vec<Warning> {
    let fraction = env.memory_fraction.filter(|&x| x < 1.0);
    fraction
        .map(|x| {
            Warning(format!(
                "the memory fraction {x} limits the bytes that the program holds, as in PyTorch; the pool may reserve more"
            ))
        })
        .into_iter()
        .collect()
}
