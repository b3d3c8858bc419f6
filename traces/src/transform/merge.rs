//! Several traces as one.

use super::flow::{Flow, Renamer, derived, with_slot};
use crate::tables::OwnedTables;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::event::{Annotation, PoolInfo};
use poolsim_core::stack::StackId;
use poolsim_core::trace::BATCH;
use poolsim_core::{
    Batch, Event, EventKind, EventSource, Nanos, PoolId, StreamId, TraceError, TraceHeader,
};

/// How times of several traces lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// By their wall clocks; all must have one.
    Clock,
    /// All start at once.
    Start,
    /// Each starts when the one before ends.
    After,
}

/// A trace to be merged, and what a first pass found in it.
struct Part {
    flow: Flow,
    /// Added to its times.
    offset: Nanos,
    /// Added to its streams, and to its private pools.
    streams: u16,
    pools: u16,
    /// Its stacks, by their numbers in it.
    stacks: Vec<StackId>,
    batch: Batch,
    next: usize,
}

/// How far the numbers in a trace reach.
struct Extent {
    streams: u32,
    pools: u32,
    end: Nanos,
}

/// Merges traces into one, as if one program with one allocator had made all requests. Streams and private pools are
/// kept apart, unless `same_streams` says that the traces are of threads that share them.
///
/// `open` gives a trace from its start, and is called twice for each of the `count` traces: once to see how far its
/// numbers reach.
///
/// # Errors
/// Those of the sources; no wall clock where one is needed; too many streams or pools.
pub fn merge(
    open: &mut dyn FnMut(usize) -> Result<Flow, TraceError>,
    count: usize,
    align: Align,
    same_streams: bool,
) -> Result<Flow, TraceError> {
    let mut parts = Vec::with_capacity(count);
    let (mut streams, mut pools, mut end) = (0u32, 1u32, 0);
    let mut earliest = u64::MAX;
    for n in 0..count {
        let mut flow = open(n)?;
        let extent = extent(&mut *flow.source)?;
        earliest = earliest.min(flow.source.header().start_unix_us.unwrap_or(u64::MAX));
        let (first_stream, first_pool) = if same_streams { (0, 1) } else { (streams, pools) };
        streams = streams.max(first_stream + extent.streams);
        pools = pools.max(first_pool + extent.pools - 1);
        check_extent(streams, pools)?;
        parts.push(Part {
            flow: open(n)?,
            offset: if align == Align::After { end } else { 0 },
            streams: first_stream as u16,
            pools: first_pool as u16 - 1,
            stacks: Vec::new(),
            batch: Batch::default(),
            next: 0,
        });
        end += extent.end;
    }
    if align == Align::Clock {
        for (n, part) in parts.iter_mut().enumerate() {
            let start = part.flow.source.header().start_unix_us.ok_or_else(|| no_clock(n))?;
            part.offset = (start - earliest).saturating_mul(1000);
        }
    }
    let header = header(&parts, (streams, pools), (align, earliest), same_streams);
    let tables = tables(&mut parts);
    let merge = Merge { header, parts, renamer: Renamer::default(), preexisting: true };
    Ok(Flow { source: Box::new(merge), tables })
}

fn no_clock(n: usize) -> TraceError {
    let what = format!(
        "trace {} does not say when it was recorded, so the traces cannot be laid side by side by the clock; align \
         them by their starts, or one after the other",
        n + 1
    );
    TraceError::new(TraceErrorKind::Refused, Place::Whole, what)
}

fn check_extent(streams: u32, pools: u32) -> Result<(), TraceError> {
    if streams < u32::from(StreamId::FOREIGN.0) && pools <= u32::from(Event::MAX_POOL) + 1 {
        return Ok(());
    }
    let what = format!(
        "the traces have {streams} streams and {pools} pools together; a trace can have {} and {}",
        StreamId::FOREIGN.0,
        u32::from(Event::MAX_POOL) + 1
    );
    Err(TraceError::new(TraceErrorKind::Refused, Place::Whole, what))
}

fn extent(source: &mut dyn EventSource) -> Result<Extent, TraceError> {
    let header = source.header();
    let mut extent = Extent {
        streams: header.streams.len().max(1) as u32,
        pools: header.pools.len().max(1) as u32,
        end: 0,
    };
    let mut batch = Batch::default();
    while source.fill(&mut batch)? {
        for event in &batch.events {
            if event.stream != StreamId::FOREIGN {
                extent.streams = extent.streams.max(u32::from(event.stream.0) + 1);
            }
            extent.pools = extent.pools.max(u32::from(event.pool().0) + 1);
            extent.end = event.at;
        }
    }
    Ok(extent)
}

