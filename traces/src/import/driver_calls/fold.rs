//! From driver calls, in order of time, to events.

use super::facts::Facts;
use crate::calls::{CALLS, Kind, Record};
use crate::transform::SlotAllocator;
use poolsim_core::event::{Knows, PoolInfo};
use poolsim_core::stack::Frame;
use poolsim_core::units::ShowBytes;
use poolsim_core::{Bytes, Event, EventKind, PoolId, Slot, StreamId, Trace, TraceHeader};
use std::collections::{BTreeMap, HashMap};

/// The kind of place that is a device, `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: u64 = 1;

/// Memory that is live: an allocation, or what `cuMemCreate` made.
#[derive(Clone, Copy)]
struct Live {
    /// None if it is of a device that was not asked for.
    slot: Option<Slot>,
    size: Bytes,
    stream: StreamId,
    pool: PoolId,
}

/// What `cuMemCreate` made lives while its handle or a mapping of it does.
struct Created {
    /// None for host memory.
    live: Option<Live>,
    holders: u64,
}

/// Pinned and registered host memory.
#[derive(Default)]
struct Host {
    live: HashMap<u64, Bytes>,
    bytes: u128,
    peak: u128,
}

/// Turns the calls of a process into the events of one device.
pub(super) struct Fold {
    device: u32,
    trace: Trace,
    slots: SlotAllocator,
    live_bytes: u128,
    /// By address, on any device. Seeded at random, as addresses come from a file.
    live: HashMap<u64, Live>,
    created: HashMap<u64, Created>,
    /// By address: bytes and handle.
    mapped: BTreeMap<u64, (Bytes, u64)>,
    streams: HashMap<u64, StreamId>,
    pools: HashMap<u64, PoolId>,
    /// The pool that `cuDeviceSetMemPool` chose, by device.
    chosen: HashMap<u8, u64>,
    host: Host,
    counts: BTreeMap<Kind, (u64, u64)>,
    unknown_frees: u64,
    given_again: u64,
    other_stream: u64,
}

impl Fold {
    pub fn new(device: u32) -> Fold {
        let mut fold = Fold {
            device,
            trace: Trace::default(),
            slots: SlotAllocator::default(),
            live_bytes: 0,
            live: HashMap::new(),
            created: HashMap::new(),
            mapped: BTreeMap::new(),
            streams: HashMap::from([(0, StreamId(0))]),
            pools: HashMap::new(),
            chosen: HashMap::new(),
            host: Host::default(),
            counts: BTreeMap::new(),
            unknown_frees: 0,
            given_again: 0,
            other_stream: 0,
        };
        fold.trace.header = TraceHeader {
            source: "driver-calls".into(),
            streams: vec![0],
            pools: vec![PoolInfo::default()],
            knows: Knows { stacks: true, ..Knows::default() },
            ..TraceHeader::default()
        };
        fold
    }

    /// Takes the next call.
    ///
    /// # Errors
    /// More streams or pools than a trace can tell apart; more live bytes than 2^64 - 1.
    pub fn call(&mut self, call: &Record, facts: &Facts) -> Result<(), String> {
        let count = self.counts.entry(call.kind).or_default();
        count.0 += 1;
        count.1 += u64::from(call.result != 0);
        let ours = call.device == crate::calls::NO_DEVICE || u32::from(call.device) == self.device;
        match call.kind {
            Kind::ALLOC
            | Kind::ALLOC_PITCH
            | Kind::ALLOC_MANAGED
            | Kind::ALLOC_ASYNC
            | Kind::ALLOC_FROM_POOL => self.alloc(call, facts, ours),
            Kind::CREATE if call.e == ON_DEVICE || call.result != 0 => {
                self.create(call, facts, ours)
            }
            _ if call.result != 0 => Ok(()),
            Kind::CREATE => {
                self.created.insert(call.a, Created { live: None, holders: 1 });
                Ok(())
            }
            Kind::FREE | Kind::FREE_ASYNC => self.free(call, facts),
            Kind::RELEASE => self.let_go(call.a, call, facts),
            Kind::MAP => {
                self.mapped.insert(call.a, (call.b, call.d));
                if let Some(created) = self.created.get_mut(&call.d) {
                    created.holders += 1;
                }
                Ok(())
            }
            Kind::RETAIN => {
                if let Some(created) = self.created.get_mut(&call.a) {
                    created.holders += 1;
                }
                Ok(())
            }
            Kind::UNMAP => self.unmap(call, facts),
            Kind::HOST_ALLOC | Kind::HOST_ALLOC_PLAIN | Kind::HOST_REGISTER => {
                self.host.add(call.a, call.b);
                Ok(())
            }
            Kind::HOST_FREE | Kind::HOST_UNREGISTER => {
                self.host.remove(call.a);
                Ok(())
            }
            Kind::POOL_USE => {
                self.chosen.insert(call.device, call.d);
                Ok(())
            }
            Kind::POOL_TRIM | Kind::POOL_DESTROY | Kind::SYNC_STREAM | Kind::SYNC_DEVICE
                if ours =>
            {
                self.without_memory(call, facts)
            }
            _ => Ok(()),
        }
    }

