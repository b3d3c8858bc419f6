//! What an observer sees.

use super::RunEnd;
use poolsim_core::record::{Decision, OomRecord};
use poolsim_core::stack::StackId;
use poolsim_core::{Bytes, Event, Grant, HeapVisitor, Ledger, PoolStats, ReplayTarget};

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// A request was granted. One that the recorded run was refused is freed again at once.
    Granted(&'a Grant),
    /// A request was refused; [`Step::oom`] says why.
    Refused,
    /// A block was taken over from the initial heap.
    Restored,
    /// The event was sent to policy and device.
    Done,
    /// `empty_cache` gave this many bytes back.
    GaveBack(Bytes),
    /// The event was left out: its request was refused before, or asked for no bytes, or would not have been made had the
    /// recorded run been granted what this one was.
    Skipped,
}

/// One event, replayed.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    /// The event's index in the trace.
    pub index: u64,
    /// The event.
    pub event: &'a Event,
    /// Its stack.
    pub stack: StackId,
    /// What became of it.
    pub outcome: Outcome<'a>,
    /// The refused request.
    pub oom: Option<&'a OomRecord>,
    /// The policy's numbers after it.
    pub stats: &'a PoolStats,
    /// What the device was called for so far.
    pub ledger: &'a Ledger,
    /// What was decided for it; empty if the device keeps no log.
    pub log: &'a [Decision],
}

/// A heap that can be walked.
pub trait Heap {
    /// Walks it, as [`poolsim_core::Policy::visit`].
    fn visit(&self, visitor: &mut dyn HeapVisitor);
}

/// Folds a run into something. Observers only read.
pub trait Observer {
    /// After every event; must be O(1).
    fn on_step(&mut self, step: &Step<'_>) {
        let _ = step;
    }
    /// Whether [`Observer::on_heap`] is wanted for this step.
    fn wants_heap(&self, step: &Step<'_>) -> bool {
        let _ = step;
        false
    }
    /// After the steps that [`Observer::wants_heap`] chose; may walk the heap.
    fn on_heap(&mut self, step: &Step<'_>, heap: &dyn Heap, device: &dyn ReplayTarget) {
        let _ = (step, heap, device);
    }
    /// Whether this observer takes the log line by line, so that the device need not keep it.
    fn drains_log(&self) -> bool {
        false
    }
    /// When the run is over.
    fn finish(&mut self, end: &RunEnd, ledger: &Ledger) {
        let _ = (end, ledger);
    }
}

impl Observer for () {}

impl<A: Observer, B: Observer> Observer for (A, B) {
    #[inline(always)]
    fn on_step(&mut self, step: &Step<'_>) {
        self.0.on_step(step);
        self.1.on_step(step);
    }
    #[inline(always)]
    fn wants_heap(&self, step: &Step<'_>) -> bool {
        self.0.wants_heap(step) || self.1.wants_heap(step)
    }
    fn on_heap(&mut self, step: &Step<'_>, heap: &dyn Heap, device: &dyn ReplayTarget) {
        if self.0.wants_heap(step) {
            self.0.on_heap(step, heap, device);
        }
        if self.1.wants_heap(step) {
            self.1.on_heap(step, heap, device);
        }
    }
    fn drains_log(&self) -> bool {
        self.0.drains_log() || self.1.drains_log()
    }
    fn finish(&mut self, end: &RunEnd, ledger: &Ledger) {
        self.0.finish(end, ledger);
        self.1.finish(end, ledger);
    }
}

impl<O: Observer + ?Sized> Observer for &mut O {
    #[inline(always)]
    fn on_step(&mut self, step: &Step<'_>) {
        (**self).on_step(step);
    }
    #[inline(always)]
    fn wants_heap(&self, step: &Step<'_>) -> bool {
        (**self).wants_heap(step)
    }
    fn on_heap(&mut self, step: &Step<'_>, heap: &dyn Heap, device: &dyn ReplayTarget) {
        (**self).on_heap(step, heap, device);
    }
    fn drains_log(&self) -> bool {
        (**self).drains_log()
    }
    fn finish(&mut self, end: &RunEnd, ledger: &Ledger) {
        (**self).finish(end, ledger);
    }
}

impl<'o> Observer for Vec<Box<dyn Observer + 'o>> {
    #[inline]
    fn on_step(&mut self, step: &Step<'_>) {
        self.iter_mut().for_each(|o| o.on_step(step));
    }
    #[inline]
    fn wants_heap(&self, step: &Step<'_>) -> bool {
        self.iter().any(|o| o.wants_heap(step))
    }
    fn on_heap(&mut self, step: &Step<'_>, heap: &dyn Heap, device: &dyn ReplayTarget) {
        self.iter_mut().filter(|o| o.wants_heap(step)).for_each(|o| o.on_heap(step, heap, device));
    }
    fn drains_log(&self) -> bool {
        self.iter().any(|o| o.drains_log())
    }
    fn finish(&mut self, end: &RunEnd, ledger: &Ledger) {
        self.iter_mut().for_each(|o| o.finish(end, ledger));
    }
}
