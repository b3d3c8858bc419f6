//! A device that answers as the recorded one did.
//!
//! While a request runs, the entries that it must produce are laid out. A call for memory succeeds exactly if the next
//! entry shows that it did; everything that the policy notes is held against the next entry. So one run of the
//! allocator both finds the driver's answers and tests the hypothesis that led here.

use poolsim_core::device::{Backing, Device, DeviceCaps, DeviceOp, Range, SyncScope};
use poolsim_core::error::DeviceError;
use poolsim_core::recording::{Action, DriverAnswer, Entry};
use poolsim_core::units::{Bytes, DevAddr, FenceId, Nanos, PageId, RangeId, Slot, StreamId};
use std::collections::BTreeSet;

/// What a policy did where the recording shows something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Got {
    pub action: Action,
    pub addr: DevAddr,
    pub size: Bytes,
    pub stream: StreamId,
}

/// The first difference between what was done and what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// The entry that was next.
    pub entry: u32,
    /// What happened instead; `None` if the recording has more than happened.
    pub got: Option<Got>,
}

#[derive(Clone, Copy, Debug)]
struct Fence {
    id: FenceId,
    slot: Slot,
}

/// See the module's words.
#[derive(Clone, Debug)]
pub(super) struct Oracle<'a> {
    caps: DeviceCaps,
    entries: &'a [Entry],
    /// Slot of each entry, for the order of completions.
    slots: &'a [u32],
    next: usize,
    end: usize,
    /// Where the next new reservation lies.
    pub paged_base: Option<DevAddr>,
    /// Ranges that a heap is restored from, in order; while there are any, `reserve` hands them out.
    pub restoring: Option<std::vec::IntoIter<DevAddr>>,
    mismatch: Option<Mismatch>,
    pub answers: Vec<DriverAnswer>,
    /// Calls that failed since the last `expect`.
    pub refused: u32,
    ranges: Vec<DevAddr>,
    unused_ranges: Vec<u32>,
    /// Addresses of ranges that are held.
    held: BTreeSet<DevAddr>,
    holding: Slot,
    /// Fences that have not passed, in order of recording.
    waiting: Vec<Fence>,
    passed: Vec<FenceId>,
    unused_fences: Vec<u32>,
    fences: u32,
}

impl<'a> Oracle<'a> {
    pub fn new(caps: DeviceCaps, entries: &'a [Entry], slots: &'a [u32]) -> Self {
        Oracle {
            caps,
            entries,
            slots,
            next: 0,
            end: 0,
            paged_base: None,
            restoring: None,
            mismatch: None,
            answers: Vec::new(),
            refused: 0,
            ranges: Vec::new(),
            unused_ranges: Vec::new(),
            held: BTreeSet::new(),
            holding: Slot(0),
            waiting: Vec::new(),
            passed: Vec::new(),
            unused_fences: Vec::new(),
            fences: 0,
        }
    }

    /// Lays out the entries that must come next.
    #[inline]
    pub fn expect(&mut self, begin: usize, end: usize) {
        self.next = begin;
        self.end = end;
        self.mismatch = None;
        self.refused = 0;
    }

    /// How it went: all entries came, or the first difference.
    #[inline]
    pub fn outcome(&self) -> Result<(), Mismatch> {
        match self.mismatch {
            Some(m) => Err(m),
            None if self.next < self.end => Err(Mismatch { entry: self.next as u32, got: None }),
            None => Ok(()),
        }
    }

    /// Holds what happened against the next entry.
    #[inline]
    pub fn met(&mut self, got: Got) {
        if self.mismatch.is_some() {
            return;
        }
        if let Some(e) = self.entries[..self.end].get(self.next)
            && e.action == got.action
            && e.size == got.size
            && e.stream == got.stream
            && (e.addr == got.addr || e.action == Action::Oom)
        {
            self.next += 1;
            return;
        }
        self.mismatch = Some(Mismatch { entry: self.next as u32, got: Some(got) });
    }

    fn upcoming(&self) -> Option<&Entry> {
        if self.mismatch.is_some() { None } else { self.entries[..self.end].get(self.next) }
    }

    fn refuse(&mut self, asked: Bytes) -> DeviceError {
        self.refused += 1;
        self.answers.push(DriverAnswer::OutOfMemory);
        DeviceError::OutOfMemory { asked, free: 0 }
    }

    fn hand_out(&mut self, addr: DevAddr, size: Bytes, told: Bytes) -> Range {
        self.answers.push(DriverAnswer::Range { addr, size: told });
        self.held.insert(addr);
        let id = match self.unused_ranges.pop() {
            Some(id) => {
                self.ranges[id as usize] = addr;
                id
            }
            None => {
                self.ranges.push(addr);
                self.ranges.len() as u32 - 1
            }
        };
        Range { id: RangeId(id), addr, size }
    }

    /// Fences recorded by the next free pass when `slot`'s completion is due.
    pub fn hold(&mut self, slot: Slot) {
        self.holding = slot;
    }

