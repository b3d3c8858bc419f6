//! One run: the state between events, and what each event does.

use super::slots::{Slots, State};
use super::step::{Heap, Observer, Outcome, Step};
use super::{RunEnd, device_failed, illegal};
use poolsim_core::record::OomRecord;
use poolsim_core::stack::StackId;
use poolsim_core::{
    Action, AllocError, AllocRequest, BlockId, BlockState, Bytes, DevAddr, Event, EventKind, Grant,
    HeapImage, HeapVisitor, Nanos, Policy, PoolId, PoolOp, ReplayTarget, Slot, StreamId, SyncScope,
    TraceError,
};
use std::collections::{BTreeMap, BTreeSet};

/// What the log says of a live slot when it is freed.
#[derive(Clone, Copy, Default)]
pub(super) struct Held {
    pub(super) addr: DevAddr,
    pub(super) size: Bytes,
    pub(super) stream: StreamId,
}

/// The event that is being replayed.
#[derive(Clone, Copy)]
pub(super) struct At<'e> {
    pub(super) index: u64,
    pub(super) event: &'e Event,
    pub(super) stack: StackId,
}

pub(super) struct Run<'r, P: ?Sized, T, O: ?Sized> {
    pub(super) policy: &'r mut P,
    pub(super) target: &'r mut T,
    observer: &'r mut O,
    pub(super) slots: Slots,
    /// Slots with declared uses on other streams.
    pub(super) used: BTreeSet<Slot>,
    /// Blocks of the initial heap whose `Preexisting` event has not come yet.
    restored: BTreeMap<Slot, BlockId>,
    /// Slots whose free was requested before the trace started.
    pub(super) freed_before: BTreeSet<Slot>,
    pub(super) logging: bool,
    /// By slot; only if a log is kept.
    pub(super) held: Vec<Held>,
    /// Lines of the log that were shown to the observer.
    seen: usize,
    /// A request that the recorded run was refused and this one was not: its event, or the last one after it that does
    /// not end the row, and where it asked.
    rescued: Option<(u64, StreamId, PoolId)>,
    /// Time of the latest event.
    last: Nanos,
    pub(super) end: RunEnd,
}

/// A policy's heap, for observers.
struct PolicyHeap<'a, P: ?Sized>(&'a P);

impl<P: Policy + ?Sized> Heap for PolicyHeap<'_, P> {
    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.0.visit(visitor);
    }
}

#[cold]
fn backwards(index: u64, before: Nanos, at: Nanos) -> TraceError {
    illegal(index, format!("time runs backwards, from {before} ns to {at} ns; sort the trace"))
}

