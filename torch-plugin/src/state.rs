//! One device's allocator.

use crate::recorder::Recorder;
use poolsim_core::record::Decision;
use poolsim_core::{
    Action, AllocError, AllocRequest, BlockId, Bytes, DevAddr, EventKind, PoolId, PoolStats,
    ReplayTarget, Slot, StreamId, Trace, TraceHeader,
};
use poolsim_policies::{BuildEnv, Resolved};
use poolsim_real_backend::Metered;
use rustc_hash::FxHashMap;

/// Tells a device that the stream behind a handle is this one from now on.
pub type Adopt<D> = fn(&D, StreamId, u64);

#[derive(Clone, Copy, Debug)]
struct Live {
    block: BlockId,
    slot: Slot,
    size: Bytes,
    stream: StreamId,
    /// Used on other streams too.
    shared: bool,
}

/// A policy on a device, what the job holds, and what it asked for.
pub struct DeviceState<D> {
    pub(crate) device: D,
    adopt: Adopt<D>,
    pub(crate) policy: Box<dyn Metered>,
    live: FxHashMap<DevAddr, Live>,
    /// Slots whose free waits for other streams, by address.
    pending: FxHashMap<DevAddr, Live>,
    streams: FxHashMap<u64, StreamId>,
    /// Handles by stream.
    handles: Vec<u64>,
    pub(crate) recorder: Recorder,
}

impl<D: ReplayTarget> DeviceState<D> {
    /// A device with nothing allocated.
    ///
    /// # Errors
    /// The policy cannot be built for this device.
    pub fn new(
        device: D,
        adopt: Adopt<D>,
        policy: &Resolved,
        memory_fraction: Option<f64>,
        records: bool,
    ) -> Result<Self, poolsim_core::ConfigError> {
        let env = BuildEnv { caps: device.caps().clone(), memory_fraction };
        let policy = policy.build(&env)?.policy;
        let mut state = DeviceState {
            device,
            adopt,
            policy: Box::new(poolsim_real_backend::Timed::new(policy)),
            live: FxHashMap::default(),
            pending: FxHashMap::default(),
            streams: FxHashMap::default(),
            handles: Vec::new(),
            recorder: Recorder::new(records),
        };
        state.stream(0);
        Ok(state)
    }

    /// Handles of the streams so far, by number. The first is the default stream.
    pub fn stream_handles(&self) -> &[u64] {
        &self.handles
    }

    /// The policy's numbers.
    pub fn stats(&self) -> &PoolStats {
        self.policy.stats()
    }

    /// What the job asked for so far.
    pub fn trace(&self, header: TraceHeader) -> Trace {
        self.recorder.trace(header)
    }

    fn stream(&mut self, handle: u64) -> StreamId {
        if let Some(&id) = self.streams.get(&handle) {
            return id;
        }
        let id = StreamId(u16::try_from(self.handles.len()).expect("fewer than 65,535 streams"));
        assert!(id != StreamId::FOREIGN, "fewer than 65,535 streams");
        self.handles.push(handle);
        self.streams.insert(handle, id);
        (self.adopt)(&self.device, id, handle);
        id
    }

    /// Serves a request; `None` if the policy refuses it.
    ///
    /// # Panics
    /// If the device fails in another way than by being full, or the policy hands memory out twice.
    pub fn malloc(&mut self, size: Bytes, handle: u64) -> Option<DevAddr> {
        let stream = self.stream(handle);
        let slot = self.recorder.slot();
        let request = AllocRequest { size, stream, pool: PoolId::DEFAULT, slot };
        let result = self.policy.malloc(&mut self.device, request);
        self.completed();
        match result {
            Ok(grant) => {
                self.recorder.add(EventKind::Alloc, slot, size, stream);
                let live = Live { block: grant.block, slot, size, stream, shared: false };
                let before = self.live.insert(grant.addr, live);
                assert!(before.is_none(), "the policy handed out {:#x} twice", grant.addr);
                Some(grant.addr)
            }
            Err(AllocError::OutOfMemory { .. }) => {
                self.recorder.add(EventKind::AllocRefused, slot, size, stream);
                self.recorder.release(slot);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Takes a block back.
    ///
    /// # Panics
    /// If nothing is allocated at this address.
    pub fn free(&mut self, addr: DevAddr) {
        let Some(live) = self.live.remove(&addr) else {
            panic!("{addr:#x} is freed but not allocated");
        };
        self.policy.free(&mut self.device, live.block);
        let at_once = !live.shared || self.is_in_log(addr);
        let kind = if at_once { EventKind::Free } else { EventKind::FreeLater };
        self.completed();
        self.recorder.add(kind, live.slot, live.size, live.stream);
        if at_once {
            self.recorder.release(live.slot);
        } else {
            self.pending.insert(addr, live);
        }
    }

    fn is_in_log(&self, addr: DevAddr) -> bool {
        self.device.log().iter().any(|d| is_completion(d) && d.addr == addr)
    }

    /// The block at `addr` is used on a further stream. Addresses that are not allocated here are none of ours.
    pub fn record_stream(&mut self, addr: DevAddr, handle: u64) -> bool {
        if !self.live.contains_key(&addr) {
            return false;
        }
        let stream = self.stream(handle);
        let live = self.live.get_mut(&addr).expect("it was there");
        if live.stream == stream {
            return true;
        }
        live.shared = true;
        let Live { block, slot, size, .. } = *live;
        self.policy.record_stream(&mut self.device, block, stream);
        self.recorder.add(EventKind::Use, slot, size, stream);
        true
    }

    /// Gives unused memory back to the device.
    pub fn empty_cache(&mut self) {
        self.policy.empty_cache(&mut self.device);
        self.completed();
        self.recorder.add(EventKind::EmptyCache, Slot(0), 0, StreamId(0));
    }

    /// Writes down which frees the policy found complete since the last look.
    fn completed(&mut self) {
        if self.pending.is_empty() {
            self.device.clear_log();
            return;
        }
        let done: Vec<DevAddr> =
            self.device.log().iter().filter(|d| is_completion(d)).map(|d| d.addr).collect();
        self.device.clear_log();
        for addr in done {
            if let Some(live) = self.pending.remove(&addr) {
                self.recorder.add(EventKind::FreeDone, live.slot, live.size, live.stream);
                self.recorder.release(live.slot);
            }
        }
    }
}

fn is_completion(decision: &Decision) -> bool {
    decision.action == Action::FreeCompleted
}
