//! The registry entry: parameters, rules in short, warnings.

use super::{Config, Pytorch};
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind, Params};
use crate::registry::{BuildEnv, OomRule, PolicyDef, Preset, Warning};
use poolsim_core::ConfigError;
use poolsim_core::units::MIB;
use std::ops::Bound;

/// The version of PyTorch whose rules these are.
pub const VERSION: &str = "pytorch 2.11";

const HOST_ONLY: Effect = Effect::NoEffect("it concerns pinned host memory only");

const fn row(
    key: &'static str,
    kind: ParamKind,
    default: ParamDefault,
    unit: &'static str,
    doc: &'static str,
) -> ParamDef {
    ParamDef { key, kind, default, unit, doc, effect: Effect::Simulated }
}

static PARAMS: &[ParamDef] = &[
    ParamDef {
        effect: Effect::Selects(&[("cudaMallocAsync", "cuda-async")]),
        ..row(
            "backend",
            ParamKind::Choice(&["native", "cudaMallocAsync"]),
            ParamDefault::Is("native"),
            "",
            "Which allocator PyTorch uses; cudaMallocAsync is the policy `cuda-async`.",
        )
    },
    row(
        "expandable_segments",
        ParamKind::Bool,
        ParamDefault::Is("False"),
        "",
        "One growing segment for each pool and stream, mapped page by page, instead of one cudaMalloc for each need.",
    ),
    row(
        "max_split_size_mb",
        ParamKind::MiB { min: 11 },
        ParamDefault::Unset("unlimited"),
        "MiB",
        "Blocks of this size and more are never split, and serve only requests of this size and more. At least large_segment_size_mb.",
    ),
    row(
        "max_non_split_rounding_mb",
        ParamKind::MiB { min: 11 },
        ParamDefault::Unset("large_segment_size_mb"),
        "MiB",
        "How much larger than its request a block above max_split_size_mb may be. At least large_segment_size_mb.",
    ),
    row(
        "roundup_power2_divisions",
        ParamKind::Divisions,
        ParamDefault::Unset("none: sizes are rounded to 512 B"),
        "",
        "Requests are rounded up to one of so many steps between powers of two; one number, or a list by size in MiB.",
    ),
    row(
        "garbage_collection_threshold",
        ParamKind::Float { min: Bound::Excluded(0.0), max: Bound::Excluded(1.0) },
        ParamDefault::Unset("off"),
        "share of the memory limit",
        "When more than this share of the limit is held, unused cached blocks are freed before a new segment is taken. Needs a memory fraction below 1.",
    ),
    row(
        "large_segment_size_mb",
        ParamKind::MiB { min: 11 },
        ParamDefault::Is("20"),
        "MiB",
        "Segment for requests of 1 to 10 MiB, and page of large expandable segments.",
    ),
    row(
        "per_process_memory_fraction",
        ParamKind::Float { min: Bound::Included(0.0), max: Bound::Included(1.0) },
        ParamDefault::Is("1"),
        "share of device memory",
        "The most that the process may take from the device; 1 means no limit.",
    ),
    ParamDef {
        effect: Effect::NoEffect("it only lets other threads in while the driver works"),
        ..row(
            "release_lock_on_cudamalloc",
            ParamKind::Bool,
            ParamDefault::Is("False"),
            "",
            "Drops the allocator's lock during cudaMalloc.",
        )
    },
    ParamDef {
        effect: Effect::NoEffect("a trace says when each free was complete"),
        ..row(
            "graph_capture_record_stream_reuse",
            ParamKind::Bool,
            ParamDefault::Is("False"),
            "",
            "Reuses shared blocks during a graph capture once that is safe.",
        )
    },
    ParamDef {
        effect: HOST_ONLY,
        ..row(
            "pinned_use_cuda_host_register",
            ParamKind::Bool,
            ParamDefault::Is("False"),
            "",
            "Pins host memory with cudaHostRegister.",
        )
    },
    ParamDef {
        effect: HOST_ONLY,
        ..row(
            "pinned_num_register_threads",
            ParamKind::UInt { min: 1, max: 128 },
            ParamDefault::Is("1"),
            "threads",
            "Threads that pin host memory.",
        )
    },
    ParamDef {
        effect: HOST_ONLY,
        ..row(
            "pinned_use_background_threads",
            ParamKind::Bool,
            ParamDefault::Is("False"),
            "",
            "Processes host memory events in the background.",
        )
    },
    ParamDef {
        effect: HOST_ONLY,
        ..row(
            "pinned_reserve_segment_size_mb",
            ParamKind::MiB { min: 1 },
            ParamDefault::Unset("none"),
            "MiB",
            "Pinned host memory set aside at the start.",
        )
    },
];

