//! From a log's own words to a trace: allocations named by address, streams by handle, times by a clock.

use crate::transform::SlotAllocator;
use poolsim_core::units::ShowBytes;
use poolsim_core::{Bytes, Event, EventKind, Nanos, PoolId, Slot, StreamId, Trace, TraceHeader};
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// Where a log says something: a line or an event of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    /// A line, counted from 1.
    Line(u64),
    /// An event, counted from 0.
    Event(u64),
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            At::Line(n) => write!(f, "line {n}"),
            At::Event(n) => write!(f, "event {n}"),
        }
    }
}

/// Collects what a log says, in order of time. Names (addresses) may be used again once they are freed. A free of
/// a name that was never allocated is of something that was alive before the log starts.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    events: Vec<Event>,
    /// What was alive before: size and stream, by order of its free.
    before: Vec<(Bytes, u16)>,
    /// Seeded at random, as the names come from a file.
    names: HashMap<u64, Name>,
    slots: SlotAllocator,
    streams: FxHashMap<u64, u16>,
    handles: Vec<u64>,
    origin: Option<Nanos>,
    last: Nanos,
    live: u128,
    peak: u128,
}

#[derive(Clone, Copy, Debug)]
struct Name {
    slot: Slot,
    size: Bytes,
    stream: u16,
    live: bool,
    since: At,
}

/// Slots of what was alive before the log count down from here until their number is known.
const BEFORE: u32 = u32::MAX;

impl Gather {
    /// A request that was granted.
    ///
    /// # Errors
    /// The name is live, too much would be live, or time runs backwards.
    pub fn alloc(
        &mut self,
        place: At,
        at: Nanos,
        name: u64,
        size: Bytes,
        stream: u64,
    ) -> Result<(), String> {
        if let Some(Name { live: true, since, .. }) = self.names.get(&name) {
            return Err(format!(
                "{name:#x} is allocated, but is live since {since}; the log lacks its free, or lines of two \
                 devices or processes are mixed in it"
            ));
        }
        let at = self.time(at)?;
        let stream = self.stream(stream)?;
        self.grow(size)?;
        let slot = self.slots.take();
        self.names.insert(name, Name { slot, size, stream, live: true, since: place });
        self.push(EventKind::Alloc, at, slot, size, stream);
        Ok(())
    }

    /// A free, with the size and the stream if the log says them. `Ok(false)` if nothing is known of what is freed.
    ///
    /// # Errors
    /// Freed twice, with another size than it has, or time runs backwards.
    pub fn free(
        &mut self,
        place: At,
        at: Nanos,
        name: u64,
        size: Option<Bytes>,
        stream: Option<u64>,
    ) -> Result<bool, String> {
        let at = self.time(at)?;
        let known = self.names.get(&name).copied();
        let freed = match (known, size) {
            (Some(Name { live: false, since, .. }), _) => {
                return Err(format!(
                    "{name:#x} is freed twice, first in {since}; the log lacks an allocation between them"
                ));
            }
            (Some(known), size) => {
                if let Some(size) = size.filter(|size| *size != known.size) {
                    return Err(format!(
                        "{name:#x} was allocated in {} with {} bytes ({}) and is freed with {size}; the log is \
                         damaged, or lines of two devices or processes are mixed in it",
                        known.since,
                        known.size,
                        ShowBytes(known.size)
                    ));
                }
                if BEFORE - known.slot.0 >= self.before.len() as u32 {
                    self.live -= u128::from(known.size);
                    self.slots.release(known.slot);
                }
                known
            }
            (None, None) => return Ok(false),
            (None, Some(size)) => {
                let stream = self.stream(stream.unwrap_or(0))?;
                let slot = Slot(BEFORE - self.before.len() as u32);
                self.before.push((size, stream));
                Name { slot, size, stream, live: false, since: place }
            }
        };
        let stream = match stream {
            Some(stream) => self.stream(stream)?,
            None => freed.stream,
        };
        self.names.insert(name, Name { live: false, since: place, ..freed });
        self.push(EventKind::Free, at, freed.slot, freed.size, stream);
        Ok(true)
    }

    /// A request that was refused.
    ///
    /// # Errors
    /// Time runs backwards.
    pub fn refused(&mut self, at: Nanos, size: Bytes, stream: u64) -> Result<(), String> {
        let at = self.time(at)?;
        let stream = self.stream(stream)?;
        let slot = self.slots.peek();
        self.push(EventKind::AllocRefused, at, slot, size, stream);
        Ok(())
    }

    /// Something that was alive before the log starts, by name.
    ///
    /// # Errors
    /// The name is live.
    pub fn preexisting(&mut self, place: At, name: u64, size: Bytes) -> Result<(), String> {
        if let Some(Name { live: true, since, .. }) = self.names.get(&name) {
            return Err(format!("{name:#x} is alive before the log starts and in {since}"));
        }
        let slot = Slot(BEFORE - self.before.len() as u32);
        let stream = self.stream(0)?;
        self.before.push((size, stream));
        self.names.insert(name, Name { slot, size, stream, live: true, since: place });
        Ok(())
    }

