//! Every allocator policy, and what policies share: one spec grammar, one parameter table each, one registry.
//!
//! A policy is a file with a [`PolicyDef`] and a row in the table of `registry.rs`. It implements
//! [`poolsim_core::Policy`] directly, or composes [`caching::Caching`] from stages.
#![forbid(unsafe_code)]

pub mod arena;
pub mod best_fit;
pub mod bfc;
pub mod buddy;
pub mod bump;
pub mod caching;
pub mod compose;
pub mod counterfactual;
pub mod cub;
pub mod cuda_async;
pub mod cuda_malloc;
pub mod deferred;
pub mod divisions;
pub mod lru;
pub mod nearest;
pub mod ordered;
pub mod ort_arena;
pub mod params;
pub mod planned;
pub mod pow2;
pub mod pytorch;
pub mod regions;
pub mod registry;
pub mod rmm_arena;
pub mod rmm_binning;
pub mod rmm_pool;
pub mod scaffold;
pub mod spec;
pub mod stage;
pub mod stitch;
pub mod tlsf;

pub use divisions::Divisions;
pub use params::{Effect, ParamDef, ParamDefault, ParamKind, ParamValue, Params};
pub use registry::{BuildEnv, Built, OomRule, PolicyDef, Preset, Registry, Resolved, Warning};
pub use spec::{PolicySpec, SpecValue};
