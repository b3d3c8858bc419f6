//! Tools that look at one event at a time: scale, strip, anonymize.

use super::flow::{Flow, derived};
use crate::tables::OwnedTables;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::event::PoolInfo;
use poolsim_core::stack::StackTable;
use poolsim_core::{
    Batch, Bytes, Event, EventKind, EventSource, PoolId, StreamId, TraceError, TraceHeader,
};

/// A factor, exactly: `numerator / denominator`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    numerator: u64,
    denominator: u64,
}

impl Factor {
    /// A factor of 1.
    pub const ONE: Factor = Factor { numerator: 1, denominator: 1 };

    /// `2`, `0.5`, `1.25`: up to nine digits on either side of the point.
    ///
    /// # Errors
    /// Says what is allowed.
    pub fn parse(text: &str) -> Result<Factor, String> {
        let wrong = || format!("`{text}` is no factor; write a number above 0, as 2 or 0.75");
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || whole.len() > 9 || fraction.len() > 9 {
            return Err(wrong());
        }
        let numerator: u64 = format!("{whole}{fraction}").parse().map_err(|_| wrong())?;
        if numerator == 0 {
            return Err(wrong());
        }
        Ok(Factor { numerator, denominator: 10u64.pow(fraction.len() as u32) })
    }

    /// `n` times this, to the nearest whole number, at least 1 unless `n` is 0; `None` if that is too large.
    fn of(self, n: u64) -> Option<u64> {
        let (numerator, denominator) = (u128::from(self.numerator), u128::from(self.denominator));
        let scaled = (u128::from(n) * numerator + denominator / 2) / denominator;
        u64::try_from(scaled).ok().map(|scaled| scaled.max(u64::from(n > 0)))
    }
}

/// Applies `change` to each event; `None` leaves it out, which must not leave a later event of its slot behind.
struct Each {
    header: TraceHeader,
    source: Box<dyn EventSource>,
    keep_stacks: bool,
    index: u64,
    change: Box<dyn FnMut(Event) -> Result<Option<Event>, String>>,
}

impl EventSource for Each {
    fn header(&self) -> &TraceHeader {
        &self.header
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        let mut read = Batch::default();
        batch.clear();
        while batch.events.is_empty() {
            if !self.source.fill(&mut read)? {
                return Ok(false);
            }
            for (n, event) in read.events.iter().enumerate() {
                let changed = (self.change)(*event).map_err(|what| {
                    TraceError::new(TraceErrorKind::Illegal, Place::Event(self.index), what)
                })?;
                self.index += 1;
                let Some(event) = changed else { continue };
                batch.events.push(event);
                if let Some(stack) = read.stacks.get(n).filter(|_| self.keep_stacks) {
                    batch.stacks.push(*stack);
                }
            }
        }
        Ok(true)
    }
}

/// Multiplies sizes of at least `at_least` bytes, and times.
///
/// # Errors
/// None here; reading the result fails at an event whose size or time becomes too large, or where too much is live.
pub fn scale(flow: Flow, size: Factor, at_least: Bytes, time: Factor) -> Flow {
    let Flow { source, mut tables } = flow;
    let header = derived(source.header());
    if size != Factor::ONE {
        tables.initial_heap = None;
    }
    for span in &mut tables.annotations {
        span.start = time.of(span.start).unwrap_or(u64::MAX);
        span.end = span.end.map(|end| time.of(end).unwrap_or(u64::MAX));
    }
    let mut live = 0u64;
    let change = move |event: Event| {
        let bytes = match event.size {
            n if n >= at_least => size.of(n).ok_or("the size becomes more than 2^64 - 1 bytes")?,
            n => n,
        };
        let at = time.of(event.at).ok_or("the time becomes more than 500 years")?;
        match event.kind() {
            kind if kind.makes_live() => {
                let sum = live.checked_add(bytes);
                live = sum.ok_or("more than 2^64 - 1 bytes would be live; scale by less")?;
            }
            EventKind::Free | EventKind::FreeDone => live = live.saturating_sub(bytes),
            _ => {}
        }
        let (kind, slot, stream) = (event.kind(), event.slot, event.stream);
        Ok(Some(Event::new(kind, at, slot, bytes, stream, event.pool())))
    };
    let source = Each { header, source, keep_stacks: true, index: 0, change: Box::new(change) };
    Flow { source: Box::new(source), tables }
}

