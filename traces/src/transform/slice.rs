//! A part of a trace.

use super::flow::{Flow, Renamer, derived, with_slot};
use poolsim_core::event::Annotation;
use poolsim_core::stack::StackId;
use poolsim_core::trace::BATCH;
use poolsim_core::{
    Batch, Bytes, Event, EventKind, EventSource, Nanos, PoolId, Slot, StreamId, TraceError,
    TraceHeader,
};
use std::collections::{BTreeMap, VecDeque};

/// Which events a slice keeps: those from `from` on, up to but without `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// By number.
    Events {
        /// The first one.
        from: u64,
        /// The first one that is left out.
        to: u64,
    },
    /// By time.
    Time {
        /// The earliest one.
        from: Nanos,
        /// The earliest one that is left out.
        to: Nanos,
    },
}

impl Span {
    fn is_before(self, index: u64, at: Nanos) -> bool {
        match self {
            Span::Events { from, .. } => index < from,
            Span::Time { from, .. } => at < from,
        }
    }

    fn is_over(self, index: u64, at: Nanos) -> bool {
        match self {
            Span::Events { to, .. } => index >= to,
            Span::Time { to, .. } => at >= to,
        }
    }
}

/// The events of a span. What was live before it becomes `preexisting`, with the streams that used it, the frees that
/// still waited and the redirections that were open; times start at 0. Memory is that of what is live.
///
/// # Errors
/// Those of the source, up to the start of the span.
pub fn slice(flow: Flow, span: Span) -> Result<Flow, TraceError> {
    let Flow { source, mut tables } = flow;
    let mut slice = Slice {
        header: derived(source.header()),
        source,
        span,
        before: Before::default(),
        renamer: Renamer::default(),
        queue: VecDeque::new(),
        index: 0,
        start: 0,
        over: false,
    };
    let cut = slice.skip()?;
    let start = slice.start;
    if cut {
        tables.initial_heap = None;
        slice.header.knows.from_start = false;
        slice.header.start_unix_us = slice.header.start_unix_us.map(|us| us + start / 1000);
    }
    let end = match span {
        Span::Time { to, .. } => to,
        Span::Events { .. } => Nanos::MAX,
    };
    tables.annotations = cut_spans(&tables.annotations, start, end);
    Ok(Flow { source: Box::new(slice), tables })
}

/// Spans that reach into `start..end`, cut to it and moved.
fn cut_spans(spans: &[Annotation], start: Nanos, end: Nanos) -> Vec<Annotation> {
    let inside = |a: &&Annotation| a.start < end && a.end.is_none_or(|e| e >= start);
    let moved = |a: &Annotation| Annotation {
        name: a.name.clone(),
        start: a.start.saturating_sub(start),
        end: a.end.map(|e| e.min(end) - start),
    };
    spans.iter().filter(inside).map(moved).collect()
}

struct Slice {
    header: TraceHeader,
    source: Box<dyn EventSource>,
    span: Span,
    before: Before,
    renamer: Renamer,
    queue: VecDeque<(Event, StackId)>,
    index: u64,
    /// Time of the first event of the span, or its start.
    start: Nanos,
    over: bool,
}

/// What is in force before the span.
#[derive(Default)]
struct Before {
    live: BTreeMap<Slot, Live>,
    made: u64,
    open: Vec<PoolId>,
}

struct Live {
    /// Counts allocations, so that they can be listed in their order.
    made: u64,
    size: Bytes,
    stream: StreamId,
    pool: PoolId,
    stack: StackId,
    uses: Vec<StreamId>,
    free: Option<Event>,
}

