//! A trace in memory.

use crate::error::TraceError;
use crate::event::{Annotation, Batch, Event, EventSource, TraceHeader};
use crate::heap::HeapImage;
use crate::stack::{StackId, StackTable};
use std::sync::Arc;

/// Events per batch that sources hand out.
pub const BATCH: usize = 4096;

/// A whole trace in memory, ready to be shared between threads.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// What the trace says of itself.
    pub header: TraceHeader,
    /// The events.
    pub events: Vec<Event>,
    /// The stack of each event, or empty.
    pub event_stacks: Vec<StackId>,
    /// All stacks.
    pub stacks: StackTable,
    /// Named spans.
    pub annotations: Vec<Annotation>,
    /// The heap before the first event, with the slots of its `Preexisting` events, where the source knew it.
    pub initial_heap: Option<HeapImage>,
}

impl Trace {
    /// One more than the largest slot.
    pub fn slot_count(&self) -> u32 {
        self.events.iter().map(|e| e.slot.0 + 1).max().unwrap_or(0)
    }
}

/// Streams a [`Trace`]. Cheap to make; many can read one trace at the same time.
pub struct TraceReader {
    trace: Arc<Trace>,
    next: usize,
}

impl TraceReader {
    /// A reader at the first event.
    pub fn new(trace: Arc<Trace>) -> Self {
        TraceReader { trace, next: 0 }
    }
}

impl EventSource for TraceReader {
    fn header(&self) -> &TraceHeader {
        &self.trace.header
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        let end = (self.next + BATCH).min(self.trace.events.len());
        batch.events.extend_from_slice(&self.trace.events[self.next..end]);
        if !self.trace.event_stacks.is_empty() {
            batch.stacks.extend_from_slice(&self.trace.event_stacks[self.next..end]);
        }
        let any = end > self.next;
        self.next = end;
        Ok(any)
    }
}
