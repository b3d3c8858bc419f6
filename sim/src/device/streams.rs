//! Fences: what is known of when recorded work is done.

use poolsim_core::{DeviceError, FenceId, Slot, StreamId};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unused,
    /// Passes when the slot's other streams are done.
    Held(Slot),
    /// Passed, and not reported yet.
    Passed,
}

#[derive(Clone, Copy, Debug)]
struct Fence {
    state: State,
    stream: StreamId,
}

/// The fences of a device. Work is taken to be done at once unless the engine says otherwise.
#[derive(Clone, Debug, Default)]
pub(super) struct Fences {
    fences: Vec<Fence>,
    unused: Vec<u32>,
    /// Fences by the slot whose completion they wait for, then in order of recording.
    held: BTreeMap<(Slot, u64), FenceId>,
    /// Passed and not reported yet, in order of passing.
    passed: Vec<FenceId>,
    holding: Option<Slot>,
    recorded: u64,
}

impl Fences {
    pub(super) fn hold(&mut self, slot: Slot) {
        self.holding = Some(slot);
    }

    pub(super) fn end_hold(&mut self) {
        self.holding = None;
    }

    /// Whether work that is issued now is known to go on.
    pub(super) fn holding(&self) -> bool {
        self.holding.is_some()
    }

    pub(super) fn record(&mut self, stream: StreamId) -> FenceId {
        let state = self.holding.map_or(State::Passed, State::Held);
        let fence = Fence { state, stream };
        let id = match self.unused.pop() {
            Some(i) => {
                self.fences[i as usize] = fence;
                FenceId(i)
            }
            None => {
                self.fences.push(fence);
                FenceId(u32::try_from(self.fences.len() - 1).expect("fewer than 2^32 open fences"))
            }
        };
        match self.holding {
            Some(slot) => {
                self.held.insert((slot, self.recorded), id);
            }
            None => self.passed.push(id),
        }
        self.recorded += 1;
        id
    }

    /// Whether the fence may be waited for: recorded, and not yet reported as passed.
    pub(super) fn check(&self, id: FenceId) -> Result<(), DeviceError> {
        match self.fences.get(id.index()) {
            Some(f) if f.state != State::Unused => Ok(()),
            _ => Err(DeviceError::Illegal(format!(
                "there is no fence {id}, or it was reported as passed before"
            ))),
        }
    }

    fn pass(&mut self, id: FenceId) {
        self.fences[id.index()].state = State::Passed;
        self.passed.push(id);
    }

    pub(super) fn complete(&mut self, slot: Slot) {
        while let Some((&key, &id)) = self.held.range((slot, 0)..=(slot, u64::MAX)).next() {
            self.held.remove(&key);
            self.pass(id);
        }
    }

    /// Lets every held fence pass, or those of one stream, in order of recording.
    pub(super) fn synchronize(&mut self, stream: Option<StreamId>) {
        let waits = |id: FenceId| stream.is_none_or(|s| self.fences[id.index()].stream == s);
        let mut done: Vec<(u64, Slot, FenceId)> = self
            .held
            .iter()
            .filter(|&(_, &id)| waits(id))
            .map(|(&(slot, number), &id)| (number, slot, id))
            .collect();
        done.sort_unstable();
        for (number, slot, id) in done {
            self.held.remove(&(slot, number));
            self.pass(id);
        }
    }

    /// Reports what passed and forgets it; returns how many that were.
    #[inline]
    pub(super) fn poll(&mut self, out: &mut Vec<FenceId>) -> u64 {
        if self.passed.is_empty() {
            return 0;
        }
        let reported = self.passed.len() as u64;
        for &id in &self.passed {
            self.fences[id.index()].state = State::Unused;
            self.unused.push(id.0);
        }
        out.append(&mut self.passed);
        reported
    }
}
