//! A real GPU as a [`Device`].

mod ranges;
mod target;

use self::ranges::{Mapping, Page, Physical, RangeState};
use crate::call::{Context, Result};
use crate::calls::CallLog;
use crate::fences::Fences;
use crate::gates::Gates;
use crate::latency::Latency;
use crate::streams::StreamTable;
use poolsim_core::device::DeviceOp;
use poolsim_core::record::Decision;
use poolsim_core::{
    Action, Backing, Bytes, DevAddr, Device, DeviceCaps, DeviceError, DriverAnswer, FenceId,
    Ledger, Nanos, PageId, Range, RangeId, StreamId, SyncScope,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

/// How a replay on the GPU treats time and pending work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// Let recorded time pass between events.
    pub paced: bool,
    /// Frees wait for the streams' real work instead of the recorded completions.
    pub real_fences: bool,
    /// Keep the decision log.
    pub keep_log: bool,
    /// Keep the driver calls.
    pub keep_calls: bool,
}

/// A GPU. Owns every range, page, stream and event that it handed out and gives them back when it is dropped.
///
/// Belongs to the thread that made it: that thread has the context current.
#[derive(Debug)]
pub struct CudaDevice {
    context: Arc<Context>,
    caps: DeviceCaps,
    mode: Mode,
    start: Instant,
    event: u64,
    ranges: BTreeMap<u32, RangeState>,
    next_range: u32,
    pages: BTreeMap<u32, Physical>,
    next_page: u32,
    used: Bytes,
    streams: Arc<StreamTable>,
    gates: Arc<Gates>,
    fences: Fences,
    /// Time of the trace's present event.
    trace_time: Arc<AtomicU64>,
    /// Ends the waiting of paced replays.
    stop: Arc<AtomicBool>,
    ledger: Ledger,
    latency: Vec<Latency>,
    calls: Arc<CallLog>,
    log: Vec<Decision>,
    answers: Vec<DriverAnswer>,
}

impl CudaDevice {
    /// Takes hold of a GPU.
    ///
    /// # Errors
    /// `Unsupported` where there is no driver or the GPU cannot map pages; `Driver` if a call fails.
    pub fn new(index: u32, mode: Mode) -> Result<CudaDevice> {
        let machine = crate::driver::list_gpus()?;
        let gpu = machine.gpus.iter().find(|g| g.index == index).ok_or_else(|| {
            DeviceError::Unsupported(format!(
                "there is no GPU {index}; the driver lists {}",
                machine.gpus.len()
            ))
        })?;
        let context = Context::new(index)?;
        let granule = if gpu.virtual_memory { context.granularity()? } else { 2 << 20 };
        let caps = DeviceCaps {
            name: gpu.name.clone(),
            total: gpu.total,
            granule,
            range_align: 32 << 20,
            paged: gpu.virtual_memory,
        };
        let streams = Arc::new(StreamTable::new(context.clone()));
        Ok(CudaDevice {
            fences: Fences::new(context.clone(), mode.real_fences),
            caps,
            mode,
            start: Instant::now(),
            event: 0,
            ranges: BTreeMap::new(),
            next_range: 0,
            pages: BTreeMap::new(),
            next_page: 0,
            used: 0,
            streams,
            gates: Arc::new(Gates::new(context.clone(), mode.real_fences)),
            trace_time: Arc::default(),
            stop: Arc::default(),
            ledger: Ledger::default(),
            latency: vec![Latency::default(); DeviceOp::ALL.len()],
            calls: Arc::new(CallLog::new(mode.keep_calls)),
            log: Vec::new(),
            answers: Vec::new(),
            context,
        })
    }

    /// The context, for what works on the same GPU beside this device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The real streams.
    pub fn streams(&self) -> &Arc<StreamTable> {
        &self.streams
    }

    /// Frees that the trace says are not complete yet, on the GPU itself.
    pub fn gates(&self) -> &Arc<Gates> {
        &self.gates
    }

    /// The time of the trace's present event, for work that is to last as long as it did in the recording.
    pub fn trace_time(&self) -> &Arc<AtomicU64> {
        &self.trace_time
    }

