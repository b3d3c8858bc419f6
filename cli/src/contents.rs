//! What the events of a trace amount to, in one pass.

use poolsim_core::{Batch, Bytes, Event, EventKind, EventSource, Nanos, TraceError};
use poolsim_reports::sparkline::Highs;
use poolsim_traces::Digester;
use std::collections::{BTreeMap, BTreeSet};

/// Counts over all events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Events.
    pub events: u64,
    /// Events by kind, only kinds that occur.
    pub by_kind: BTreeMap<&'static str, u64>,
    /// Requests by stream number.
    pub by_stream: BTreeMap<u16, u64>,
    /// Requests by pool number.
    pub by_pool: BTreeMap<u16, u64>,
    /// Time of the first and the last event.
    pub span: Option<(Nanos, Nanos)>,
    /// Sum of all requests that were granted when recorded.
    pub requested_in_all: Bytes,
    /// Largest request.
    pub largest_request: Bytes,
    /// Highest sum of the sizes that the program held at once.
    pub peak_live: Bytes,
    /// What it still held at the end.
    pub final_live: Bytes,
    /// Allocations from before the first event, and how many of them are freed later.
    pub preexisting: u64,
    /// Of these, freed by the trace.
    pub preexisting_freed: u64,
    /// Digest of the events (hex).
    pub digest: String,
    /// Live bytes over the events.
    pub curve: Highs,
    live: Bytes,
    from_before: BTreeSet<u32>,
}

impl Contents {
    /// Reads the source to its end.
    ///
    /// # Errors
    /// Those of the source.
    pub fn read(source: &mut dyn EventSource) -> Result<Contents, TraceError> {
        let mut contents = Contents::default();
        let mut batch = Batch::default();
        let mut digester = Digester::default();
        while source.fill(&mut batch)? {
            digester.update(&batch.events);
            batch.events.iter().for_each(|event| contents.add(event));
        }
        contents.final_live = contents.live;
        contents.digest = digester.finish().to_string();
        Ok(contents)
    }

    fn add(&mut self, event: &Event) {
        self.events += 1;
        *self.by_kind.entry(event.kind().name()).or_default() += 1;
        let start = self.span.map_or(event.at, |(start, _)| start);
        self.span = Some((start, event.at));
        match event.kind() {
            kind @ (EventKind::Alloc | EventKind::Preexisting | EventKind::AllocRefused) => {
                self.request(event, kind);
            }
            EventKind::Free | EventKind::FreeLater => {
                self.live = self.live.saturating_sub(event.size);
                if self.from_before.remove(&event.slot.0) {
                    self.preexisting_freed += 1;
                }
            }
            _ => {}
        }
        self.curve.push(self.live);
    }

    fn request(&mut self, event: &Event, kind: EventKind) {
        *self.by_stream.entry(event.stream.0).or_default() += 1;
        *self.by_pool.entry(event.pool().0).or_default() += 1;
        self.largest_request = self.largest_request.max(event.size);
        if !kind.makes_live() {
            return;
        }
        if kind == EventKind::Preexisting {
            self.preexisting += 1;
            self.from_before.insert(event.slot.0);
        } else {
            self.requested_in_all = self.requested_in_all.saturating_add(event.size);
        }
        self.live = self.live.saturating_add(event.size);
        self.peak_live = self.peak_live.max(self.live);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolsim_core::{PoolId, Slot, StreamId, Trace, TraceReader};
    use std::sync::Arc;

    #[test]
    fn live_bytes_follow_the_program_not_the_completion() {
        let event = |kind, at, slot, size| {
            Event::new(kind, at, Slot(slot), size, StreamId(0), PoolId::DEFAULT)
        };
        let events = vec![
            event(EventKind::Preexisting, 0, 0, 100),
            event(EventKind::Preexisting, 0, 1, 10),
            event(EventKind::Alloc, 5, 2, 1000),
            event(EventKind::FreeLater, 6, 2, 1000),
            event(EventKind::AllocRefused, 7, 3, 9999),
            event(EventKind::FreeDone, 8, 2, 1000),
            event(EventKind::Free, 9, 0, 100),
        ];
        let trace = Arc::new(Trace { events, ..Trace::default() });
        let contents = Contents::read(&mut TraceReader::new(trace)).unwrap();
        assert_eq!((contents.peak_live, contents.final_live), (1110, 10));
        assert_eq!((contents.preexisting, contents.preexisting_freed), (2, 1));
        assert_eq!(contents.span, Some((0, 9)));
        assert_eq!((contents.requested_in_all, contents.largest_request), (1000, 9999));
        assert_eq!(contents.by_kind["alloc_refused"], 1);
    }
}
