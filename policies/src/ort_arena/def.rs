//! The registry entry.

use super::{OrtArena, Settings};
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind, Params};
use crate::regions::{ALIGN, Rules};
use crate::registry::{BuildEnv, PolicyDef, Preset, Warning};
use poolsim_core::Bytes;
use poolsim_core::units::KIB;

const fn bytes(key: &'static str, default: &'static str, doc: &'static str) -> ParamDef {
    ParamDef {
        key,
        kind: ParamKind::Bytes { min: ALIGN, multiple_of: ALIGN },
        default: ParamDefault::Is(default),
        unit: "bytes",
        doc,
        effect: Effect::Simulated,
    }
}

const MAX_MEM: ParamDef = ParamDef {
    key: "max_mem",
    kind: ParamKind::Bytes { min: 1, multiple_of: 1 },
    default: ParamDefault::Unset("unlimited"),
    unit: "bytes",
    doc: "What all regions may hold together (gpu_mem_limit of the CUDA provider).",
    effect: Effect::Simulated,
};

const STRATEGY: ParamDef = ParamDef {
    key: "arena_extend_strategy",
    kind: ParamKind::Choice(&["kNextPowerOfTwo", "kSameAsRequested"]),
    default: ParamDefault::Is("kNextPowerOfTwo"),
    unit: "",
    doc: "Whether regions double, or are what the request needs.",
    effect: Effect::Simulated,
};

const INITIAL: ParamDef = bytes(
    "initial_chunk_size_bytes",
    "1MiB",
    "The first region, where regions double, unless the request is larger.",
);

const MAX_DEAD: ParamDef = ParamDef {
    kind: ParamKind::Bytes { min: 1, multiple_of: 1 },
    ..bytes(
        "max_dead_bytes_per_chunk",
        "128MiB",
        "A chunk that is this much longer than the request is split, even if it is not twice as long.",
    )
};

const GROWTH: ParamDef = bytes(
    "initial_growth_chunk_size_bytes",
    "2MiB",
    "The next region after the arena was shrunk, where regions double.",
);

const DOUBLES_TO: ParamDef = bytes(
    "max_power_of_two_extend_bytes",
    "1GiB",
    "The size at which regions stop doubling by themselves; a larger request still doubles them until it fits.",
);

const SHRINKAGE: ParamDef = ParamDef {
    key: "enable_memory_arena_shrinkage",
    kind: ParamKind::Bool,
    default: ParamDefault::Is("False"),
    unit: "",
    doc: "Whether every run's end shrinks the arena (memory.enable_memory_arena_shrinkage). A run ends where the host waits for \
          the device.",
    effect: Effect::Simulated,
};

/// `ort-arena`.
pub static DEF: PolicyDef = PolicyDef {
    name: "ort-arena",
    aliases: &[],
    presets: &[Preset {
        name: "ort-same-as-requested",
        items: "arena_extend_strategy:kSameAsRequested",
        summary: "Regions of exactly what each request needs",
    }],
    summary: "ONNX Runtime's arena: best fit with coalescing over regions that double, or are as requested",
    rules: "A request is rounded up to a multiple of 256 bytes and served by the smallest free chunk of its stream's or of nobody's \
            that is large enough, the lowest address among equals.\n\
            The chunk is split if it is at least twice as large or if `max_dead_bytes_per_chunk` or more would be left over; else \
            the request gets all of it.\n\
            If no chunk serves, a region is taken from the device, which is nobody's at first. Under `kNextPowerOfTwo` it is \
            `initial_chunk_size_bytes`, each further one twice the one before it, up to `max_power_of_two_extend_bytes`; it doubles on \
            until the request fits, for good. Under `kSameAsRequested` it is the rounded request. Never past `max_mem`. If the \
            device refuses, nine tenths of it, and so on down to the request or 8 KiB.\n\
            A freed chunk stays its stream's, and merges with free neighbours of the same stream and region. When the host waits for \
            a stream, its free chunks become nobody's and merge again; ONNX Runtime does so at a run's end. One chunk that other \
            streams still use when it is freed waits for them.\n\
            Shrinking, by empty_cache or at a run's end (`enable_memory_arena_shrinkage`), gives back all regions without a chunk \
            in use; the next one is `initial_growth_chunk_size_bytes`. Under `kNextPowerOfTwo` the first region stays. If the program \
            holds nothing, empty_cache stands for the end of the session: all goes back.\n\
            Waits between streams are not in a trace, so the arena's use of them to take another stream's chunk early is left out; so \
            is memory reserved for initializers, which a trace cannot tell from other memory.",
    source: "ONNX Runtime, onnxruntime/core/framework/bfc_arena.cc and .h, stream_handles.h; include/onnxruntime/core/session/\
             onnxruntime_run_options_config_keys.h",
    checked_against: "recordings of ONNX Runtime 1.32.0's arena on the host, which is the same class: every pointer, every byte held, \
                      every refusal and its own statistics, on one stream; its own unit tests",
    params: &[MAX_MEM, STRATEGY, INITIAL, MAX_DEAD, GROWTH, DOUBLES_TO, SHRINKAGE],
    // Other streams' chunks may fit, and a tenth less may jump over a size that the device has.
    refuses: &[],
    version: |_| "ONNX Runtime 1.32.0".into(),
    check,
    build: |p, env| Ok(Box::new(OrtArena::new(settings(p, env), env))),
};

fn is_exact(params: &Params) -> bool {
    params.choice(STRATEGY.key) == "kSameAsRequested"
}

fn settings(params: &Params, env: &BuildEnv) -> Settings {
    let own = params.bytes_if_set(MAX_MEM.key).unwrap_or(Bytes::MAX);
    let allowed = env.memory_fraction.map_or(Bytes::MAX, |x| (env.caps.total as f64 * x) as Bytes);
    let limit = own.min(allowed);
    Settings {
        rules: Rules {
            limit,
            first: limit.min(params.bytes(INITIAL.key)).next_multiple_of(ALIGN),
            doubles_to: params.bytes(DOUBLES_TO.key),
            doubles_when_refused: true,
            exact: is_exact(params),
            least_retry: 8 * KIB,
        },
        max_dead: params.bytes(MAX_DEAD.key),
        after_shrink: params.bytes(GROWTH.key),
        shrinks_after_runs: params.bool(SHRINKAGE.key),
    }
}

/// Sizes of regions that do not double do nothing.
fn check(params: &Params, _: &BuildEnv) -> Vec<Warning> {
    let sizes = [INITIAL.key, GROWTH.key, DOUBLES_TO.key];
    let idle = sizes.into_iter().filter(|key| is_exact(params) && params.given(key));
    idle.map(|key| Warning(format!("`{key}` is without effect: regions are as requested")))
        .collect()
}