    /// Whoever sets this ends the waiting of a paced replay.
    pub fn stop_on(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// Measured times of the operations that were called.
    pub fn latencies(&self) -> impl Iterator<Item = (DeviceOp, &Latency)> {
        let all = DeviceOp::ALL.iter().map(|&op| (op, &self.latency[op as usize]));
        all.filter(|(_, latency)| latency.calls() > 0)
    }

    /// The driver calls, if they are kept; also those of driver allocators on this device.
    pub fn calls(&self) -> &Arc<CallLog> {
        &self.calls
    }

    /// What the driver answered to each `reserve` and `populate`, if a log is kept: with these a simulated device
    /// places ranges as this one did.
    pub fn answers(&self) -> &[DriverAnswer] {
        &self.answers
    }

    fn answered(&mut self, answer: DriverAnswer) {
        if self.mode.keep_log {
            self.answers.push(answer);
        }
    }

    /// Times a driver call and counts it.
    fn timed<T>(
        &mut self,
        op: DeviceOp,
        bytes: Bytes,
        call: impl FnOnce(&Context) -> Result<T>,
    ) -> Result<T> {
        let start = Instant::now();
        let result = call(&self.context);
        self.count(op, bytes, start);
        result.map_err(|e| match e {
            DeviceError::OutOfMemory { .. } => {
                DeviceError::OutOfMemory { asked: bytes, free: self.free_bytes() }
            }
            e => e,
        })
    }

    /// Counts a driver call that began at `start`.
    fn count(&mut self, op: DeviceOp, bytes: Bytes, start: Instant) {
        let time = self.latency[op as usize].since(start);
        self.ledger.charge(op, bytes, time);
        self.calls.add(op, bytes, time);
    }

    /// Unmaps what `take_mappings` took.
    fn unmap_all(&mut self, base: DevAddr, found: &[(Bytes, Mapping)]) -> Result<()> {
        for (offset, m) in found {
            let addr = base + offset;
            self.timed(DeviceOp::Unmap, m.len, |c| c.unmap(addr, m.len))?;
        }
        Ok(())
    }
}

fn illegal(what: String) -> DeviceError {
    DeviceError::Illegal(what)
}

impl Device for CudaDevice {
    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn now(&self) -> Nanos {
        Nanos::try_from(self.start.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// The median of what was measured so far.
    fn cost(&self, op: DeviceOp, _: Bytes) -> Nanos {
        self.latency[op as usize].median()
    }

    fn free_bytes(&self) -> Bytes {
        self.context.memory().map_or(0, |(free, _)| free)
    }

    fn reserve(&mut self, size: Bytes, backing: Backing) -> Result<Range> {
        let whole_pages = size.is_multiple_of(self.caps.granule);
        if size == 0 || (backing == Backing::Paged && !whole_pages) {
            return Err(illegal(format!(
                "{size} bytes of addresses are no multiple of {} bytes",
                self.caps.granule
            )));
        }
        let given = match backing {
            Backing::Whole => self.timed(DeviceOp::Alloc, size, |c| c.alloc(size)),
            Backing::Paged if self.caps.paged => {
                self.timed(DeviceOp::Reserve, size, |c| c.reserve(size)).map_err(|e| match e {
                    DeviceError::OutOfMemory { asked, .. } => DeviceError::OutOfAddresses { asked },
                    e => e,
                })
            }
            Backing::Paged => {
                Err(DeviceError::Unsupported("mapping pages (virtual memory management)".into()))
            }
        };
        if given.is_err() {
            self.answered(DriverAnswer::OutOfMemory);
        }
        let addr = given?;
        self.answered(DriverAnswer::Range { addr, size });
        if backing == Backing::Whole {
            self.used += size;
        }
        let range = Range { id: RangeId(self.next_range), addr, size };
        self.next_range += 1;
        self.ranges.insert(range.id.0, RangeState { range, backing, mapped: BTreeMap::new() });
        Ok(range)
    }

    fn release(&mut self, id: RangeId) -> Result<()> {
        let state = self.range(id)?;
        if !state.mapped.is_empty() {
            return Err(illegal(format!("range {id} still has pages mapped")));
        }
        let (range, backing) = (state.range, state.backing);
        self.ranges.remove(&id.0);
        match backing {
            Backing::Whole => {
                self.used -= range.size;
                self.timed(DeviceOp::Free, range.size, |c| c.free(range.addr))
            }
            Backing::Paged => {
                self.timed(DeviceOp::Unreserve, range.size, |c| c.unreserve(range.addr, range.size))
            }
        }
    }

    fn create(&mut self, size: Bytes) -> Result<PageId> {
        let handle = self.timed(DeviceOp::Create, size, |c| c.create(size))?;
        self.used += size;
        let id = PageId(self.next_page);
        self.next_page += 1;
        self.pages.insert(id.0, Physical { handle, size, mappings: 0 });
        Ok(id)
    }

    fn destroy(&mut self, page: PageId) -> Result<()> {
        match self.pages.get(&page.0) {
            Some(p) if p.mappings == 0 => {}
            Some(_) => return Err(illegal(format!("page {page} is still mapped"))),
            None => return Err(illegal(format!("there is no page {page}"))),
        }
        let p = self.pages.remove(&page.0).expect("it was just there");
        self.used -= p.size;
        self.timed(DeviceOp::Destroy, p.size, |c| c.destroy(p.handle))
    }

    fn map(&mut self, range: RangeId, at: Bytes, page: PageId) -> Result<()> {
        let p =
            *self.pages.get(&page.0).ok_or_else(|| illegal(format!("there is no page {page}")))?;
        let addr = self.place(range, at, p.size)?;
        self.check_free(range, at, p.size)?;
        self.timed(DeviceOp::Map, p.size, |c| c.map(addr, p.size, p.handle))?;
        self.pages.get_mut(&page.0).expect("it was just there").mappings += 1;
        let mapping = Mapping { len: p.size, page: Page::Shared(page) };
        self.range(range)?.mapped.insert(at, mapping);
        self.timed(DeviceOp::Access, p.size, |c| c.allow_access(addr, p.size))
    }

    fn unmap(&mut self, range: RangeId, at: Bytes, len: Bytes) -> Result<()> {
        let base = self.place(range, at, len)? - at;
        let found = self.take_mappings(range, at, len)?;
        self.unmap_all(base, &found)?;
        for (_, m) in found {
            match m.page {
                Page::Shared(page) => {
                    self.pages.get_mut(&page.0).expect("a mapped page exists").mappings -= 1;
                }
                Page::Own(_) => {
                    return Err(illegal("pages of `populate` go by `depopulate`".into()));
                }
            }
        }
        Ok(())
    }

    fn populate(&mut self, range: RangeId, at: Bytes, len: Bytes, page: Bytes) -> Result<()> {
        let addr = self.place(range, at, len)?;
        self.check_free(range, at, len)?;
        if page == 0 || !len.is_multiple_of(page) {
            return Err(illegal(format!("{len} bytes are no whole pages of {page}")));
        }
        let mut handles = Vec::new();
        for _ in 0..len / page {
            match self.timed(DeviceOp::Create, page, |c| c.create(page)) {
                Ok(handle) => handles.push(handle),
                Err(e) => {
                    for handle in handles {
                        self.timed(DeviceOp::Destroy, page, |c| c.destroy(handle))?;
                    }
                    self.answered(DriverAnswer::OutOfMemory);
                    return Err(e);
                }
            }
        }
        for (i, &handle) in handles.iter().enumerate() {
            let offset = i as u64 * page;
            self.timed(DeviceOp::Map, page, |c| c.map(addr + offset, page, handle))?;
            let mapping = Mapping { len: page, page: Page::Own(handle) };
            self.range(range)?.mapped.insert(at + offset, mapping);
        }
        self.timed(DeviceOp::Access, len, |c| c.allow_access(addr, len))?;
        self.used += len;
        self.answered(DriverAnswer::Populated);
        Ok(())
    }

    fn depopulate(&mut self, range: RangeId, at: Bytes, len: Bytes) -> Result<()> {
        let base = self.place(range, at, len)? - at;
        let found = self.take_mappings(range, at, len)?;
        self.unmap_all(base, &found)?;
        for (_, m) in found {
            let Page::Own(handle) = m.page else {
                return Err(illegal("pages of `map` go by `unmap` and `destroy`".into()));
            };
            self.timed(DeviceOp::Destroy, m.len, |c| c.destroy(handle))?;
            self.used -= m.len;
        }
        Ok(())
    }

    fn record(&mut self, stream: StreamId) -> Result<FenceId> {
        let raw = self.streams.get(stream)?;
        let start = Instant::now();
        let fence = self.fences.record(stream, raw)?;
        self.count(DeviceOp::Record, 0, start);
        Ok(fence)
    }

    fn poll(&mut self, passed: &mut Vec<FenceId>) {
        let start = Instant::now();
        let queries = self.fences.poll(passed);
        if queries > 0 {
            let time = self.latency[DeviceOp::Query as usize].since(start);
            self.ledger.charge_many(DeviceOp::Query, queries, 0, time);
            self.calls.add(DeviceOp::Query, 0, time);
        }
    }

    fn wait(&mut self, stream: StreamId, fence: FenceId) -> Result<()> {
        let raw = self.streams.get(stream)?;
        let Some(event) = self.fences.event(fence) else { return Ok(()) };
        self.timed(DeviceOp::Wait, 0, |c| c.wait(raw, event))
    }

    fn synchronize(&mut self, scope: SyncScope) -> Result<()> {
        let start = Instant::now();
        match scope {
            SyncScope::Device => {
                self.gates.open_all();
                self.context.synchronize()?;
            }
            SyncScope::Stream(s) => self.context.synchronize_stream(self.streams.get(s)?)?,
            SyncScope::Fences => self.fences.wait_for_all()?,
        }
        self.count(DeviceOp::Synchronize, 0, start);
        self.fences.waited(scope);
        Ok(())
    }

    /// With recorded completions as in simulation: work goes on only behind a free whose completion the trace knows.
    fn idle(&mut self, _: StreamId) -> bool {
        !self.mode.real_fences && !self.fences.holding()
    }

    fn charge(&mut self, op: DeviceOp, calls: u64, bytes: Bytes) {
        self.ledger.charge_many(op, calls, bytes, 0);
    }

    fn note(&mut self, action: Action, addr: DevAddr, size: Bytes, stream: StreamId) {
        if self.mode.keep_log {
            self.log.push(Decision { event: self.event, action, addr, size, stream });
        }
    }
}
