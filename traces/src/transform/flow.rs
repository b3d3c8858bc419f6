//! Traces on their way through a tool.

use super::SlotAllocator;
use crate::open::Source;
use crate::tables::OwnedTables;
use poolsim_core::{
    Batch, Event, EventKind, EventSource, Slot, Trace, TraceError, TraceHeader, TraceReader,
};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A trace that a tool takes or gives: events that are streamed, and what goes along with them.
pub struct Flow {
    /// The header and the events.
    pub source: Box<dyn EventSource>,
    /// Stacks, named spans, the heap before the first event.
    pub tables: OwnedTables,
}

impl Flow {
    /// What a file held. A recording must have been turned into requests before.
    ///
    /// # Errors
    /// Those of reading side tables, and [`Source::into_trace`]'s for a recording.
    pub fn of(source: Source) -> Result<Flow, TraceError> {
        if let Source::Pst(reader) = source {
            return Ok(Flow { tables: reader.tables()?, source: Box::new(reader) });
        }
        let mut trace = source.into_trace()?;
        let mut tables = OwnedTables::default();
        tables.stacks = std::mem::take(&mut trace.stacks);
        tables.annotations = std::mem::take(&mut trace.annotations);
        tables.initial_heap = trace.initial_heap.take();
        Ok(Flow { source: Box::new(TraceReader::new(Arc::new(trace))), tables })
    }

    /// A trace that others read too: its events are not copied.
    pub fn shared(trace: &Arc<Trace>) -> Flow {
        let mut tables = OwnedTables::default();
        tables.stacks = trace.stacks.clone();
        tables.annotations.clone_from(&trace.annotations);
        tables.initial_heap.clone_from(&trace.initial_heap);
        Flow { source: Box::new(TraceReader::new(Arc::clone(trace))), tables }
    }

    /// The whole trace in memory.
    ///
    /// # Errors
    /// Those of the source.
    pub fn collect(mut self) -> Result<Trace, TraceError> {
        let mut trace = Trace { header: self.source.header().clone(), ..Trace::default() };
        let mut batch = Batch::default();
        while self.source.fill(&mut batch)? {
            let stacked = !batch.stacks.is_empty();
            if stacked && trace.event_stacks.is_empty() {
                trace.event_stacks.resize(trace.events.len(), Default::default());
            }
            trace.events.extend_from_slice(&batch.events);
            trace.event_stacks.extend_from_slice(&batch.stacks);
            if !stacked && !trace.event_stacks.is_empty() {
                trace.event_stacks.resize(trace.events.len(), Default::default());
            }
        }
        trace.header.events = Some(trace.events.len() as u64);
        trace.header.slots = Some(trace.slot_count());
        trace.stacks = self.tables.stacks;
        trace.annotations = self.tables.annotations;
        trace.initial_heap = self.tables.initial_heap;
        Ok(trace)
    }
}

/// Gives events new slots, so that they stay dense when events are left out or come from several traces.
#[derive(Debug, Default)]
pub(super) struct Renamer {
    slots: SlotAllocator,
    live: FxHashMap<(u32, Slot), Slot>,
}

impl Renamer {
    /// The slot for an event of trace `part`; `None` if it is of nothing that is live.
    pub fn slot(&mut self, part: u32, event: &Event) -> Option<Slot> {
        let name = (part, event.slot);
        match event.kind() {
            EventKind::Alloc | EventKind::Preexisting => {
                let slot = self.slots.take();
                self.live.insert(name, slot);
                Some(slot)
            }
            EventKind::AllocRefused => Some(self.slots.peek()),
            EventKind::Free | EventKind::FreeDone => {
                let slot = self.live.remove(&name)?;
                self.slots.release(slot);
                Some(slot)
            }
            EventKind::FreeLater | EventKind::Use => self.live.get(&name).copied(),
            _ => Some(Slot(0)),
        }
    }
}

/// A header for events that are no longer those of its source.
pub(super) fn derived(header: &TraceHeader) -> TraceHeader {
    TraceHeader { events: None, slots: None, ..header.clone() }
}

/// The same event of another slot.
pub(super) fn with_slot(event: Event, slot: Slot) -> Event {
    let mut event = event;
    event.slot = slot;
    event
}
