//! A policy on a simulated device, driven by hand.
#![allow(dead_code, missing_docs)]

use poolsim_core::record::Decision;
use poolsim_core::units::{MIB, PoolId, Slot, StreamId};
use poolsim_core::{Action, AllocError, AllocRequest, Bytes, Device, Grant, Policy, ReplayTarget};
use poolsim_policies::{BuildEnv, Registry};
use poolsim_sim::device::{DeviceProfile, SimConfig, SimDevice};
use std::collections::BTreeMap;

pub struct Bench {
    pub dev: SimDevice,
    pub policy: Box<dyn Policy>,
    live: BTreeMap<String, (Grant, StreamId, Slot)>,
    next: u32,
}

impl Bench {
    /// A policy on an H200 of which `capacity` bytes are there.
    pub fn new(spec: &str, capacity: Option<Bytes>, fraction: Option<f64>) -> Bench {
        let mut config = SimConfig::new(DeviceProfile::h200());
        config.keep_log = true;
        config.capacity = capacity;
        if let Some(total) = capacity.filter(|_| fraction.is_some()) {
            config.caps.total = total;
        }
        let env = BuildEnv { caps: config.caps.clone(), memory_fraction: fraction };
        let spec = spec.parse().expect("a legal spec");
        let policy = Registry::builtin().build(&spec, &env).expect("a known spec").policy;
        Bench { dev: SimDevice::new(config), policy, live: BTreeMap::new(), next: 0 }
    }

    pub fn try_alloc(
        &mut self,
        name: &str,
        size: Bytes,
        stream: u16,
        pool: u16,
    ) -> Result<Grant, AllocError> {
        let slot = Slot(self.next);
        self.next += 1;
        let stream = StreamId(stream);
        let req = AllocRequest { size, stream, pool: PoolId(pool), slot };
        let grant = self.policy.malloc(&mut self.dev, req)?;
        self.dev.note(Action::Alloc, grant.addr, size, stream);
        assert!(self.live.insert(name.into(), (grant, stream, slot)).is_none(), "{name} is live");
        Ok(grant)
    }

    pub fn alloc(&mut self, name: &str, size: Bytes) -> Grant {
        self.try_alloc(name, size, 0, 0).expect("there is room")
    }

    /// `n` blocks of `size`, named by their number.
    pub fn alloc_all(&mut self, n: u32, size: Bytes) {
        for i in 0..n {
            self.alloc(&i.to_string(), size);
        }
    }

    pub fn free(&mut self, name: &str) {
        let (grant, ..) = self.live.remove(name).expect("the name is live");
        self.policy.free(&mut self.dev, grant.block);
    }

    /// Frees a block whose other streams are done only at `complete` of the returned slot.
    pub fn free_held(&mut self, name: &str) -> Slot {
        let (grant, _, slot) = self.live.remove(name).expect("the name is live");
        self.dev.hold(slot);
        self.policy.free(&mut self.dev, grant.block);
        self.dev.end_hold();
        slot
    }

    pub fn use_on(&mut self, name: &str, stream: u16) {
        let block = self.live[name].0.block;
        self.policy.record_stream(&mut self.dev, block, StreamId(stream));
    }

    pub fn free_all(&mut self) {
        for name in self.live.keys().cloned().collect::<Vec<_>>() {
            self.free(&name);
        }
    }

    pub fn reserved_mib(&self) -> u64 {
        let reserved = self.policy.stats().reserved.current;
        assert_eq!(reserved % MIB, 0, "reserved bytes are whole MiB");
        reserved / MIB
    }

    pub fn native(&self, name: &str) -> i64 {
        let stats = self.policy.native_stats();
        stats.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no statistic {name}")).1
    }

    /// What was noted since the last call, without the blocks handed out.
    pub fn device_log(&mut self) -> Vec<(Action, u64, u64)> {
        let log: Vec<Decision> = self.dev.take_log();
        log.iter()
            .filter(|d| d.action != Action::Alloc)
            .map(|d| (d.action, d.addr, d.size))
            .collect()
    }
}
