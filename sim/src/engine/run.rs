//! One run: the state between events, and what each event does.

use super::slots::{Slots, State};
use super::step::{Heap, Observer, Outcome, Step};
use super::{RunEnd, device_failed, illegal};
use poolsim_core::record::OomRecord;
use poolsim_core::stack::StackId;
use poolsim_core::{
    Action, AllocError, AllocRequest, BlockId, BlockState, Bytes, DevAddr, Event, EventKind, Grant,
    HeapImage, HeapVisitor, Nanos, Policy, PoolOp, ReplayTarget, Slot, StreamId, SyncScope,
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

pub(super) struct Run<'r, P: ?Sized, T> {
    pub(super) policy: &'r mut P,
    pub(super) target: &'r mut T,
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
    refusal: Option<OomRecord>,
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

impl<'r, P: Policy + ?Sized, T: ReplayTarget> Run<'r, P, T> {
    pub(super) fn new(policy: &'r mut P, target: &'r mut T) -> Self {
        let logging = target.keeps_log();
        Run {
            policy,
            target,
            slots: Slots::default(),
            used: BTreeSet::new(),
            restored: BTreeMap::new(),
            freed_before: BTreeSet::new(),
            logging,
            held: Vec::new(),
            seen: 0,
            refusal: None,
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

    /// Does what an event says.
    #[inline]
    pub(super) fn apply(&mut self, index: u64, event: &Event) -> Result<Outcome, TraceError> {
        if event.at < self.last {
            return Err(backwards(index, self.last, event.at));
        }
        self.last = event.at;
        self.target.advance_to(event.at);
        if self.logging {
            self.target.set_event(index);
        }
        match event.kind() {
            EventKind::Alloc => self.alloc(index, event),
            EventKind::Free => self.free(index, event),
            _ => self.other(index, event),
        }
    }

    #[inline(never)]
    fn other(&mut self, index: u64, event: &Event) -> Result<Outcome, TraceError> {
        let pool = event.pool();
        let op = match event.kind() {
            EventKind::Alloc | EventKind::AllocRefused => return self.alloc(index, event),
            EventKind::Preexisting => return self.preexisting(index, event),
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

    /// Shows a step to the observer.
    #[inline]
    pub(super) fn observe<O: Observer + ?Sized>(
        &mut self,
        observer: &mut O,
        index: u64,
        event: &Event,
        stack: StackId,
        outcome: Outcome,
    ) {
        let oom = match outcome {
            Outcome::Refused => self.refusal.as_ref(),
            _ => None,
        };
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
        observer.on_step(&step);
        if observer.wants_heap(&step) {
            observer.on_heap(&step, &PolicyHeap(&*self.policy), &*self.target);
        }
        if self.logging {
            if observer.drains_log() {
                self.target.clear_log();
            }
            self.seen = self.target.log().len();
        }
    }

    /// Ends the run after `events` events, of which the first was at `first`.
    pub(super) fn finish<O: Observer + ?Sized>(
        mut self,
        observer: &mut O,
        events: u64,
        first: Nanos,
    ) -> RunEnd {
        self.end.events = events;
        self.end.span = (events > 0).then_some((first, self.last));
        self.end.live = self.slots.live().collect();
        self.end.live.extend(self.restored.iter().map(|(&slot, &block)| (slot, block)));
        self.end.stats = *self.policy.stats();
        observer.finish(&self.end, self.target.ledger());
        self.end
    }

    fn preexisting(&mut self, index: u64, event: &Event) -> Result<Outcome, TraceError> {
        let Some(block) = self.restored.remove(&event.slot) else {
            return self.alloc(index, event);
        };
        self.slots.claim(event.slot, index, self.end.allocs)?;
        self.slots.set(event.slot, State::Live(block));
        Ok(Outcome::Restored)
    }

    #[inline]
    fn alloc(&mut self, index: u64, event: &Event) -> Result<Outcome, TraceError> {
        let slot = event.slot;
        let keeps = event.kind() != EventKind::AllocRefused;
        self.end.allocs += 1;
        if keeps {
            self.slots.claim(slot, index, self.end.allocs)?;
        }
        if event.size == 0 {
            return Ok(self.skip_request(slot, keeps));
        }
        let request =
            AllocRequest { size: event.size, stream: event.stream, pool: event.pool(), slot };
        match self.policy.malloc(self.target, request) {
            Ok(grant) => {
                if self.logging {
                    self.note_alloc(event, &grant, keeps);
                }
                if keeps {
                    self.slots.set(slot, State::Live(grant.block));
                } else {
                    self.rescue(event, &grant);
                }
                Ok(Outcome::Granted(grant))
            }
            Err(error) => self.refuse(index, event, &error),
        }
    }

    /// A request for no bytes never reaches an allocator: the program gets a null pointer.
    #[cold]
    fn skip_request(&mut self, slot: Slot, keeps: bool) -> Outcome {
        self.end.allocs -= 1;
        self.end.skipped += 1;
        if keeps {
            self.slots.set(slot, State::Refused);
        }
        Outcome::Skipped
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
    ) -> Result<Outcome, TraceError> {
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
        self.refusal = Some(OomRecord {
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
        });
        Ok(Outcome::Refused)
    }
}