/// What to leave out of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strip {
    /// Call stacks.
    pub stacks: bool,
    /// Named spans.
    pub annotations: bool,
    /// The heap before the first event.
    pub heap: bool,
    /// Notes and attributes.
    pub notes: bool,
    /// Times; the order stays.
    pub times: bool,
    /// Streams: all requests on one, no uses on others, every free complete at once.
    pub streams: bool,
    /// Private pools: all requests to the default pool, no redirections.
    pub pools: bool,
}

/// Leaves parts out. What an allocator sees then is said in the header.
pub fn strip(flow: Flow, what: Strip) -> Flow {
    let Flow { source, mut tables } = flow;
    let mut header = derived(source.header());
    if what.stacks {
        tables.stacks = StackTable::default();
        header.knows.stacks = false;
    }
    if what.annotations {
        tables.annotations.clear();
    }
    if what.heap || what.streams || what.pools || what.stacks {
        tables.initial_heap = None;
    }
    if what.notes {
        header.notes.clear();
        header.attributes.clear();
    }
    header.knows.times &= !what.times;
    if what.streams {
        header.streams = vec![0];
        header.knows.streams = false;
        header.knows.completions = false;
    }
    if what.pools {
        header.pools = vec![PoolInfo::default()];
        header.knows.pools = false;
    }
    let keep_stacks = !what.stacks;
    let change = move |event| Ok(stripped(event, what));
    let source = Each { header, source, keep_stacks, index: 0, change: Box::new(change) };
    Flow { source: Box::new(source), tables }
}

fn stripped(event: Event, what: Strip) -> Option<Event> {
    use EventKind::*;
    let kind = match event.kind() {
        Use | FreeDone | SyncStream if what.streams => return None,
        FreeLater if what.streams => Free,
        PoolOpen | PoolClose | PoolDrop | PoolDestroy if what.pools => return None,
        kind => kind,
    };
    let at = if what.times { 0 } else { event.at };
    let stream = if what.streams { StreamId(0) } else { event.stream };
    let pool = if what.pools { PoolId::DEFAULT } else { event.pool() };
    Some(Event::new(kind, at, event.slot, event.size, stream, pool))
}

/// Leaves out everything that is text or says whose job it was: stacks, names, paths, settings, the device's name, the
/// clock, raw handles of streams and ids of pools. Sizes, order, times since the start, streams and pools stay.
pub fn anonymize(flow: Flow) -> Flow {
    let Flow { source, .. } = flow;
    // Named field by field, so that a field that is added to the header cannot slip through.
    let TraceHeader {
        source: _,
        device: _,
        device_name: _,
        device_memory,
        memory_fraction,
        settings: _,
        framework: _,
        streams,
        pools,
        start_unix_us: _,
        mut knows,
        events,
        slots,
        notes: _,
        attributes: _,
    } = source.header().clone();
    knows.stacks = false;
    let number = |(n, info): (usize, &PoolInfo)| PoolInfo { id: (n as u64, 0), flags: info.flags };
    let header = TraceHeader {
        device_memory,
        memory_fraction,
        streams: (0..streams.len() as u64).collect(),
        pools: pools.iter().enumerate().map(number).collect(),
        knows,
        events,
        slots,
        ..TraceHeader::default()
    };
    let change = |event| Ok(Some(event));
    let source = Each { header, source, keep_stacks: false, index: 0, change: Box::new(change) };
    Flow { source: Box::new(source), tables: OwnedTables::default() }
}
