//! Frees and uses.

use super::run::{Held, Run};
use super::slots::State;
use super::{Observer, Outcome, illegal};
use poolsim_core::{Action, BlockId, Event, Policy, ReplayTarget, Slot, StreamId, TraceError};

impl<P, T, O> Run<'_, P, T, O>
where
    P: Policy + ?Sized,
    T: ReplayTarget,
    O: Observer + ?Sized,
{
    #[inline(always)]
    pub(super) fn free(
        &mut self,
        index: u64,
        event: &Event,
    ) -> Result<Outcome<'static>, TraceError> {
        let slot = event.slot;
        let State::Live(block) = self.slots.get(slot) else {
            return self.free_of_nothing(index, slot, State::Empty);
        };
        self.slots.set(slot, State::Empty);
        let plain = self.used.is_empty() || !self.used.remove(&slot);
        if self.logging && !self.freed_before.is_empty() && self.freed_before.remove(&slot) {
            self.completed_only(slot, block);
        } else if self.logging {
            self.free_with_notes(slot, block, plain);
        } else {
            self.policy.free(self.target, block);
        }
        Ok(Outcome::Done)
    }

    /// A free whose request came before the trace and whose completion is its first event.
    #[cold]
    fn completed_only(&mut self, slot: Slot, block: BlockId) {
        let Held { addr, size, stream } = self.held[slot.index()];
        self.policy.free(self.target, block);
        self.target.note(Action::FreeCompleted, addr, size, stream);
    }

    /// Frees and notes it. A block that was used on other streams may complete later, which the policy notes; it
    /// completed at once if it left the active bytes without such a note.
    #[cold]
    fn free_with_notes(&mut self, slot: Slot, block: BlockId, plain: bool) {
        let Held { addr, size, stream } = self.held[slot.index()];
        self.target.note(Action::FreeRequested, addr, size, stream);
        let lines = self.target.log().len();
        let active = self.policy.stats().active.current;
        self.policy.free(self.target, block);
        let noted =
            || self.target.log()[lines..].iter().any(|line| line.action == Action::FreeCompleted);
        if plain || (self.policy.stats().active.current < active && !noted()) {
            self.target.note(Action::FreeCompleted, addr, size, stream);
        }
    }

    /// A free or use of a slot that is not live: left out if its request was refused, else an error.
    #[cold]
    fn free_of_nothing(
        &mut self,
        index: u64,
        slot: Slot,
        after: State,
    ) -> Result<Outcome<'static>, TraceError> {
        match self.slots.get(slot) {
            State::Refused => {
                self.slots.set(slot, after);
                self.end.skipped += 1;
                Ok(Outcome::Skipped)
            }
            State::Pending | State::RefusedPending => {
                Err(illegal(index, format!("slot {slot} is freed twice; remove one of the frees")))
            }
            _ => Err(illegal(
                index,
                format!("slot {slot} is freed or used but not live; was its request cut off?"),
            )),
        }
    }

    #[inline(never)]
    pub(super) fn free_later(
        &mut self,
        index: u64,
        event: &Event,
    ) -> Result<Outcome<'static>, TraceError> {
        let slot = event.slot;
        let State::Live(block) = self.slots.get(slot) else {
            return self.free_of_nothing(index, slot, State::RefusedPending);
        };
        self.slots.set(slot, State::Pending);
        if !self.used.remove(&slot) {
            self.policy.record_stream(self.target, block, StreamId::FOREIGN);
        }
        self.target.hold(slot);
        if self.logging && !self.freed_before.remove(&slot) {
            self.free_with_notes(slot, block, false);
        } else {
            self.policy.free(self.target, block);
        }
        self.target.end_hold();
        Ok(Outcome::Done)
    }

    pub(super) fn free_done(
        &mut self,
        index: u64,
        event: &Event,
    ) -> Result<Outcome<'static>, TraceError> {
        let slot = event.slot;
        match self.slots.get(slot) {
            State::Pending => {
                self.slots.set(slot, State::Empty);
                self.target.complete(slot);
                Ok(Outcome::Done)
            }
            State::RefusedPending => {
                self.slots.set(slot, State::Empty);
                self.end.skipped += 1;
                Ok(Outcome::Skipped)
            }
            _ => {
                Err(illegal(index, format!("slot {slot} completes a free that was not requested")))
            }
        }
    }

    #[inline(never)]
    pub(super) fn use_on(
        &mut self,
        index: u64,
        event: &Event,
    ) -> Result<Outcome<'static>, TraceError> {
        let State::Live(block) = self.slots.get(event.slot) else {
            return self.free_of_nothing(index, event.slot, State::Refused);
        };
        self.used.insert(event.slot);
        self.policy.record_stream(self.target, block, event.stream);
        Ok(Outcome::Done)
    }
}
