//! Policies with one of their rules taken out, to measure what that rule costs. Not for specs: no such allocator exists.

use crate::pytorch::size::round_size;
use crate::pytorch::{Config, Pytorch};
use crate::registry::{BuildEnv, Resolved};
use poolsim_core::{Bytes, ConfigError, Policy};

/// A rule that can be taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Small and large requests are served from pools of their own.
    SizeClasses,
    /// Memory is taken from the device in segments larger than the request.
    SegmentGranularity,
}

/// The policy without the rule, or `None` where this cannot be said of it.
///
/// `pytorch` without size classes serves every request from its large pool, with segments (or pages) of that pool, and splits
/// blocks however small the rest is. Without segment granularity it takes a segment of exactly the rounded size; with
/// expandable segments pages of 2 MiB, the smallest that the driver maps.
///
/// # Errors
/// The policy's parameters contradict each other.
pub fn without(
    resolved: &Resolved,
    rule: Rule,
    env: &BuildEnv,
) -> Result<Option<Box<dyn Policy>>, ConfigError> {
    let Some(mut config) = pytorch(resolved)? else { return Ok(None) };
    match rule {
        Rule::SizeClasses => config.small_max = 0,
        Rule::SegmentGranularity => config.exact_segments = true,
    }
    Ok(Some(Box::new(Pytorch::new(&config, &env.caps, env.memory_fraction))))
}

/// A request as the policy rounds it, and whether it counts as small; `None` where this cannot be said of it.
///
/// # Errors
/// As [`without`].
pub fn rounded(resolved: &Resolved, size: Bytes) -> Result<Option<(Bytes, bool)>, ConfigError> {
    let config = pytorch(resolved)?;
    Ok(config.map(|config| {
        let rounded = round_size(&config, size);
        (rounded, rounded <= config.small_max)
    }))
}

fn pytorch(resolved: &Resolved) -> Result<Option<Config>, ConfigError> {
    if resolved.def.name != crate::pytorch::DEF.name {
        return Ok(None);
    }
    Config::from_params(&resolved.params).map(Some)
}