/// PyTorch's native allocator in the registry.
pub static DEF: PolicyDef = PolicyDef {
    name: "pytorch",
    aliases: &["native"],
    presets: &[
        Preset {
            name: "expandable",
            items: "expandable_segments:True",
            summary: "PyTorch with expandable segments",
        },
        Preset {
            name: "max-split",
            items: "max_split_size_mb:128",
            summary: "PyTorch with max_split_size_mb:128, the advice that is most often copied",
        },
    ],
    summary: "PyTorch's CUDA caching allocator (native backend), decision for decision",
    rules: "\
Requests are rounded to 512 B (or to power-of-two divisions); up to 1 MiB they use the small pool, else the large one.
Free blocks are kept by stream; the smallest that fits is used, among equals the one at the lowest address, and split.
A miss takes a new segment: 2 MiB (small), 20 MiB (1 to 10 MiB), else the size rounded to 2 MiB; or maps pages.
No memory: release oversize blocks (max_split_size_mb), then release everything cached and try again, then OOM.
Frees merge with free neighbours; a block that other streams use waits for their fences first.
Private pools (MemPools, CUDA graphs) have free lists of their own.",
    source: "c10/cuda/CUDACachingAllocator.cpp, c10/core/AllocatorConfig.cpp of PyTorch 2.11",
    checked_against: "recordings of torch 2.11.0+cu130 on an H200, entry for entry: `poolsim verify` repeats it on any snapshot",
    params: PARAMS,
    refuses: &[OomRule::CacheReleased],
    version: |_| VERSION.into(),
    check,
    build: |params, env| {
        let config = Config::from_params(params)?;
        Ok(Box::new(Pytorch::new(&config, &env.caps, env.memory_fraction)))
    },
};

impl Config {
    /// The settings that a spec gives. Fails where two of them contradict each other.
    pub fn from_params(params: &Params) -> Result<Config, ConfigError> {
        let large_segment_size = params.bytes("large_segment_size_mb");
        let max_split_size = params.bytes_if_set("max_split_size_mb");
        let rounding = params.bytes_if_set("max_non_split_rounding_mb");
        for (key, value) in
            [("max_split_size_mb", max_split_size), ("max_non_split_rounding_mb", rounding)]
        {
            if let Some(n) = value.filter(|&n| n < large_segment_size) {
                return Err(ConfigError(format!(
                    "`pytorch`: `{key}:{}` is below large_segment_size_mb ({}); PyTorch refuses that. Use {} or more",
                    n / MIB,
                    large_segment_size / MIB,
                    large_segment_size / MIB
                )));
            }
        }
        let divisions: [u32; 16] = match params.get("roundup_power2_divisions") {
            None => [0; 16],
            Some(_) => {
                let buckets = params.divisions("roundup_power2_divisions").buckets();
                // Above 2^31 a step would be below 512 bytes for every possible size; the rules then round to 512.
                buckets.map(|n| u32::try_from(n).unwrap_or(0))
            }
        };
        Ok(Config {
            large_segment_size,
            max_split_size,
            max_non_split_rounding: rounding.unwrap_or(large_segment_size),
            divisions,
            rounds_to_divisions: divisions.iter().any(|&d| d > 1),
            gc_threshold: params.float_if_set("garbage_collection_threshold").unwrap_or(0.0),
            expandable: params.bool("expandable_segments"),
            memory_fraction: params.float("per_process_memory_fraction"),
            ..Config::default()
        })
    }
}

