//! A program that asks for memory, written down event by event.

use crate::transform::SlotAllocator;
use poolsim_core::event::{Annotation, PoolInfo};
use poolsim_core::{Bytes, Event, EventKind, Nanos, PoolId, Slot, StreamId, Trace, TraceHeader};

/// An allocation that a program holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    slot: Slot,
    size: Bytes,
    stream: StreamId,
    pool: PoolId,
}

impl Held {
    /// Bytes that were asked for.
    pub fn size(&self) -> Bytes {
        self.size
    }
}

/// Writes a trace. Whatever is written is legal, as long as what was freed is not used again.
#[derive(Debug)]
pub struct Program {
    trace: Trace,
    slots: SlotAllocator,
    now: Nanos,
}

impl Program {
    /// An empty program on so many streams.
    pub fn new(streams: u16) -> Self {
        let header = TraceHeader {
            source: "synth".into(),
            streams: (0..u64::from(streams)).collect(),
            pools: vec![PoolInfo::default()],
            ..TraceHeader::default()
        };
        Program::with_header(header)
    }

    pub(crate) fn with_header(header: TraceHeader) -> Self {
        Program {
            trace: Trace { header, ..Trace::default() },
            slots: SlotAllocator::default(),
            now: 0,
        }
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Nanos) {
        self.now = self.now.saturating_add(time);
    }

    pub(crate) fn event(&mut self, kind: EventKind, held: Held) {
        let Held { slot, size, stream, pool } = held;
        self.trace.events.push(Event::new(kind, self.now, slot, size, stream, pool));
    }

    /// An event that is about no allocation.
    pub(crate) fn bare(&mut self, kind: EventKind, stream: StreamId, pool: PoolId) {
        self.event(kind, Held { slot: Slot(0), size: 0, stream, pool });
    }

    pub(crate) fn ask(
        &mut self,
        kind: EventKind,
        size: Bytes,
        stream: StreamId,
        pool: PoolId,
    ) -> Held {
        let slot = if kind.makes_live() { self.slots.take() } else { self.slots.peek() };
        let held = Held { slot, size: size.max(1), stream, pool };
        self.event(kind, held);
        held
    }

    /// Asks for memory on a stream, from the default pool.
    pub fn alloc(&mut self, size: Bytes, stream: u16) -> Held {
        self.ask(EventKind::Alloc, size, StreamId(stream), PoolId::DEFAULT)
    }

    /// Frees it; nothing is in flight.
    pub fn free(&mut self, held: Held) {
        self.event(EventKind::Free, held);
        self.slots.release(held.slot);
    }

    /// Uses it on another stream.
    pub fn used_on(&mut self, held: Held, stream: u16) {
        self.event(EventKind::Use, Held { size: 0, stream: StreamId(stream), ..held });
    }

    /// Frees it while other streams still use it; [`Program::free_done`] follows.
    pub fn free_later(&mut self, held: Held) {
        self.event(EventKind::FreeLater, held);
    }

    /// The other streams are done with it.
    pub fn free_done(&mut self, held: Held) {
        self.event(EventKind::FreeDone, held);
        self.slots.release(held.slot);
    }

    /// The host waits for a stream.
    pub fn wait_for(&mut self, stream: u16) {
        self.bare(EventKind::SyncStream, StreamId(stream), PoolId::DEFAULT);
    }

    /// Gives a stretch a name: from here to [`Program::end_span`].
    pub fn start_span(&mut self, name: impl Into<String>) {
        let span = Annotation { name: name.into(), start: self.now, end: None };
        self.trace.annotations.push(span);
    }

    /// Ends the span that was started last.
    pub fn end_span(&mut self) {
        let now = self.now;
        if let Some(span) = self.trace.annotations.iter_mut().rev().find(|a| a.end.is_none()) {
            span.end = Some(now);
        }
    }

    /// Events so far.
    pub(crate) fn len(&self) -> usize {
        self.trace.events.len()
    }

    /// The trace.
    pub fn finish(mut self) -> Trace {
        self.trace.header.events = Some(self.trace.events.len() as u64);
        self.trace.header.slots = Some(self.slots.slot_count());
        self.trace
    }
}
