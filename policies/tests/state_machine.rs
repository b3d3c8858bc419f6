//! Does a policy survive anything? Random operations drive it directly, without engine or judge, beside a model that is
//! just the set of intervals in use. Failing lists shrink by leaving operations out.

mod common;

use common::order::StreamOrder;
use common::traces::{self, Op};
use common::{compositions, device, env, policy_specs, registry};
use poolsim_core::units::{GIB, MIB};
use poolsim_core::{
    AllocError, AllocRequest, BlockId, Bytes, DevAddr, Device, DeviceOp, Event, EventKind, Policy,
    PoolId, PoolOp, ReplayTarget, Slot, StreamId, SyncScope,
};
use poolsim_policies::PolicySpec;
use poolsim_sim::SimDevice;
use poolsim_sim::adapt::Checked;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
struct InUse {
    size: Bytes,
    requested: Bytes,
    slot: Slot,
    stream: StreamId,
    /// Freed, while another stream is not known to be done.
    pending: bool,
}

/// What must be true, whatever the policy does.
#[derive(Default)]
struct Model {
    in_use: BTreeMap<DevAddr, InUse>,
    order: StreamOrder,
    waits: u64,
}

impl Model {
    fn granted(&mut self, addr: DevAddr, new: InUse) {
        let before = self.in_use.range(..addr).next_back().map_or(0, |(a, u)| a + u.size);
        let after = self.in_use.range(addr..).next().map_or(DevAddr::MAX, |(&a, _)| a);
        assert!(
            before <= addr && addr + new.size <= after,
            "{addr:#x} {new:?} overlaps: {:x?}",
            self.in_use
        );
        assert!(new.size >= new.requested && addr.is_multiple_of(256), "{addr:#x} {new:?}");
        if let Err(what) = self.order.granted(addr, new.size, new.stream) {
            panic!("{what}");
        }
        self.in_use.insert(addr, new);
    }

    fn end(&mut self, slot: Slot) {
        for (addr, u) in self.in_use.extract_if(.., |_, u| u.slot == slot) {
            if !u.pending {
                self.order.freed(addr, u.size, u.stream);
            }
        }
    }

    fn suspend(&mut self, slot: Slot) {
        for (&addr, u) in self.in_use.iter_mut().filter(|(_, u)| u.slot == slot) {
            u.pending = true;
            self.order.freed(addr, u.size, u.stream);
        }
    }

    /// A wait, of the host or between streams, the policy's own ones included, may end every pending use.
    fn after(&mut self, device: &dyn ReplayTarget) {
        self.order.see(device.ledger());
        let calls = |op: DeviceOp| device.ledger().calls[op as usize];
        let waits = calls(DeviceOp::Synchronize) + calls(DeviceOp::Wait);
        if waits != self.waits {
            self.in_use.retain(|_, u| !u.pending);
        }
        self.waits = waits;
    }

    fn agrees(&self, policy: &dyn Policy, device: &Checked<SimDevice>) {
        let s = policy.stats();
        let held = || self.in_use.values().filter(|u| !u.pending);
        let allocated: Bytes = held().map(|u| u.size).sum();
        let requested: Bytes = held().map(|u| u.requested).sum();
        assert_eq!(s.allocated.current, allocated, "allocated");
        assert!(s.requested.current >= requested, "requested");
        assert!(s.requested.current <= s.active.current && allocated <= s.active.current, "{s:?}");
        assert!(s.active.current <= s.reserved.current, "{s:?}");
        assert_eq!(s.reserved.current, device.used_bytes(), "reserved");
        // The last granule of a range may be used in part.
        assert!(device.free_bytes() + device.used_bytes() <= device.caps().total);
        for gauge in [s.requested, s.allocated, s.active, s.reserved] {
            assert!(gauge.peak >= gauge.current, "{s:?}");
        }
    }
}

/// A policy, its device, and the blocks that are held by slot.
struct Machine {
    policy: Box<dyn Policy>,
    device: Checked<SimDevice>,
    blocks: BTreeMap<Slot, BlockId>,
    used: Vec<Slot>,
    open: Vec<PoolId>,
    model: Model,
}

impl Machine {
    fn new(spec: &PolicySpec, total: Bytes) -> Machine {
        let built = registry().build(spec, &env(total));
        Machine {
            policy: built.unwrap_or_else(|e| panic!("{spec}: {e}")).policy,
            device: Checked::new(device(total)),
            blocks: BTreeMap::new(),
            used: Vec::new(),
            open: Vec::new(),
            model: Model::default(),
        }
    }