/// Settings that do nothing, or do harm, as combined.
fn check(params: &Params, env: &BuildEnv) -> Vec<Warning> {
    let Ok(config) = Config::from_params(params) else { return Vec::new() };
    let fraction = env.memory_fraction.unwrap_or(config.memory_fraction);
    let mut warnings = Vec::new();
    let mut warn = |text: &str| warnings.push(Warning(text.into()));
    if config.gc_threshold > 0.0 && fraction >= 1.0 {
        warn(
            "garbage_collection_threshold does nothing without a memory fraction below 1 (torch.cuda.set_per_process_memory_fraction, \
             or per_process_memory_fraction in the settings)",
        );
    }
    if config.gc_threshold > 0.0 && config.expandable {
        warn(
            "garbage_collection_threshold never frees expandable segments; with expandable_segments:True it does nothing",
        );
    }
    if config.max_split_size.is_some() && config.expandable {
        warn(
            "max_split_size_mb with expandable_segments:True makes memory grow: free blocks above the limit are refused to smaller \
             requests and new pages are mapped instead",
        );
    }
    if params.given("max_non_split_rounding_mb") && config.max_split_size.is_none() {
        warn("max_non_split_rounding_mb does nothing without max_split_size_mb");
    }
    if params.given("roundup_power2_divisions") && !config.rounds_to_divisions {
        warn("roundup_power2_divisions of 0 or 1 rounds nothing");
    }
    if config.expandable && config.large_segment_size % (2 * MIB) != 0 {
        warn(
            "an odd large_segment_size_mb is no multiple of the driver's 2 MiB pages; mapping is expected to fail with expandable_segments:True",
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use poolsim_core::DeviceCaps;

    fn config(spec: &str) -> Result<Config, ConfigError> {
        let spec = spec.parse()?;
        Config::from_params(&Registry::builtin().resolve(&spec)?.params)
    }

    fn env(fraction: Option<f64>) -> BuildEnv {
        let caps = DeviceCaps {
            name: "test".into(),
            total: 80 << 30,
            granule: 2 * MIB,
            range_align: 2 * MIB,
            paged: true,
        };
        BuildEnv { caps, memory_fraction: fraction }
    }

    fn warnings(spec: &str, fraction: Option<f64>) -> Vec<Warning> {
        let spec = spec.parse().expect("a legal spec");
        Registry::builtin().resolve(&spec).expect("a known spec").warnings(&env(fraction))
    }

    #[test]
    fn settings_of_pytorch_are_read_verbatim() {
        let c = config("max_split_size_mb:128, garbage_collection_threshold:0.8").unwrap();
        assert_eq!(c.max_split_size, Some(128 * MIB));
        assert_eq!(c.gc_threshold, 0.8);
        let c =
            config("expandable_segments:True,roundup_power2_divisions:[256:1,512:2,1024:4,>:8]")
                .unwrap();
        assert!(c.expandable && c.rounds_to_divisions);
        assert_eq!(c.divisions, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]);
        let c = config("roundup_power2_divisions:[64:8,256:4,1024:4,>:1]").unwrap();
        assert_eq!(c.divisions, [8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 4, 1, 1, 1, 1, 1]);
        assert_eq!(config("large_segment_size_mb:64").unwrap().max_non_split_rounding, 64 * MIB);
        assert!(config("expandable").unwrap().expandable);
    }

    #[test]
    fn what_pytorch_refuses_is_refused() {
        assert!(config("max_split_size_mb:10").is_err());
        assert!(config("large_segment_size_mb:64,max_split_size_mb:32").is_err());
        assert!(config("garbage_collection_threshold:1.0").is_err());
        assert!(config("expandable_segments:true").is_err());
        assert!(config("roundup_power2_divisions:3").is_err());
        let unknown = config("max_split_size:128").unwrap_err().0;
        assert!(unknown.contains("max_split_size_mb"), "{unknown}");
    }

    #[test]
    fn settings_that_do_nothing_are_said_once() {
        assert!(warnings("pytorch", None).is_empty());
        assert_eq!(warnings("garbage_collection_threshold:0.8", None).len(), 1);
        assert_eq!(warnings("garbage_collection_threshold:0.8", Some(0.5)).len(), 0);
        assert_eq!(warnings("max_split_size_mb:128,expandable_segments:True", None).len(), 1);
        assert_eq!(warnings("pinned_num_register_threads:8", None).len(), 1);
    }
}