    /// The work that `slot`'s free waits for is done.
    pub fn complete(&mut self, slot: Slot) {
        let passed = &mut self.passed;
        self.waiting.retain(|f| {
            if f.slot == slot {
                passed.push(f.id);
            }
            f.slot != slot
        });
    }

    /// Number of slots whose work is not done.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Lets everything pass in the order in which the next entries show completions. Where that is not the order of
    /// recording, which a device would take by itself, the order goes into the answers.
    fn pass_all(&mut self) {
        let mut order = Vec::with_capacity(self.waiting.len());
        let shown = &self.slots[self.next.min(self.end)..self.end];
        let upcoming = self.entries[self.next.min(self.end)..self.end].iter().zip(shown);
        for (_, &slot) in upcoming.take_while(|(e, _)| e.action == Action::FreeCompleted) {
            order.extend(self.waiting.iter().position(|f| f.slot.0 == slot));
        }
        let recorded: Vec<Fence> = std::mem::take(&mut self.waiting);
        let in_order = order.iter().enumerate().all(|(i, &at)| i == at);
        if !in_order {
            self.answers.extend(order.iter().map(|&i| DriverAnswer::Passed(recorded[i].slot)));
        }
        self.passed.extend(order.iter().map(|&i| recorded[i].id));
        for (i, f) in recorded.iter().enumerate() {
            if !order.contains(&i) {
                self.passed.push(f.id);
            }
        }
    }
}

impl Device for Oracle<'_> {
    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn now(&self) -> Nanos {
        0
    }

    fn cost(&self, _: DeviceOp, _: Bytes) -> Nanos {
        0
    }

    fn free_bytes(&self) -> Bytes {
        0
    }

    fn reserve(&mut self, size: Bytes, backing: Backing) -> Result<Range, DeviceError> {
        if let Some(addr) = self.restoring.as_mut().and_then(Iterator::next) {
            let told = if backing == Backing::Whole { size } else { 0 };
            return Ok(self.hand_out(addr, size, told));
        }
        if backing == Backing::Paged {
            return match self.paged_base.take() {
                Some(addr) if !self.held.contains(&addr) => Ok(self.hand_out(addr, size, 0)),
                _ => Err(self.refuse(size)),
            };
        }
        match self.upcoming() {
            Some(e)
                if e.action == Action::SegmentAlloc
                    && e.size == size
                    && !self.held.contains(&e.addr) =>
            {
                let addr = e.addr;
                Ok(self.hand_out(addr, size, size))
            }
            _ => Err(self.refuse(size)),
        }
    }

    fn release(&mut self, range: RangeId) -> Result<(), DeviceError> {
        self.held.remove(&self.ranges[range.index()]);
        self.unused_ranges.push(range.0);
        Ok(())
    }

    fn populate(
        &mut self,
        range: RangeId,
        at: Bytes,
        len: Bytes,
        _page: Bytes,
    ) -> Result<(), DeviceError> {
        let addr = self.ranges[range.index()] + at;
        let shown = self
            .upcoming()
            .is_some_and(|e| e.action == Action::SegmentMap && e.addr == addr && e.size == len);
        if shown || self.restoring.is_some() {
            self.answers.push(DriverAnswer::Populated);
            return Ok(());
        }
        Err(self.refuse(len))
    }

    fn depopulate(&mut self, _: RangeId, _: Bytes, _: Bytes) -> Result<(), DeviceError> {
        Ok(())
    }

    fn create(&mut self, _: Bytes) -> Result<PageId, DeviceError> {
        Err(not_asked())
    }

    fn destroy(&mut self, _: PageId) -> Result<(), DeviceError> {
        Err(not_asked())
    }

    fn map(&mut self, _: RangeId, _: Bytes, _: PageId) -> Result<(), DeviceError> {
        Err(not_asked())
    }

    fn unmap(&mut self, _: RangeId, _: Bytes, _: Bytes) -> Result<(), DeviceError> {
        Err(not_asked())
    }

    fn record(&mut self, _: StreamId) -> Result<FenceId, DeviceError> {
        let id = self.unused_fences.pop().unwrap_or_else(|| {
            self.fences += 1;
            self.fences - 1
        });
        self.waiting.push(Fence { id: FenceId(id), slot: self.holding });
        Ok(FenceId(id))
    }

    fn poll(&mut self, passed: &mut Vec<FenceId>) {
        self.unused_fences.extend(self.passed.iter().map(|f| f.0));
        passed.append(&mut self.passed);
    }

    fn wait(&mut self, _: StreamId, _: FenceId) -> Result<(), DeviceError> {
        Ok(())
    }

    fn synchronize(&mut self, scope: SyncScope) -> Result<(), DeviceError> {
        if scope == SyncScope::Fences {
            self.pass_all();
        }
        Ok(())
    }

    fn charge(&mut self, _: DeviceOp, _: u64, _: Bytes) {}

    #[inline]
    fn note(&mut self, action: Action, addr: DevAddr, size: Bytes, stream: StreamId) {
        if self.restoring.is_none() {
            self.met(Got { action, addr, size, stream });
        }
    }
}

fn not_asked() -> DeviceError {
    DeviceError::Unsupported("PyTorch's allocator maps memory with populate only".into())
}