    fn alloc(&mut self, call: &Record, facts: &Facts, ours: bool) -> Result<(), String> {
        let pool = match call.kind {
            Kind::ALLOC_FROM_POOL => self.pool(call.d)?,
            Kind::ALLOC_ASYNC => match self.chosen.get(&call.device).copied() {
                Some(handle) => self.pool(handle)?,
                None => PoolId::DEFAULT,
            },
            _ => PoolId::DEFAULT,
        };
        let stream = self.stream(call.c)?;
        if call.result != 0 {
            if ours {
                let slot = self.slots.peek();
                let refused = Live { slot: Some(slot), size: call.b, stream, pool };
                self.push(EventKind::AllocRefused, &refused, call, facts);
            }
            return Ok(());
        }
        if call.a == 0 {
            // A request for no bytes gives no address.
            return Ok(());
        }
        if let Some(before) = self.live.remove(&call.a) {
            self.given_again += 1;
            self.end(&before, call, facts);
        }
        let live =
            self.begin(Live { slot: None, size: call.b, stream, pool }, call, facts, ours)?;
        self.live.insert(call.a, live);
        Ok(())
    }

    fn create(&mut self, call: &Record, facts: &Facts, ours: bool) -> Result<(), String> {
        let asked = Live { slot: None, size: call.b, stream: StreamId(0), pool: PoolId::DEFAULT };
        if call.result != 0 {
            if ours && call.e == ON_DEVICE {
                let refused = Live { slot: Some(self.slots.peek()), ..asked };
                self.push(EventKind::AllocRefused, &refused, call, facts);
            }
            return Ok(());
        }
        if let Some(Created { live: Some(before), .. }) = self.created.remove(&call.a) {
            self.given_again += 1;
            self.end(&before, call, facts);
        }
        let live = self.begin(asked, call, facts, ours)?;
        self.created.insert(call.a, Created { live: Some(live), holders: 1 });
        Ok(())
    }

    fn begin(
        &mut self,
        mut live: Live,
        call: &Record,
        facts: &Facts,
        ours: bool,
    ) -> Result<Live, String> {
        if ours {
            self.live_bytes += u128::from(live.size);
            if self.live_bytes > u128::from(u64::MAX) {
                return Err(format!(
                    "holds allocations of {} at once, which no device has; the log is damaged",
                    ShowBytes(live.size)
                ));
            }
            live.slot = Some(self.slots.take());
            self.push(EventKind::Alloc, &live, call, facts);
        }
        Ok(live)
    }

    fn end(&mut self, live: &Live, call: &Record, facts: &Facts) {
        let Some(slot) = live.slot else { return };
        self.live_bytes -= u128::from(live.size);
        self.push(EventKind::Free, live, call, facts);
        self.slots.release(slot);
    }

    fn free(&mut self, call: &Record, facts: &Facts) -> Result<(), String> {
        if call.a == 0 {
            return Ok(());
        }
        let Some(live) = self.live.remove(&call.a) else {
            self.unknown_frees += 1;
            return Ok(());
        };
        if call.kind == Kind::FREE_ASYNC && self.stream(call.c)? != live.stream {
            self.other_stream += 1;
        }
        self.end(&live, call, facts);
        Ok(())
    }

    /// A holder of a handle is gone.
    fn let_go(&mut self, handle: u64, call: &Record, facts: &Facts) -> Result<(), String> {
        let Some(created) = self.created.get_mut(&handle) else {
            self.unknown_frees += u64::from(call.kind == Kind::RELEASE);
            return Ok(());
        };
        created.holders -= 1;
        if created.holders == 0 {
            let live = self.created.remove(&handle).and_then(|created| created.live);
            if let Some(live) = live {
                self.end(&live, call, facts);
            }
        }
        Ok(())
    }

