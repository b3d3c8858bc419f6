//! A trace while it is read.

use super::event::{EventRow, Id};
use super::stacks::StackTables;
use crate::check::{Checker, Request};
use poolsim_core::event::{Annotation, PoolInfo};
use poolsim_core::heap::HeapImage;
use poolsim_core::{Bytes, Event, Slot, StreamId, Trace, TraceHeader};
use std::collections::BTreeSet;

/// Everything read so far.
#[derive(Default)]
pub(crate) struct State {
    pub header: TraceHeader,
    pub knows_given: bool,
    pub capacity: Option<Bytes>,
    pub stacks: StackTables,
    pub annotations: Vec<Annotation>,
    pub initial_heap: Option<HeapImage>,
    seen: BTreeSet<String>,
    given_slots: bool,
    times: bool,
    checker: Checker<Id>,
    events: Vec<Event>,
}

impl State {
    /// Whether a field of the document is read for the first time.
    pub fn first_time(&mut self, field: &str) -> bool {
        self.seen.insert(field.into())
    }

    /// Forgets which of the side tables were read: in JSON lines each may come in parts.
    pub fn allow_parts(&mut self) {
        for table in ["frames", "stacks", "annotations"] {
            self.seen.remove(table);
        }
    }

    /// Events read so far.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// The field `ids`.
    pub fn set_ids(&mut self, ids: &str) -> Result<(), String> {
        if !self.events.is_empty() {
            return Err("`ids` must come before the first event".into());
        }
        match ids {
            "names" => Ok(()),
            "slots" => {
                self.given_slots = true;
                self.checker = Checker::of_given_slots(|id| match id {
                    Id::Number(number) => Slot(u32::try_from(*number).unwrap_or(u32::MAX)),
                    Id::Text(_) => Slot(u32::MAX),
                });
                Ok(())
            }
            other => Err(format!("`ids` is `names` or `slots`, not `{other}`")),
        }
    }

    /// Adds an event.
    pub fn push(&mut self, row: EventRow) -> Result<(), String> {
        let EventRow { kind, id, size, stream, pool, at, stack } = row;
        if self.given_slots && matches!(id, Some(Id::Text(_))) {
            return Err("with `\"ids\": \"slots\"`, ids are slot numbers".into());
        }
        self.times |= at.is_some();
        let event = self.checker.admit(Request { kind, id, size, stream, pool, at })?;
        self.events.push(event);
        self.stacks.push(stack);
        Ok(())
    }

    /// The trace. Fails on what can only be seen at the end.
    pub fn finish(mut self) -> Result<Trace, String> {
        if self.initial_heap.is_some() && !self.given_slots {
            return Err(
                "`initial_heap` names slots, so `\"ids\": \"slots\"` must come before the events"
                    .into(),
            );
        }
        let any_stack = self.stacks.any();
        let (stacks, event_stacks) = self.stacks.finish()?;
        let header = &mut self.header;
        if !self.seen.contains("source") {
            header.source = "native-json".into();
        }
        if !self.knows_given {
            header.knows.times = self.times;
            header.knows.stacks = any_stack;
        }
        if let Some(capacity) = self.capacity {
            header.attributes.insert("capacity".into(), capacity.to_string());
        }
        name_streams_and_pools(header, &self.events);
        header.events = Some(self.events.len() as u64);
        let mut trace = Trace {
            header: self.header,
            events: self.events,
            event_stacks,
            stacks,
            annotations: self.annotations,
            initial_heap: self.initial_heap,
        };
        trace.header.slots = Some(trace.slot_count());
        Ok(trace)
    }
}

/// Gives the streams and pools that events use, and the header does not list, their number as their name.
fn name_streams_and_pools(header: &mut TraceHeader, events: &[Event]) {
    let streams = events.iter().map(|e| e.stream).filter(|&s| s != StreamId::FOREIGN);
    let streams = streams.map(|s| usize::from(s.0) + 1).max().unwrap_or(0);
    for number in header.streams.len()..streams {
        header.streams.push(number as u64);
    }
    let pools = events.iter().map(|e| usize::from(e.pool().0) + 1).max().unwrap_or(0);
    for number in header.pools.len()..pools {
        header.pools.push(PoolInfo { id: (number as u64, 0), ..PoolInfo::default() });
    }
}