fn header(
    parts: &[Part],
    (streams, pools): (u32, u32),
    (align, earliest): (Align, u64),
    same_streams: bool,
) -> TraceHeader {
    let first = parts[0].flow.source.header();
    let mut header = derived(first);
    header.source = "merged".into();
    header.start_unix_us = first.start_unix_us;
    if align == Align::Clock {
        header.start_unix_us = Some(earliest);
    }
    header.pools = vec![PoolInfo::default(); pools as usize];
    for (n, pool) in header.pools.iter_mut().enumerate() {
        pool.id = (n as u64, 0);
    }
    // Handles of different processes mean nothing beside each other; the numbers keep their order.
    header.streams =
        if same_streams { first.streams.clone() } else { (0..u64::from(streams)).collect() };
    header.notes = vec![format!(
        "merged from {} traces, as if one program with one allocator had made all requests",
        parts.len()
    )];
    for part in parts {
        let own = part.flow.source.header();
        // What the parts do not agree on is true of none.
        header.settings = header.settings.filter(|s| own.settings.as_ref() == Some(s));
        header.memory_fraction = header.memory_fraction.filter(|f| own.memory_fraction == Some(*f));
        header.device_memory = header.device_memory.filter(|m| own.device_memory == Some(*m));
        let k = own.knows;
        let all = &mut header.knows;
        all.streams &= k.streams;
        all.completions &= k.completions;
        all.identity &= k.identity;
        all.times &= k.times;
        all.pools &= k.pools;
        all.stacks |= k.stacks;
        all.from_start &= k.from_start;
        all.order &= k.order && (align == Align::After || parts.len() == 1);
        for (n, info) in own.pools.iter().enumerate().skip(1) {
            header.pools[usize::from(part.pools) + n].flags = info.flags;
        }
    }
    header
}

/// Side tables of all parts; their stacks get new numbers, which the parts keep.
fn tables(parts: &mut [Part]) -> OwnedTables {
    let mut tables = OwnedTables::default();
    for part in parts {
        let own = &part.flow.tables;
        let frames: Vec<u32> =
            own.stacks.frames().iter().map(|f| tables.stacks.intern_frame(f.clone())).collect();
        part.stacks = (0..own.stacks.stack_count() as u32)
            .map(|id| {
                let numbers = own.stacks.frame_numbers(StackId(id));
                let numbers: Vec<u32> = numbers.iter().map(|&n| frames[n as usize]).collect();
                tables.stacks.intern_stack(&numbers)
            })
            .collect();
        let offset = part.offset;
        tables.annotations.extend(own.annotations.iter().map(|a| Annotation {
            name: a.name.clone(),
            start: a.start.saturating_add(offset),
            end: a.end.map(|end| end.saturating_add(offset)),
        }));
    }
    tables.annotations.sort_by_key(|a| a.start);
    tables
}

struct Merge {
    header: TraceHeader,
    parts: Vec<Part>,
    renamer: Renamer,
    /// Still before the first event that is not `preexisting`.
    preexisting: bool,
}

impl Part {
    /// The next event, on the common clock.
    fn peek(&mut self) -> Result<Option<Event>, TraceError> {
        if self.next == self.batch.events.len() {
            self.next = 0;
            if !self.flow.source.fill(&mut self.batch)? {
                return Ok(None);
            }
        }
        let event = self.batch.events[self.next];
        let at = match event.kind() {
            // Alive before any of the traces starts.
            EventKind::Preexisting => 0,
            _ => event.at.checked_add(self.offset).ok_or_else(|| {
                let what =
                    "the traces together are longer than 500 years; align them by their starts";
                TraceError::new(TraceErrorKind::Refused, Place::Whole, what)
            })?,
        };
        let stream = match event.stream {
            StreamId::FOREIGN => StreamId::FOREIGN,
            StreamId(n) => StreamId(n + self.streams),
        };
        let pool = match event.pool() {
            PoolId::DEFAULT => PoolId::DEFAULT,
            PoolId(n) => PoolId(n + self.pools),
        };
        let has_stream = !matches!(
            event.kind(),
            EventKind::EmptyCache
                | EventKind::SyncDevice
                | EventKind::PoolOpen
                | EventKind::PoolClose
                | EventKind::PoolDrop
                | EventKind::PoolDestroy
        );
        let stream = if has_stream { stream } else { event.stream };
        Ok(Some(Event::new(event.kind(), at, event.slot, event.size, stream, pool)))
    }

    fn stack(&self) -> StackId {
        let own = self.batch.stacks.get(self.next).map_or(0, |stack| stack.0);
        self.stacks.get(own as usize).copied().unwrap_or(StackId::NONE)
    }
}

impl Merge {
    /// The part whose event comes next, and the event. At one time, the earlier part comes first.
    fn next(&mut self) -> Result<Option<(usize, Event)>, TraceError> {
        let mut best: Option<(usize, Event)> = None;
        for (n, part) in self.parts.iter_mut().enumerate() {
            let Some(event) = part.peek()? else { continue };
            if self.preexisting && event.kind() == EventKind::Preexisting {
                return Ok(Some((n, event)));
            }
            if best.is_none_or(|(_, earliest)| event.at < earliest.at) {
                best = Some((n, event));
            }
        }
        self.preexisting = false;
        Ok(best)
    }
}

impl EventSource for Merge {
    fn header(&self) -> &TraceHeader {
        &self.header
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        while batch.events.len() < BATCH {
            let Some((n, event)) = self.next()? else { break };
            let stack = self.parts[n].stack();
            self.parts[n].next += 1;
            let Some(slot) = self.renamer.slot(n as u32, &event) else { continue };
            batch.events.push(with_slot(event, slot));
            if self.header.knows.stacks {
                batch.stacks.push(stack);
            }
        }
        Ok(!batch.events.is_empty())
    }
}