    /// Something that was alive before the log starts, of which nothing but the size is known.
    ///
    /// # Errors
    /// There are too many streams.
    pub fn alive_before(&mut self, size: Bytes) -> Result<(), String> {
        let stream = self.stream(0)?;
        self.before.push((size, stream));
        Ok(())
    }

    /// Time of the first event on the log's own clock.
    pub fn origin(&self) -> Nanos {
        self.origin.unwrap_or(0)
    }

    /// Bytes that are known to have been alive before the log starts.
    pub fn bytes_before(&self) -> u128 {
        self.before.iter().map(|(size, _)| u128::from(*size)).sum()
    }

    /// How many allocations were alive before the log starts.
    pub fn count_before(&self) -> usize {
        self.before.len()
    }

    /// Events so far.
    pub fn count(&self) -> usize {
        self.events.len()
    }

    /// Distinct streams so far.
    pub fn stream_count(&self) -> usize {
        self.handles.len()
    }

    /// The trace, with streams numbered in ascending order of their handles.
    ///
    /// # Errors
    /// What was alive before and what was allocated later make more than 2^64 - 1 live bytes.
    pub fn finish(self, mut header: TraceHeader) -> Result<Trace, String> {
        let before = self.bytes_before();
        if self.peak + before > u128::from(u64::MAX) {
            return Err("more than 2^64 - 1 bytes would be live; check the sizes".into());
        }
        let mut order: Vec<u16> = (0..self.handles.len() as u16).collect();
        order.sort_by_key(|&n| self.handles[usize::from(n)]);
        let mut number = vec![StreamId(0); order.len()];
        for (new, &old) in order.iter().enumerate() {
            number[usize::from(old)] = StreamId(new as u16);
        }
        header.streams = order.iter().map(|&n| self.handles[usize::from(n)]).collect();
        let shift = self.before.len() as u32;
        let preexisting = self.before.iter().enumerate().map(|(n, &(size, stream))| {
            let (slot, stream) = (Slot(n as u32), number[usize::from(stream)]);
            Event::new(EventKind::Preexisting, 0, slot, size, stream, PoolId::DEFAULT)
        });
        let mut events = self.events;
        for event in &mut events {
            let from_before = BEFORE - event.slot.0;
            event.slot.0 = if from_before < shift { from_before } else { event.slot.0 + shift };
            event.stream = number[event.stream.index()];
        }
        events.splice(0..0, preexisting);
        header.knows.from_start &= self.before.is_empty();
        header.events = Some(events.len() as u64);
        let mut trace = Trace { header, events, ..Trace::default() };
        trace.header.slots = Some(trace.slot_count());
        Ok(trace)
    }

    fn push(&mut self, kind: EventKind, at: Nanos, slot: Slot, size: Bytes, stream: u16) {
        self.events.push(Event::new(kind, at, slot, size, StreamId(stream), PoolId::DEFAULT));
    }

    fn grow(&mut self, size: Bytes) -> Result<(), String> {
        self.live += u128::from(size);
        self.peak = self.peak.max(self.live);
        if self.live > u128::from(u64::MAX) {
            return Err(format!(
                "with these {size} bytes, more than 2^64 - 1 bytes would be live; check the size"
            ));
        }
        Ok(())
    }

    fn time(&mut self, at: Nanos) -> Result<Nanos, String> {
        let origin = *self.origin.get_or_insert(at);
        if at < origin.max(self.last) {
            return Err(format!(
                "time runs backwards, from {} to {at} ns; sort the log by time",
                origin.max(self.last)
            ));
        }
        self.last = at;
        Ok(at - origin)
    }

    fn stream(&mut self, handle: u64) -> Result<u16, String> {
        if let Some(&number) = self.streams.get(&handle) {
            return Ok(number);
        }
        let number = self.handles.len();
        if number >= usize::from(StreamId::FOREIGN.0) {
            return Err(format!("names more than {number} streams, which no job has"));
        }
        self.handles.push(handle);
        self.streams.insert(handle, number as u16);
        Ok(number as u16)
    }
}

/// Names for allocations of a log that has none: a free is of the youngest live allocation of its size.
#[derive(Debug, Default)]
pub(crate) struct BySize {
    live: HashMap<Bytes, Vec<u64>>,
    next: u64,
}

impl BySize {
    /// The name of a new allocation.
    pub fn begin(&mut self, size: Bytes) -> u64 {
        self.next += 1;
        self.live.entry(size).or_default().push(self.next);
        self.next
    }

    /// The name of what a free of this size frees: a new one if nothing of this size is live.
    pub fn end(&mut self, size: Bytes) -> u64 {
        self.live.get_mut(&size).and_then(Vec::pop).unwrap_or_else(|| {
            self.next += 1;
            self.next
        })
    }
}
