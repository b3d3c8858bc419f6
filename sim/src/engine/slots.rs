//! Which slots are live, and as which block.

use super::illegal;
use poolsim_core::{BlockId, Slot, TraceError};

/// What a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Free to be made live.
    Empty,
    /// Live, as this block.
    Live(BlockId),
    /// Freed, and its completion may follow.
    Pending,
    /// Its request was refused (or asked for nothing): events on it are left out.
    Refused,
    /// The same, freed, and its completion may follow.
    RefusedPending,
}

const EMPTY: u32 = u32::MAX;
const PENDING: u32 = u32::MAX - 1;
const REFUSED: u32 = u32::MAX - 2;
const REFUSED_PENDING: u32 = u32::MAX - 3;

/// Slots beyond this many (and beyond twice the requests so far) are not dense; a table for them would let a small
/// trace take any amount of memory.
const SPARE: u64 = 1 << 24;

/// The live table: one word a slot.
#[derive(Debug, Default)]
pub(super) struct Slots {
    words: Vec<u32>,
}

impl Slots {
    #[inline]
    pub(super) fn get(&self, slot: Slot) -> State {
        match self.words.get(slot.index()).copied().unwrap_or(EMPTY) {
            EMPTY => State::Empty,
            PENDING => State::Pending,
            REFUSED => State::Refused,
            REFUSED_PENDING => State::RefusedPending,
            block => State::Live(BlockId(block)),
        }
    }

    /// Sets a slot that is in the table.
    #[inline]
    pub(super) fn set(&mut self, slot: Slot, state: State) {
        self.words[slot.index()] = match state {
            State::Empty => EMPTY,
            State::Pending => PENDING,
            State::Refused => REFUSED,
            State::RefusedPending => REFUSED_PENDING,
            State::Live(block) => {
                assert!(block.0 < REFUSED_PENDING, "block numbers end at {REFUSED_PENDING}");
                block.0
            }
        };
    }

    /// Makes room for a slot that is about to be made live, and checks that it is empty.
    #[inline]
    pub(super) fn claim(&mut self, slot: Slot, event: u64, allocs: u64) -> Result<(), TraceError> {
        match self.words.get(slot.index()) {
            Some(&EMPTY) => Ok(()),
            Some(_) => Err(self.taken(slot, event)),
            None => self.grow(slot, event, allocs),
        }
    }

    #[cold]
    fn taken(&self, slot: Slot, event: u64) -> TraceError {
        let state = match self.get(slot) {
            State::Pending | State::RefusedPending => "its free is not complete (no free_done yet)",
            _ => "it is live",
        };
        illegal(event, format!("slot {slot} is allocated again while {state}; use another slot"))
    }

    #[cold]
    fn grow(&mut self, slot: Slot, event: u64, allocs: u64) -> Result<(), TraceError> {
        if u64::from(slot.0) >= SPARE.max(allocs.saturating_mul(2)) {
            let what =
                format!("slot {slot} after {allocs} requests: slots must be dense; renumber them");
            return Err(illegal(event, what));
        }
        let len = (slot.index() + 1).max(self.words.len() * 2).max(1024);
        self.words.resize(len, EMPTY);
        Ok(())
    }

    /// Live slots in order.
    pub(super) fn live(&self) -> impl Iterator<Item = (Slot, BlockId)> {
        (0u32..).zip(&self.words).filter_map(|(i, _)| match self.get(Slot(i)) {
            State::Live(block) => Some((Slot(i), block)),
            _ => None,
        })
    }
}
