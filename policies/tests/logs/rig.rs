//! A policy on a device, driven by hand.

use super::{build, request};
use poolsim_core::device::DeviceOp;
use poolsim_core::{
    AllocError, BlockId, Bytes, DevAddr, HeapImage, OomCause, Policy, ReplayTarget,
};
use poolsim_sim::{DeviceProfile, SimConfig, SimDevice};

pub struct Rig<D = SimDevice> {
    pub policy: Box<dyn Policy>,
    pub dev: D,
    base: Option<DevAddr>,
}

/// An H200.
pub fn h200() -> SimDevice {
    SimDevice::new(SimConfig::new(DeviceProfile::h200()))
}

/// A policy on an H200.
pub fn roomy(spec: &str) -> Rig {
    Rig::new(spec, h200())
}

impl<D: ReplayTarget> Rig<D> {
    pub fn new(spec: &str, dev: D) -> Self {
        Rig { policy: build(spec).policy, dev, base: None }
    }

    /// Offset of the grant from the first one's address, and its block.
    pub fn alloc(&mut self, size: Bytes, stream: u16) -> (i64, BlockId) {
        let grant = self.policy.malloc(&mut self.dev, request(size, stream, 0)).expect("it fits");
        let base = *self.base.get_or_insert(grant.addr);
        (grant.addr as i64 - base as i64, grant.block)
    }

    pub fn at(&mut self, size: Bytes, stream: u16) -> Bytes {
        self.alloc(size, stream).0.try_into().expect("above the first grant")
    }

    pub fn block(&mut self, size: Bytes, stream: u16) -> BlockId {
        self.alloc(size, stream).1
    }

    pub fn refused(&mut self, size: Bytes) -> OomCause {
        match self.policy.malloc(&mut self.dev, request(size, 0, 0)) {
            Err(AllocError::OutOfMemory { cause, .. }) => cause,
            other => panic!("{other:?}"),
        }
    }

    pub fn free(&mut self, block: BlockId) {
        self.policy.free(&mut self.dev, block);
    }

    pub fn empty_cache(&mut self) -> Bytes {
        self.policy.empty_cache(&mut self.dev)
    }

    pub fn held(&self) -> Bytes {
        self.policy.stats().reserved.current
    }

    pub fn calls(&self, op: DeviceOp) -> u64 {
        self.dev.ledger().calls[op as usize]
    }

    /// A statistic in the original's words.
    pub fn native(&self, name: &str) -> i64 {
        let native = self.policy.native_stats();
        native.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no statistic {name}")).1
    }

    pub fn image(&self) -> HeapImage {
        let mut image = HeapImage::default();
        self.policy.visit(&mut image);
        image
    }
}