impl Before {
    fn take(&mut self, event: &Event, stack: StackId) {
        let (slot, stream, pool) = (event.slot, event.stream, event.pool());
        match event.kind() {
            EventKind::Alloc | EventKind::Preexisting => {
                self.made += 1;
                let (made, size) = (self.made, event.size);
                let live = Live { made, size, stream, pool, stack, uses: Vec::new(), free: None };
                self.live.insert(slot, live);
            }
            EventKind::Free | EventKind::FreeDone => drop(self.live.remove(&slot)),
            EventKind::FreeLater => {
                if let Some(live) = self.live.get_mut(&slot) {
                    live.free = Some(*event);
                }
            }
            EventKind::Use => {
                if let Some(live) = self.live.get_mut(&slot)
                    && !live.uses.contains(&stream)
                {
                    live.uses.push(stream);
                }
            }
            EventKind::PoolOpen => self.open.push(pool),
            EventKind::PoolClose => {
                if let Some(last) = self.open.iter().rposition(|open| *open == pool) {
                    self.open.remove(last);
                }
            }
            _ => {}
        }
    }

    /// The events that bring about what is in force.
    fn events(self) -> Vec<(Event, StackId)> {
        let mut live: Vec<(Slot, Live)> = self.live.into_iter().collect();
        live.sort_by_key(|(_, live)| live.made);
        let mut events = Vec::new();
        for (slot, l) in &live {
            let event = Event::new(EventKind::Preexisting, 0, *slot, l.size, l.stream, l.pool);
            events.push((event, l.stack));
        }
        for (slot, l) in &live {
            for stream in &l.uses {
                let event = Event::new(EventKind::Use, 0, *slot, 0, *stream, l.pool);
                events.push((event, StackId::NONE));
            }
            if let Some(e) = l.free {
                let event = Event::new(e.kind(), 0, *slot, e.size, e.stream, e.pool());
                events.push((event, StackId::NONE));
            }
        }
        let open = self.open.iter().map(|&pool| {
            (Event::new(EventKind::PoolOpen, 0, Slot(0), 0, StreamId(0), pool), StackId::NONE)
        });
        events.extend(open);
        events
    }
}

impl Slice {
    /// Reads up to the start of the span; whether anything lies before it.
    fn skip(&mut self) -> Result<bool, TraceError> {
        let mut batch = Batch::default();
        while self.source.fill(&mut batch)? {
            let before = batch.events.iter().enumerate();
            let count = before
                .take_while(|(n, e)| self.span.is_before(self.index + *n as u64, e.at))
                .count();
            for (n, event) in batch.events[..count].iter().enumerate() {
                self.before.take(event, stack(&batch, n));
            }
            self.index += count as u64;
            if count < batch.events.len() {
                let cut = self.index > 0;
                self.start = if cut { batch.events[count].at } else { 0 };
                self.enter();
                for n in count..batch.events.len() {
                    self.push(&batch.events[n], stack(&batch, n));
                }
                return Ok(cut);
            }
        }
        if let Span::Time { from, .. } = self.span {
            self.start = from;
        }
        self.enter();
        self.over = true;
        Ok(self.index > 0)
    }

    fn enter(&mut self) {
        for (event, stack) in std::mem::take(&mut self.before).events() {
            self.rename(event, stack);
        }
    }

    fn push(&mut self, event: &Event, stack: StackId) {
        self.over |= self.span.is_over(self.index, event.at);
        self.index += 1;
        if self.over {
            return;
        }
        let at = event.at - self.start;
        let moved =
            Event::new(event.kind(), at, event.slot, event.size, event.stream, event.pool());
        self.rename(moved, stack);
    }

    fn rename(&mut self, event: Event, stack: StackId) {
        if let Some(slot) = self.renamer.slot(0, &event) {
            self.queue.push_back((with_slot(event, slot), stack));
        }
    }
}

fn stack(batch: &Batch, n: usize) -> StackId {
    batch.stacks.get(n).copied().unwrap_or(StackId::NONE)
}

impl EventSource for Slice {
    fn header(&self) -> &TraceHeader {
        &self.header
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        while self.queue.is_empty() && !self.over {
            let mut next = Batch::default();
            if !self.source.fill(&mut next)? {
                break;
            }
            for n in 0..next.events.len() {
                self.push(&next.events[n], stack(&next, n));
            }
        }
        let count = self.queue.len().min(BATCH);
        for (event, stack) in self.queue.drain(..count) {
            batch.events.push(event);
            if self.header.knows.stacks {
                batch.stacks.push(stack);
            }
        }
        Ok(!batch.events.is_empty())
    }
}