    fn malloc(&mut self, e: &Event) {
        let req = AllocRequest { size: e.size, stream: e.stream, pool: e.pool(), slot: e.slot };
        match self.policy.malloc(&mut self.device, req) {
            Ok(grant) => {
                self.model.after(&self.device);
                let (size, requested, slot) = (grant.size, e.size, e.slot);
                self.model.granted(
                    grant.addr,
                    InUse { size, requested, slot, stream: e.stream, pending: false },
                );
                self.blocks.insert(e.slot, grant.block);
            }
            Err(AllocError::OutOfMemory { requested, rounded, .. }) => {
                assert!(requested == e.size && rounded >= requested);
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn free(&mut self, slot: Slot, later: bool) {
        let Some(block) = self.blocks.remove(&slot) else { return };
        if !later {
            self.policy.free(&mut self.device, block);
            return self.model.end(slot);
        }
        if !self.used.contains(&slot) {
            self.policy.record_stream(&mut self.device, block, StreamId::FOREIGN);
        }
        self.device.hold(slot);
        self.policy.free(&mut self.device, block);
        self.device.end_hold();
        self.model.suspend(slot);
    }

    fn pool(&mut self, pool: PoolId, op: PoolOp) {
        match op {
            PoolOp::Open => self.open.push(pool),
            PoolOp::Close => self.open.retain(|&p| p != pool),
            _ => {}
        }
        self.policy.pool(&mut self.device, pool, op);
    }

    fn synchronize(&mut self, stream: Option<StreamId>) {
        let scope = stream.map_or(SyncScope::Device, SyncScope::Stream);
        self.device.synchronize(scope).expect("the device waits");
        self.policy.synchronized(&mut self.device, stream);
    }

    fn apply(&mut self, e: &Event) {
        self.device.advance_to(e.at);
        match e.kind() {
            EventKind::Alloc | EventKind::Preexisting => self.malloc(e),
            EventKind::AllocRefused => {}
            EventKind::Free => self.free(e.slot, false),
            EventKind::FreeLater => self.free(e.slot, true),
            EventKind::FreeDone => {
                self.device.complete(e.slot);
                if !self.blocks.contains_key(&e.slot) {
                    self.model.end(e.slot);
                }
            }
            EventKind::Use => {
                if let Some(&block) = self.blocks.get(&e.slot) {
                    self.used.push(e.slot);
                    self.policy.record_stream(&mut self.device, block, e.stream);
                }
            }
            EventKind::EmptyCache => {
                let before = self.device.used_bytes();
                let given = self.policy.empty_cache(&mut self.device);
                assert_eq!(given, before - self.device.used_bytes(), "empty_cache");
            }
            EventKind::PoolOpen => self.pool(e.pool(), PoolOp::Open),
            EventKind::PoolClose => self.pool(e.pool(), PoolOp::Close),
            EventKind::PoolDrop => self.pool(e.pool(), PoolOp::Drop),
            EventKind::PoolDestroy => self.pool(e.pool(), PoolOp::Destroy),
            EventKind::SyncStream => self.synchronize(Some(e.stream)),
            EventKind::SyncDevice => self.synchronize(None),
        }
        if !matches!(e.kind(), EventKind::Use) {
            let live = &self.blocks;
            self.used.retain(|slot| live.contains_key(slot));
        }
        self.model.after(&self.device);
        self.model.agrees(&*self.policy, &self.device);
    }

    /// Frees everything: every byte comes back.
    fn drain(mut self) {
        for pool in std::mem::take(&mut self.open) {
            self.policy.pool(&mut self.device, pool, PoolOp::Close);
        }
        for (_, block) in std::mem::take(&mut self.blocks) {
            self.policy.free(&mut self.device, block);
        }
        (1..traces::POOLS)
            .for_each(|p| self.policy.pool(&mut self.device, PoolId(p), PoolOp::Drop));
        self.policy.empty_cache(&mut self.device);
        let s = self.policy.stats();
        let left = [s.requested.current, s.allocated.current, s.active.current, s.reserved.current];
        assert_eq!((left, self.device.used_bytes()), ([0; 4], 0), "not every byte came back");
    }
}

fn run(spec: &PolicySpec, ops: &[Op], total: Bytes) {
    let mut machine = Machine::new(spec, total);
    traces::trace(ops).events.iter().for_each(|e| machine.apply(e));
    machine.drain();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_policy_breaks_the_model(
        spec in prop::sample::select(policy_specs()),
        ops in traces::any_ops(160),
        total in prop::sample::select(vec![64 * MIB, 256 * MIB, 64 * GIB]),
    ) {
        run(&spec, &ops, total);
    }

    #[test]
    fn no_composition_breaks_the_model(
        spec in prop::sample::select(compositions()),
        ops in traces::any_ops(160),
        total in prop::sample::select(vec![64 * MIB, 256 * MIB, 64 * GIB]),
    ) {
        run(&spec, &ops, total);
    }
}
