//! From when to when each allocation needs its memory.

use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{
    Batch, Bytes, Event, EventKind, EventSource, PoolId, Slot, StreamId, TraceError,
};
use std::collections::HashMap;

/// An allocation that a trace was granted, and when it needs its memory, in event indices. The interval is half open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The event that asks for it.
    pub lower: u64,
    /// The event that ends it: its free, or the completion of its free where that had to wait for other streams.
    pub upper: u64,
    /// The event that frees it; before `upper` if the free had to wait.
    pub freed: u64,
    /// Bytes asked for; never 0.
    pub size: Bytes,
    /// On which stream.
    pub stream: StreamId,
    /// From which pool.
    pub pool: PoolId,
}

/// Every allocation of a trace, in the order in which they were asked for. Requests that were refused when they
/// were recorded, and requests of no bytes, are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifetimes {
    /// The allocations.
    pub items: Vec<Lifetime>,
    /// Events of the trace. Whatever is live at its end lives to here.
    pub events: u64,
    /// The `EmptyCache` events.
    pub releases: Vec<u64>,
}

impl Lifetimes {
    /// Reads a source to its end.
    ///
    /// # Errors
    /// Those of the source; a slot that is used while live, or freed while not.
    pub fn read(source: &mut dyn EventSource) -> Result<Lifetimes, TraceError> {
        let mut reader = Reader::default();
        let mut batch = Batch::default();
        while source.fill(&mut batch)? {
            for event in &batch.events {
                reader.step(event)?;
                reader.found.events += 1;
            }
        }
        let mut found = reader.found;
        let end = found.events;
        for item in &mut found.items {
            item.upper = item.upper.min(end);
            item.freed = item.freed.min(item.upper);
        }
        Ok(found)
    }

    /// The highest sum of sizes live at once, each size changed by `size`.
    pub fn peak(&self, size: impl Fn(&Lifetime) -> Bytes) -> Bytes {
        self.peak_until(size, |item| item.upper)
    }

    /// The same if every free were complete at once: what a program could do with that let the host wait for other
    /// streams at each such free.
    pub fn peak_without_waiting(&self) -> Bytes {
        self.peak_until(|item| item.size, |item| item.freed)
    }

    fn peak_until(
        &self,
        size: impl Fn(&Lifetime) -> Bytes,
        end: impl Fn(&Lifetime) -> u64,
    ) -> Bytes {
        let mut ends: Vec<(u64, Bytes)> =
            self.items.iter().map(|item| (end(item), size(item))).collect();
        ends.sort_unstable();
        let (mut live, mut peak, mut next) = (0u64, 0, 0);
        for item in &self.items {
            while next < ends.len() && ends[next].0 <= item.lower {
                live -= ends[next].1;
                next += 1;
            }
            live = live.saturating_add(size(item));
            peak = peak.max(live);
        }
        peak
    }
}

/// Bytes live at once above which a trace is refused, so that sums of offsets cannot overflow.
const MOST: Bytes = 1 << 50;

#[derive(Default)]
struct Reader {
    found: Lifetimes,
    live: Bytes,
    /// The allocation that a slot names; `None` for one that asked for nothing.
    held: HashMap<Slot, (Option<usize>, bool)>,
}

impl Reader {
    fn step(&mut self, event: &Event) -> Result<(), TraceError> {
        let index = self.found.events;
        match event.kind() {
            EventKind::Alloc | EventKind::Preexisting => self.begin(event, index)?,
            EventKind::Free => self.end(event, index, true)?,
            EventKind::FreeLater => self.end(event, index, false)?,
            EventKind::FreeDone => match self.held.remove(&event.slot) {
                Some((item, true)) => {
                    if let Some(item) = item {
                        self.found.items[item].upper = index;
                    }
                }
                _ => {
                    return Err(illegal(
                        index,
                        event.slot,
                        "completes a free that was not requested",
                    ));
                }
            },
            EventKind::EmptyCache => self.found.releases.push(index),
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, event: &Event, index: u64) -> Result<(), TraceError> {
        let item = (event.size > 0).then_some(self.found.items.len());
        if self.held.insert(event.slot, (item, false)).is_some() {
            return Err(illegal(index, event.slot, "is allocated again while it is live"));
        }
        if item.is_some() {
            self.live = self.live.saturating_add(event.size);
            if self.live > MOST {
                let what = "more than 2^50 bytes are live, which no packing needs to be found for; check the sizes";
                return Err(TraceError::new(TraceErrorKind::Refused, Place::Event(index), what));
            }
            self.found.items.push(Lifetime {
                lower: index,
                upper: u64::MAX,
                freed: u64::MAX,
                size: event.size,
                stream: event.stream,
                pool: event.pool(),
            });
        }
        Ok(())
    }

    fn end(&mut self, event: &Event, index: u64, complete: bool) -> Result<(), TraceError> {
        let Some(entry @ (_, false)) = self.held.get_mut(&event.slot) else {
            return Err(illegal(index, event.slot, "is freed but not live"));
        };
        let item = entry.0;
        entry.1 = true;
        if let Some(item) = item.map(|i| &mut self.found.items[i]) {
            item.freed = index;
            self.live -= item.size;
            if complete {
                item.upper = index;
            }
        }
        if complete {
            self.held.remove(&event.slot);
        }
        Ok(())
    }
}

fn illegal(index: u64, slot: Slot, what: &str) -> TraceError {
    let what = format!("slot {slot} {what}; `poolsim info` checks a trace as a whole");
    TraceError::new(TraceErrorKind::Illegal, Place::Event(index), what)
}
