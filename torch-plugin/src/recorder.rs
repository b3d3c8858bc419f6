//! What the job asked for, as a trace.

use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::event::Knows;
use poolsim_core::{
    Bytes, Event, EventKind, Nanos, PoolId, Slot, StreamId, Trace, TraceError, TraceHeader,
};
use poolsim_traces::{PstWriter, Tables};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Instant;

/// Most events that are kept, 1.2 GB of them; a longer job's trace ends there.
const MOST: usize = 50_000_000;

/// Events of one device, in memory until they are written.
#[derive(Debug)]
pub(crate) struct Recorder {
    start: Instant,
    on: bool,
    events: Vec<Event>,
    /// Slots that no allocation has; the lowest was freed last.
    unused: Vec<Slot>,
    slots: u32,
    cut: bool,
}

impl Recorder {
    /// A recorder that keeps events only if `on`; slots are handed out anyway.
    pub(crate) fn new(on: bool) -> Self {
        Recorder {
            start: Instant::now(),
            on,
            events: Vec::new(),
            unused: Vec::new(),
            slots: 0,
            cut: false,
        }
    }

    /// A slot for a new allocation.
    pub(crate) fn slot(&mut self) -> Slot {
        self.unused.pop().unwrap_or_else(|| {
            self.slots += 1;
            Slot(self.slots - 1)
        })
    }

    /// The slot's allocation is over and complete.
    pub(crate) fn release(&mut self, slot: Slot) {
        self.unused.push(slot);
    }

    pub(crate) fn add(&mut self, kind: EventKind, slot: Slot, size: Bytes, stream: StreamId) {
        if !self.on || self.cut {
            return;
        }
        if self.events.len() == MOST {
            self.cut = true;
            return;
        }
        let at = Nanos::try_from(self.start.elapsed().as_nanos()).unwrap_or(Nanos::MAX);
        self.events.push(Event::new(kind, at, slot, size, stream, PoolId::DEFAULT));
    }

    /// The events so far, with what the trace says of itself.
    pub(crate) fn trace(&self, mut header: TraceHeader) -> Trace {
        header.source = "poolsim-torch".into();
        header.knows = Knows { pools: false, ..Knows::default() };
        if self.cut {
            header.notes.push(format!("the job went on after the {MOST} events that were kept"));
        }
        Trace { header, events: self.events.clone(), ..Trace::default() }
    }

    /// Writes a `.pst`.
    pub(crate) fn write(&self, path: &Path, header: TraceHeader) -> Result<(), TraceError> {
        let trace = self.trace(header);
        let refused = |e: std::io::Error| {
            TraceError::new(TraceErrorKind::Io, Place::Whole, e.to_string()).in_file(path)
        };
        let file = File::create(path).map_err(refused)?;
        let mut writer = PstWriter::new(BufWriter::new(file), &trace.header)?;
        writer.write(&trace.events, &[])?;
        writer.finish(&Tables::default()).map(drop).map_err(|e| e.in_file(path))
    }
}