impl<'r, P, T, O> Run<'r, P, T, O>
where
    P: Policy + ?Sized,
    T: ReplayTarget,
    O: Observer + ?Sized,
{
    pub(super) fn new(policy: &'r mut P, target: &'r mut T, observer: &'r mut O) -> Self {
        let logging = target.keeps_log();
        Run {
            policy,
            target,
            observer,
            slots: Slots::default(),
            used: BTreeSet::new(),
            restored: BTreeMap::new(),
            freed_before: BTreeSet::new(),
            logging,
            held: Vec::new(),
            seen: 0,
            rescued: None,
            last: 0,
            end: RunEnd::default(),
        }
    }

    /// Offers the initial heap to the policy.
    pub(super) fn restore(&mut self, image: Option<&HeapImage>) {
        let Some(image) = image else { return };
        let Some(blocks) = self.policy.restore(self.target, image) else { return };
        self.end.restored = true;
        self.restored = blocks.into_iter().collect();
        let pending = image.blocks().filter(|(_, b)| b.state == BlockState::Pending);
        self.freed_before = pending.filter_map(|(_, b)| b.slot).collect();
        if self.logging {
            // The policy may have put the heap elsewhere than the image says.
            let mut now = HeapImage::default();
            self.policy.visit(&mut now);
            for (range, block) in now.blocks() {
                if let Some(slot) = block.slot.filter(|slot| self.restored.contains_key(slot)) {
                    self.hold_for_log(slot, block.addr, block.requested, range.stream);
                }
            }
        }
        // What the policy noted while taking the heap over was decided before the trace.
        self.target.clear_log();
    }

    fn hold_for_log(&mut self, slot: Slot, addr: DevAddr, size: Bytes, stream: StreamId) {
        if self.held.len() <= slot.index() {
            self.held.resize(slot.index() + 1, Held::default());
        }
        self.held[slot.index()] = Held { addr, size, stream };
    }

    /// Does what an event says and shows it to the observer. Returns whether a request was refused that the recorded
    /// run was granted.
    #[inline(always)]
    pub(super) fn step(&mut self, at: At<'_>) -> Result<bool, TraceError> {
        let time = at.event.at;
        if time < self.last {
            return Err(backwards(at.index, self.last, time));
        }
        self.last = time;
        self.target.advance_to(time);
        if self.logging {
            self.target.set_event(at.index);
        }
        match at.event.kind() {
            EventKind::Alloc => self.alloc(at),
            EventKind::Free => {
                let outcome = self.free(at.index, at.event)?;
                self.observe(at, outcome, None);
                Ok(false)
            }
            _ => self.rare(at),
        }
    }

    #[inline(never)]
    fn rare(&mut self, at: At<'_>) -> Result<bool, TraceError> {
        let asks = match at.event.kind() {
            EventKind::Alloc | EventKind::AllocRefused => true,
            EventKind::Preexisting => !self.restored.contains_key(&at.event.slot),
            _ => false,
        };
        if asks {
            return self.alloc(at);
        }
        let outcome = self.other(at.index, at.event)?;
        let ends_no_row = matches!(
            at.event.kind(),
            EventKind::FreeDone
                | EventKind::EmptyCache
                | EventKind::SyncStream
                | EventKind::SyncDevice
        );
        if let Some((last, ..)) = &mut self.rescued
            && ends_no_row
            && *last + 1 == at.index
        {
            *last = at.index;
        }
        self.observe(at, outcome, None);
        Ok(false)
    }

    /// Whether the program would not have asked here: it asked again at once, on the same stream and from the same pool, since
    /// it was refused in the recorded run (cuDNN tries one algorithm after another), and in this run it was not.
    #[cold]
    fn asks_in_vain(&mut self, at: At<'_>) -> bool {
        let asks_at = (at.event.stream, at.event.pool());
        match &mut self.rescued {
            Some((last, stream, pool)) if *last + 1 == at.index && (*stream, *pool) == asks_at => {
                *last = at.index;
                true
            }
            _ => false,
        }
    }

    fn other(&mut self, index: u64, event: &Event) -> Result<Outcome<'static>, TraceError> {
        let pool = event.pool();
        let op = match event.kind() {
            EventKind::Alloc | EventKind::AllocRefused => unreachable!("requests go elsewhere"),
            EventKind::Preexisting => return self.restored(index, event),
            EventKind::Free => return self.free(index, event),
            EventKind::FreeLater => return self.free_later(index, event),
            EventKind::FreeDone => return self.free_done(index, event),
            EventKind::Use => return self.use_on(index, event),
            EventKind::EmptyCache => {
                return Ok(Outcome::GaveBack(self.policy.empty_cache(self.target)));
            }
            EventKind::SyncStream | EventKind::SyncDevice => {
                let one = event.kind() == EventKind::SyncStream;
                let scope = if one { SyncScope::Stream(event.stream) } else { SyncScope::Device };
                self.target.synchronize(scope).map_err(|e| device_failed(index, &e))?;
                self.policy.synchronized(self.target, one.then_some(event.stream));
                return Ok(Outcome::Done);
            }
            EventKind::PoolOpen => PoolOp::Open,
            EventKind::PoolClose => PoolOp::Close,
            EventKind::PoolDrop => PoolOp::Drop,
            EventKind::PoolDestroy => PoolOp::Destroy,
        };
        self.policy.pool(self.target, pool, op);
        Ok(Outcome::Done)
    }

    /// Shows a step to the observer, for outcomes off the hot path.
    #[cold]
    fn observe_rare(&mut self, at: At<'_>, outcome: Outcome<'_>, oom: Option<&OomRecord>) {
        self.observe(at, outcome, oom);
    }

    /// Shows a step to the observer. One copy in each hot path: a `Step` that is inlined is never built.
    #[inline(always)]
    fn observe(&mut self, at: At<'_>, outcome: Outcome<'_>, oom: Option<&OomRecord>) {
        let At { index, event, stack } = at;
        let log = if self.logging { &self.target.log()[self.seen..] } else { &[] };
        let step = Step {
            index,
            event,
            stack,
            outcome,
            oom,
            stats: self.policy.stats(),
            ledger: self.target.ledger(),
            log,
        };
        self.observer.on_step(&step);
        if self.observer.wants_heap(&step) {
            self.observer.on_heap(&step, &PolicyHeap(&*self.policy), &*self.target);
        }
        if self.logging {
            if self.observer.drains_log() {
                self.target.clear_log();
            }
            self.seen = self.target.log().len();
        }
    }

    /// Ends the run after `events` events, of which the first was at `first`.
    pub(super) fn finish(mut self, events: u64, first: Nanos) -> RunEnd {
        self.end.events = events;
        self.end.span = (events > 0).then_some((first, self.last));
        self.end.live = self.slots.live().collect();
        self.end.live.extend(self.restored.iter().map(|(&slot, &block)| (slot, block)));
        self.end.stats = *self.policy.stats();
        self.observer.finish(&self.end, self.target.ledger());
        self.end
    }

    fn restored(&mut self, index: u64, event: &Event) -> Result<Outcome<'static>, TraceError> {
        let block = self.restored.remove(&event.slot).expect("the caller looked it up");
        self.slots.claim(event.slot, index, self.end.allocs)?;
        self.slots.set(event.slot, State::Live(block));
        Ok(Outcome::Restored)
    }

    /// A request. The grant is used where the policy put it and never copied: reading it back as a whole stalls
    /// on the policy's single stores, which cost more than all the rest of this function.
    #[inline(always)]
    fn alloc(&mut self, at: At<'_>) -> Result<bool, TraceError> {
        let event = at.event;
        let slot = event.slot;
        let keeps = event.kind() != EventKind::AllocRefused;
        self.end.allocs += 1;
        if keeps {
            self.slots.claim(slot, at.index, self.end.allocs)?;
        }
        if event.size == 0 || (!keeps && self.asks_in_vain(at)) {
            self.skip_request(slot, keeps);
            self.observe_rare(at, Outcome::Skipped, None);
            return Ok(false);
        }
        let request =
            AllocRequest { size: event.size, stream: event.stream, pool: event.pool(), slot };
        let result = self.policy.malloc(self.target, request);
        match &result {
            Ok(grant) => {
                if self.logging {
                    self.note_alloc(event, grant, keeps);
                }
                if keeps {
                    self.slots.set(slot, State::Live(grant.block));
                } else {
                    self.rescued = Some((at.index, event.stream, event.pool()));
                    self.rescue(event, grant);
                }
                self.observe(at, Outcome::Granted(grant), None);
                Ok(false)
            }
            Err(error) => {
                let oom = self.refuse(at.index, event, error)?;
                self.observe_rare(at, Outcome::Refused, Some(&oom));
                Ok(keeps)
            }
        }
    }

    /// A request for no bytes never reaches an allocator: the program gets a null pointer. Nor does one that is not made.
    #[cold]
    fn skip_request(&mut self, slot: Slot, keeps: bool) {
        self.end.allocs -= 1;
        self.end.skipped += 1;
        if keeps {
            self.slots.set(slot, State::Refused);
        }
    }

    #[cold]
    fn note_alloc(&mut self, event: &Event, grant: &Grant, keeps: bool) {
        self.target.note(Action::Alloc, grant.addr, event.size, event.stream);
        if keeps {
            self.hold_for_log(event.slot, grant.addr, event.size, event.stream);
        }
    }

    #[cold]
    fn rescue(&mut self, event: &Event, grant: &Grant) {
        self.end.rescued += 1;
        self.target.note(Action::FreeRequested, grant.addr, event.size, event.stream);
        self.policy.free(self.target, grant.block);
        self.target.note(Action::FreeCompleted, grant.addr, event.size, event.stream);
    }

    #[cold]
    fn refuse(
        &mut self,
        index: u64,
        event: &Event,
        error: &AllocError,
    ) -> Result<OomRecord, TraceError> {
        let (rounded, largest_free, cause) = match *error {
            AllocError::OutOfMemory { rounded, largest_free, cause, .. } => {
                (rounded, largest_free, cause)
            }
            AllocError::Device(ref e) => return Err(device_failed(index, e)),
            ref other => panic!("at event {index} a policy failed in an unknown way: {other}"),
        };
        let recorded = event.kind() == EventKind::AllocRefused;
        self.end.ooms += 1;
        if !recorded {
            self.end.new_ooms += 1;
            self.slots.set(event.slot, State::Refused);
        }
        let device_free = self.target.free_bytes();
        self.target.note(Action::Oom, device_free, rounded, event.stream);
        let stats = self.policy.stats();
        Ok(OomRecord {
            event: index,
            at: event.at,
            requested: event.size,
            rounded,
            stream: event.stream,
            pool: event.pool(),
            cause,
            active: stats.active.current,
            reserved: stats.reserved.current,
            device_free,
            largest_free,
            cached: stats.reserved.current - stats.active.current,
            recorded,
        })
    }
}
