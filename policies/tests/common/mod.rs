//! What the tests of policies share: traces made of operations, devices, and the specs to try.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod breaking;
pub mod order;
#[path = "../../examples/powers.rs"]
mod powers;
pub mod traces;

use poolsim_core::units::{GIB, MIB};
use poolsim_core::{Bytes, DeviceCaps};
use poolsim_policies::{BuildEnv, Effect, ParamDef, ParamKind, PolicySpec, Registry, compose};
use poolsim_sim::{DeviceProfile, SimConfig, SimDevice};

/// A device on which every call is free, with `total` bytes, that keeps a log.
pub fn device(total: Bytes) -> SimDevice {
    let config = SimConfig::new(DeviceProfile::free_of_charge(caps(total)));
    SimDevice::new(SimConfig { keep_log: true, ..config })
}

/// What that device says of itself.
pub fn caps(total: Bytes) -> DeviceCaps {
    DeviceCaps {
        name: "test".into(),
        total: total.next_multiple_of(2 * MIB),
        granule: 2 * MIB,
        range_align: 2 * MIB,
        paged: true,
    }
}

/// More memory than any generated trace can take.
pub const ROOMY: Bytes = 4096 * GIB;

pub fn env(total: Bytes) -> BuildEnv {
    BuildEnv { caps: caps(total), memory_fraction: None }
}

/// The policies under test: all that poolsim comes with, and the example of docs/adding-a-policy.md.
pub fn registry() -> Registry {
    Registry::builtin().with(&powers::DEF)
}

/// Every registered policy: by itself, each of its presets, and each parameter at some other value.
pub fn policy_specs() -> Vec<PolicySpec> {
    let mut specs = Vec::new();
    for def in registry().defs() {
        specs.push(PolicySpec::named(def.name));
        specs.extend(def.presets.iter().map(|p| PolicySpec::named(p.name)));
        for param in def.params.iter().filter(|p| matches!(p.effect, Effect::Simulated)) {
            for value in other_values(param) {
                let spec = format!("{},{}:{value}", def.name, param.key).parse().expect("a spec");
                // A value may be out of range by itself or beside the other defaults.
                if registry().build(&spec, &env(ROOMY)).is_ok() {
                    specs.push(spec);
                }
            }
        }
    }
    specs
}

fn other_values(param: &ParamDef) -> Vec<String> {
    let texts = |values: &[&str]| values.iter().map(|v| v.to_string()).collect();
    match param.kind {
        ParamKind::Bool => texts(&["True", "False"]),
        ParamKind::UInt { min, max } => vec![min.to_string(), max.min(min + 7).to_string()],
        ParamKind::Float { .. } => texts(&["0.3", "1.5"]),
        ParamKind::MiB { min } => vec![min.to_string(), "52".into()],
        ParamKind::Bytes { min, multiple_of } => {
            vec![min.to_string(), (min + 3 * multiple_of).to_string()]
        }
        ParamKind::Choice(words) => texts(words),
        ParamKind::Divisions => texts(&["2", "[1:4,4:2,>:1]"]),
    }
}

/// Every combination of the stages at their defaults.
pub fn compositions() -> Vec<PolicySpec> {
    let mut specs = vec![String::from("compose")];
    for kind in ["round", "place", "grow", "reclaim"] {
        let names: Vec<&str> =
            compose::stages().into_iter().filter(|s| s.0 == kind).map(|s| s.1).collect();
        specs = specs
            .iter()
            .flat_map(|spec| names.iter().map(move |name| format!("{spec},{kind}:{name}")))
            .collect();
    }
    specs.iter().map(|s| s.parse().expect("a spec")).collect()
}
