//! Policies with one of their rules taken out, to measure what that rule costs. Not for specs: no such allocator exists.

use crate::pytorch::size::round_size;
use crate::pytorch::{Config, Pytorch};
use crate::registry::{BuildEnv, Resolved};
use poolsim_core::{
    AllocError, AllocRequest, BlockId, Bytes, ConfigError, Device, Grant, HeapVisitor, Policy,
    PoolId, PoolOp, PoolStats, StreamId,
};

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

/// The policy with its settings in force for so many requests only, after which the program resets them
/// ([`Pytorch::reset_settings`]); `None` where this cannot be said of it.
///
/// # Errors
/// As [`without`].
pub fn reset_after(
    resolved: &Resolved,
    requests: u64,
    env: &BuildEnv,
) -> Result<Option<Box<dyn Policy>>, ConfigError> {
    let Some(config) = pytorch(resolved)? else { return Ok(None) };
    let inner = Pytorch::new(&config, &env.caps, env.memory_fraction);
    Ok(Some(Box::new(ResetAfter { inner, left: Some(requests) })))
}

/// Counts requests.
struct ResetAfter {
    inner: Pytorch,
    /// Requests until the reset; `None` after it.
    left: Option<u64>,
}

impl Policy for ResetAfter {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        match self.left {
            Some(0) => {
                self.inner.reset_settings();
                self.left = None;
            }
            Some(n) => self.left = Some(n - 1),
            None => {}
        }
        self.inner.malloc(dev, req)
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        self.inner.free(dev, block);
    }

    fn record_stream(&mut self, dev: &mut dyn Device, block: BlockId, stream: StreamId) {
        self.inner.record_stream(dev, block, stream);
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        self.inner.empty_cache(dev)
    }

    fn pool(&mut self, dev: &mut dyn Device, pool: PoolId, op: PoolOp) {
        self.inner.pool(dev, pool, op);
    }

    fn synchronized(&mut self, dev: &mut dyn Device, stream: Option<StreamId>) {
        self.inner.synchronized(dev, stream);
    }

    fn stats(&self) -> &PoolStats {
        self.inner.stats()
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.inner.visit(visitor);
    }

    fn native_stats(&self) -> Vec<(String, i64)> {
        self.inner.native_stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use poolsim_core::units::{GIB, MIB};
    use poolsim_core::{DeviceCaps, Slot};
    use poolsim_sim::{DeviceProfile, SimConfig, SimDevice};

    /// What a policy reserves for 64 MiB, freed, then 40 MiB: split unless max_split_size_mb forbids it.
    fn reserved(mut policy: Box<dyn Policy>, caps: &DeviceCaps) -> Vec<Bytes> {
        let profile = DeviceProfile::free_of_charge(caps.clone());
        let mut device = SimDevice::new(SimConfig::new(profile));
        let mut seen = Vec::new();
        for size in [64 * MIB, 40 * MIB, 64 * MIB, 40 * MIB] {
            let request =
                AllocRequest { size, stream: StreamId(0), pool: PoolId::DEFAULT, slot: Slot(0) };
            let grant = policy.malloc(&mut device, request).expect("there is room");
            policy.free(&mut device, grant.block);
            seen.push(policy.stats().reserved.current / MIB);
        }
        seen
    }

    /// Before the reset it is the policy with its settings, after it the one without.
    #[test]
    fn settings_hold_until_the_reset() {
        let caps = DeviceCaps {
            name: "test".into(),
            total: GIB,
            granule: 2 * MIB,
            range_align: 2 * MIB,
            paged: true,
        };
        let env = BuildEnv { caps: caps.clone(), memory_fraction: None };
        let spec = "max_split_size_mb:50".parse().expect("a legal spec");
        let resolved = Registry::builtin().resolve(&spec).expect("a known spec");
        let with =
            |requests| reset_after(&resolved, requests, &env).expect("legal").expect("pytorch");
        // The free block of 64 MiB is oversize, and not for 40 MiB.
        assert_eq!(reserved(with(4), &caps), [64, 104, 104, 104]);
        assert_eq!(reserved(with(1), &caps), [64, 64, 64, 64]);
        assert_eq!(reserved(with(0), &caps), [64, 64, 64, 64]);
    }
}