    fn unmap(&mut self, call: &Record, facts: &Facts) -> Result<(), String> {
        let range = call.a..call.a.saturating_add(call.b);
        let gone: Vec<(u64, u64)> =
            self.mapped.range(range).map(|(at, (_, handle))| (*at, *handle)).collect();
        for (at, handle) in gone {
            self.mapped.remove(&at);
            self.let_go(handle, call, facts)?;
        }
        Ok(())
    }

    fn without_memory(&mut self, call: &Record, facts: &Facts) -> Result<(), String> {
        let (kind, pool) = match call.kind {
            Kind::POOL_TRIM => (EventKind::EmptyCache, PoolId::DEFAULT),
            Kind::POOL_DESTROY => match self.pools.remove(&call.d) {
                Some(pool) => (EventKind::PoolDestroy, pool),
                None => return Ok(()),
            },
            Kind::SYNC_STREAM => (EventKind::SyncStream, PoolId::DEFAULT),
            _ => (EventKind::SyncDevice, PoolId::DEFAULT),
        };
        let stream = if kind == EventKind::SyncStream { self.stream(call.c)? } else { StreamId(0) };
        self.push(kind, &Live { slot: None, size: 0, stream, pool }, call, facts);
        Ok(())
    }

    fn push(&mut self, kind: EventKind, of: &Live, call: &Record, facts: &Facts) {
        let name = call.kind.name().unwrap_or_default().to_string();
        let frame = Frame { name, file: facts.library(call.library).to_string(), line: 0 };
        let stacks = &mut self.trace.stacks;
        let frame = stacks.intern_frame(frame);
        let stack = stacks.intern_stack(&[frame]);
        let slot = of.slot.unwrap_or(Slot(0));
        self.trace.events.push(Event::new(kind, call.at, slot, of.size, of.stream, of.pool));
        self.trace.event_stacks.push(stack);
    }

    fn stream(&mut self, handle: u64) -> Result<StreamId, String> {
        if let Some(&stream) = self.streams.get(&handle) {
            return Ok(stream);
        }
        let next = u16::try_from(self.streams.len()).ok().filter(|n| *n < u16::MAX);
        let stream = StreamId(next.ok_or("uses more streams than a trace can tell apart (65534)")?);
        self.streams.insert(handle, stream);
        self.trace.header.streams.push(handle);
        Ok(stream)
    }

    fn pool(&mut self, handle: u64) -> Result<PoolId, String> {
        if let Some(&pool) = self.pools.get(&handle) {
            return Ok(pool);
        }
        let next =
            u16::try_from(self.trace.header.pools.len()).ok().filter(|n| *n <= Event::MAX_POOL);
        let pool = PoolId(next.ok_or("uses more pools than a trace can tell apart (4095)")?);
        self.pools.insert(handle, pool);
        self.trace.header.pools.push(PoolInfo { id: (handle, 0), ..PoolInfo::default() });
        Ok(pool)
    }

    /// The trace, with what of the calls it does not hold.
    pub fn finish(mut self) -> Trace {
        let header = &mut self.trace.header;
        // A free in the allocation's own stream is complete for all that comes behind it there.
        header.knows.completions = self.other_stream == 0;
        for (kind, name) in CALLS {
            if let Some((calls, failed)) = self.counts.get(kind) {
                let failed = if *failed > 0 { format!(", {failed} failed") } else { String::new() };
                header.attributes.insert(format!("calls {name}"), format!("{calls}{failed}"));
            }
        }
        if self.host.peak > 0 {
            let peak = u64::try_from(self.host.peak).unwrap_or(u64::MAX);
            header.attributes.insert("host memory peak".into(), peak.to_string());
            header.notes.push(format!(
                "the program also pinned host memory, {} at its peak: it is no device memory, and no event",
                ShowBytes(peak)
            ));
        }
        let notes = [
            (
                self.unknown_frees,
                "frees are of memory whose allocation the log does not show (another process's, or a driver object's); they are left out",
            ),
            (
                self.given_again,
                "allocations got an address whose free the log does not show (its context was destroyed); it is taken as freed just before",
            ),
            (
                self.other_stream,
                "frees name another stream than the allocation did; they are taken as complete, as all frees of the driver are",
            ),
        ];
        for (count, what) in notes.into_iter().filter(|(count, _)| *count > 0) {
            header.notes.push(format!("{count} {what}"));
        }
        self.trace
    }
}

impl Host {
    fn add(&mut self, address: u64, size: Bytes) {
        self.remove(address);
        self.live.insert(address, size);
        self.bytes += u128::from(size);
        self.peak = self.peak.max(self.bytes);
    }

    fn remove(&mut self, address: u64) {
        if let Some(size) = self.live.remove(&address) {
            self.bytes -= u128::from(size);
        }
    }
}
