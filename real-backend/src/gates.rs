//! Recorded completions on the GPU itself: streams that wait until the trace says so.
//!
//! A driver pool finds out by itself which frees the GPU has passed. To show it what the recorded program's streams were
//! doing, a free whose completion the trace knows is put behind a stream that waits for a word in host memory, and the
//! completion writes that word.

use crate::call::{Context, Result};
use cudarc::driver::sys::{CUevent, CUstream};
use poolsim_core::Slot;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most gates that may be closed at once; further frees are not held.
const MOST: usize = 1024;
/// Longest wait for the GPU to pass an open gate. It takes microseconds, unless streams share a hardware queue.
const LONGEST: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Gate {
    slot: Slot,
    number: usize,
    open: bool,
    /// Recorded behind the free.
    after: Option<CUevent>,
}

#[derive(Debug)]
struct State {
    words: *mut u32,
    streams: Vec<CUstream>,
    /// Numbers of streams and words that no gate uses.
    unused: Vec<usize>,
    /// Gates in the order in which their frees were queued; frees behind a closed gate wait too.
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
            words: std::ptr::null_mut(),
            streams: Vec::new(),
            unused: Vec::new(),
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

    /// A stream that waits for the completion of the free that is under way, if the trace knows one.
    pub(crate) fn close(&self) -> Result<Option<CUstream>> {
        let mut state = self.state();
        let Some(slot) = state.holding else { return Ok(None) };
        if state.words.is_null() {
            state.words = self.context.host_alloc(4 * MOST as u64)?;
        }
        let number = match state.unused.pop() {
            Some(number) => number,
            None if state.streams.len() == MOST => {
                state.overdue += 1;
                return Ok(None);
            }
            None => {
                state.streams.push(self.context.stream()?);
                state.streams.len() - 1
            }
        };
        let word = state.word(number);
        // SAFETY: the word is this gate's alone, and no stream waits for it now.
        unsafe { word.write_volatile(0) };
        let stream = state.streams[number];
        self.context.wait_word(stream, word, 1)?;
        state.gates.push_back(Gate { slot, number, open: false, after: None });
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
        if let Some(at) = state.gates.iter().position(|gate| gate.slot == slot) {
            state.open(at);
            self.drain(&mut state);
        }
    }

    /// Opens every gate, so that nothing waits for the host any more.
    pub fn open_all(&self) {
        let mut state = self.state();
        for at in 0..state.gates.len() {
            state.open(at);
        }
        self.drain(&mut state);
    }

    /// Frees that the GPU did not pass in time after their gate was opened, or for which there was no gate.
    pub fn overdue(&self) -> u64 {
        self.state().overdue
    }

    /// Waits for the GPU to pass the gates at the front that are open.
    fn drain(&self, state: &mut State) {
        while state.gates.front().is_some_and(|gate| gate.open) {
            let gate = state.gates.pop_front().expect("there is a front");
            state.unused.push(gate.number);
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

impl State {
    fn word(&self, number: usize) -> *mut u32 {
        debug_assert!(number < MOST && !self.words.is_null());
        // SAFETY: the memory holds `MOST` words.
        unsafe { self.words.add(number) }
    }

    fn open(&mut self, at: usize) {
        self.gates[at].open = true;
        let word = self.word(self.gates[at].number);
        // SAFETY: the word is the gate's; the device only reads it.
        unsafe { word.write_volatile(1) };
    }
}

impl Drop for Gates {
    fn drop(&mut self) {
        let _ = self.context.enter();
        self.open_all();
        let mut state = self.state();
        for stream in std::mem::take(&mut state.streams) {
            let _ = self.context.synchronize_stream(stream);
            let _ = self.context.destroy_stream(stream);
        }
        for event in std::mem::take(&mut state.events) {
            let _ = self.context.destroy_event(event);
        }
        if !state.words.is_null() {
            let _ = self.context.host_free(state.words);
        }
    }
}
