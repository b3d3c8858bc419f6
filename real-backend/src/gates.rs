//! Recorded completions on the GPU itself: a stream that waits until the trace says so.
//!
//! A driver pool finds out by itself which frees the GPU has passed. To show it what the recorded program's streams were
//! doing, a free whose completion the trace knows is put behind a stream that waits for a number in host memory, and
//! completions raise that number. One stream serves all: the pool's frees behind it run in order anyway, and many streams
//! that wait would hold up others in the same hardware queue.

use crate::call::{Context, Result};
use cudarc::driver::sys::{CUevent, CUstream};
use poolsim_core::Slot;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for the GPU to pass an open gate. It takes microseconds, unless streams share a hardware queue.
const LONGEST: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Gate {
    slot: Slot,
    /// The number that opens it.
    ticket: u32,
    open: bool,
    /// Recorded behind the free.
    after: Option<CUevent>,
}

#[derive(Debug)]
struct State {
    /// The stream that waits, and the number in host memory; made at the first gate.
    made: Option<(CUstream, *mut u32)>,
    tickets: u32,
    /// In the order in which their frees were queued.
    gates: VecDeque<Gate>,
    events: Vec<CUevent>,
    holding: Option<Slot>,
    overdue: u64,
}

// SAFETY: stream, event and host memory handles may be used from any thread that has the context current.
unsafe impl Send for State {}

/// The gates of a device.
#[derive(Debug)]
pub struct Gates {
    context: Arc<Context>,
    /// Completions come from the streams, never from the trace.
    real: bool,
    state: Mutex<State>,
}

impl Gates {
    pub(crate) fn new(context: Arc<Context>, real: bool) -> Self {
        let state = State {
            made: None,
            tickets: 0,
            gates: VecDeque::new(),
            events: Vec::new(),
            holding: None,
            overdue: 0,
        };
        Gates { context, real, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hold(&self, slot: Slot) {
        self.state().holding = Some(slot).filter(|_| !self.real);
    }

    pub(crate) fn end_hold(&self) {
        self.state().holding = None;
    }

    /// A stream whose present end is the completion of the free that is under way, if the trace knows one.
    pub(crate) fn close(&self) -> Result<Option<CUstream>> {
        let mut state = self.state();
        let Some(slot) = state.holding else { return Ok(None) };
        let (stream, word) = match state.made {
            Some(made) => made,
            None => *state.made.insert((self.context.stream()?, self.context.host_alloc(4)?)),
        };
        state.tickets += 1;
        let ticket = state.tickets;
        self.context.wait_word(stream, word, ticket)?;
        state.gates.push_back(Gate { slot, ticket, open: false, after: None });
        Ok(Some(stream))
    }

    /// The free that the newest gate holds back was queued on `stream`.
    pub(crate) fn queued(&self, stream: CUstream) -> Result<()> {
        let mut state = self.state();
        let event = match state.events.pop() {
            Some(event) => event,
            None => self.context.event()?,
        };
        self.context.record(event, stream)?;
        if let Some(gate) = state.gates.back_mut() {
            gate.after = Some(event);
        }
        Ok(())
    }

    /// The trace says that the slot's free is complete.
    pub(crate) fn open(&self, slot: Slot) {
        let mut state = self.state();
        if let Some(gate) = state.gates.iter_mut().find(|gate| gate.slot == slot) {
            gate.open = true;
            self.drain(&mut state);
        }
    }

    /// Opens every gate, so that nothing waits for the host any more.
    pub fn open_all(&self) {
        let mut state = self.state();
        state.gates.iter_mut().for_each(|gate| gate.open = true);
        self.drain(&mut state);
    }

    /// Frees that the GPU did not pass in time after their gate was opened.
    pub fn overdue(&self) -> u64 {
        self.state().overdue
    }

    /// Lets the GPU pass the gates at the front that are open, and waits until it has.
    fn drain(&self, state: &mut State) {
        while state.gates.front().is_some_and(|gate| gate.open) {
            let gate = state.gates.pop_front().expect("there is a front");
            if let Some((_, word)) = state.made {
                // SAFETY: the word is alive, and the device only reads it.
                unsafe { word.write_volatile(gate.ticket) };
            }
            let Some(event) = gate.after else { continue };
            let start = Instant::now();
            // Asking does not count as a host wait for the pool, waiting would.
            while !self.context.is_done(event).unwrap_or(true) {
                if start.elapsed() > LONGEST {
                    state.overdue += 1;
                    break;
                }
                std::hint::spin_loop();
            }
            state.events.push(event);
        }
    }
}

impl Drop for Gates {
    fn drop(&mut self) {
        let _ = self.context.enter();
        self.open_all();
        let mut state = self.state();
        if let Some((stream, word)) = state.made.take() {
            let _ = self.context.synchronize_stream(stream);
            let _ = self.context.destroy_stream(stream);
            let _ = self.context.host_free(word);
        }
        for event in std::mem::take(&mut state.events) {
            let _ = self.context.destroy_event(event);
        }
    }
}
