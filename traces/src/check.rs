//! Is this a legal trace? Names, pairing, time and sizes, event by event.

use crate::transform::SlotAllocator;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::units::ShowBytes;
use poolsim_core::{
    Batch, Bytes, Event, EventKind, EventSource, Nanos, PoolId, Slot, StreamId, TraceError,
};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::hash::Hash;

/// An event as a source writes it, with the source's own name for the allocation. What is `None` follows
/// from the events before.
#[derive(Clone, Debug)]
pub struct Request<K> {
    /// What is asked for.
    pub kind: EventKind,
    /// The name of the allocation.
    pub id: Option<K>,
    /// Bytes. Frees repeat the size of the allocation if it is given at all.
    pub size: Option<Bytes>,
    /// Stream; by default 0 for allocations, the allocation's for frees.
    pub stream: Option<StreamId>,
    /// Pool; by default 0 for allocations, the allocation's for frees.
    pub pool: Option<PoolId>,
    /// When; by default the time of the event before.
    pub at: Option<Nanos>,
}

impl<K> Request<K> {
    /// A request of which nothing but the kind is known.
    pub fn new(kind: EventKind) -> Self {
        Request { kind, id: None, size: None, stream: None, pool: None, at: None }
    }
}

/// Turns requests into events and refuses what no program can do: a name allocated twice, freed twice or
/// never allocated, time running backwards, sizes that overflow. Errors are sentences; the caller
/// knows the place.
pub struct Checker<K> {
    names: HashMap<K, Named>,
    slots: Slots<K>,
    open_pools: BTreeMap<PoolId, u64>,
    index: u64,
    at: Nanos,
    live: Bytes,
    started: bool,
}

enum Slots<K> {
    /// The source's names are its own.
    Allocate(SlotAllocator),
    /// The source's names are slots.
    Given(fn(&K) -> Slot),
}

#[derive(Clone, Copy)]
struct Named {
    slot: Slot,
    size: Bytes,
    stream: StreamId,
    pool: PoolId,
    state: State,
    /// Index of the event that led to `state`.
    since: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Live,
    Pending,
    Freed,
}

impl<K> Default for Checker<K> {
    fn default() -> Self {
        Checker::with(Slots::Allocate(SlotAllocator::default()))
    }
}

impl Checker<u32> {
    /// A checker of events whose names are slots already. Slots must be dense: none above the number of
    /// events before it.
    pub fn of_slots() -> Self {
        Checker::with(Slots::Given(|&slot| Slot(slot)))
    }
}

impl<K> Checker<K> {
    fn with(slots: Slots<K>) -> Self {
        Checker {
            names: HashMap::new(),
            slots,
            open_pools: BTreeMap::new(),
            index: 0,
            at: 0,
            live: 0,
            started: false,
        }
    }

    /// Number of events admitted.
    pub fn count(&self) -> u64 {
        self.index
    }

    /// Bytes asked for by allocations that are not completely freed.
    pub fn live_bytes(&self) -> Bytes {
        self.live
    }
}

impl<K: Eq + Hash + Display> Checker<K> {
    /// A checker of events named by numbers that are slots, through `slot`.
    pub fn of_given_slots(slot: fn(&K) -> Slot) -> Self {
        Checker::with(Slots::Given(slot))
    }

    /// The event that `request` means.
    ///
    /// # Errors
    /// Why it is not legal here, and what would be. Nothing changes then.
    pub fn admit(&mut self, request: Request<K>) -> Result<Event, String> {
        use EventKind::*;
        let at = request.at.unwrap_or(self.at);
        if at < self.at {
            return Err(format!(
                "time runs backwards, from {} to {at} ns; events must be in order of time",
                self.at
            ));
        }
        self.check_fields(&request)?;
        let kind = request.kind;
        if kind == Preexisting && self.started {
            return Err("`preexisting` comes before every other event".into());
        }
        let stream = request.stream.unwrap_or_default();
        let pool = request.pool.unwrap_or_default();
        if pool.0 > Event::MAX_POOL {
            return Err(format!(
                "pool {pool} is above {}, the largest there can be",
                Event::MAX_POOL
            ));
        }
        let (slot, size, stream, pool) = match kind {
            Alloc | Preexisting => self.begin(request)?,
            AllocRefused => (self.refused(&request)?, request.size.unwrap_or(0), stream, pool),
            Free | FreeLater | FreeDone => self.end(request)?,
            Use => (self.used(&request)?, request.size.unwrap_or(0), stream, pool),
            PoolOpen | PoolClose => {
                self.redirect(kind, pool)?;
                (Slot(0), 0, stream, pool)
            }
            _ => (Slot(0), 0, stream, pool),
        };
        self.at = at;
        self.index += 1;
        self.started |= kind != Preexisting;
        Ok(Event::new(kind, at, slot, size, stream, pool))
    }

    fn check_fields(&self, request: &Request<K>) -> Result<(), String> {
        use EventKind::*;
        let kind = request.kind;
        let name = kind.name();
        let has_slot = !matches!(
            kind,
            EmptyCache | PoolOpen | PoolClose | PoolDrop | PoolDestroy | SyncStream | SyncDevice
        );
        let has_pool = has_slot || matches!(kind, PoolOpen | PoolClose | PoolDrop | PoolDestroy);
        let unused = [
            ("id", request.id.is_some() && !has_slot),
            ("size", request.size.is_some_and(|size| size != 0) && !has_slot),
            ("stream", request.stream.is_some_and(|s| s.0 != 0) && !has_slot && kind != SyncStream),
            ("pool", request.pool.is_some_and(|p| p.0 != 0) && !has_pool),
        ];
        if let Some((field, _)) = unused.iter().find(|(_, wrong)| *wrong) {
            return Err(format!("`{field}` has no meaning for `{name}`; leave it out"));
        }
        let missing = [
            ("an id", request.id.is_none() && has_slot && kind != AllocRefused),
            (
                "a size",
                request.size.is_none() && matches!(kind, Alloc | AllocRefused | Preexisting),
            ),
            ("a stream", request.stream.is_none() && matches!(kind, Use | SyncStream)),
            ("a pool", request.pool.is_none() && has_pool && !has_slot),
        ];
        match missing.iter().find(|(_, wrong)| *wrong) {
            Some((field, _)) => Err(format!("`{name}` needs {field}")),
            None => Ok(()),
        }
    }

    fn begin(&mut self, request: Request<K>) -> Result<(Slot, Bytes, StreamId, PoolId), String> {
        let id = request.id.expect("checked to be there");
        let size = request.size.expect("checked to be there");
        match self.names.get(&id) {
            Some(Named { state: State::Live, since, .. }) => {
                return Err(format!(
                    "`{id}` is still live since event {since}; free it first, or use another id"
                ));
            }
            Some(Named { state: State::Pending, since, .. }) => {
                return Err(format!(
                    "the free of `{id}` in event {since} is not complete; `free_done` it first, or use another id"
                ));
            }
            _ => {}
        }
        let live = self.live.checked_add(size).ok_or_else(|| {
            format!(
                "with these {size} bytes, more than 2^64 - 1 bytes would be live; check the size"
            )
        })?;
        let slot = match &mut self.slots {
            Slots::Allocate(slots) => slots.take(),
            Slots::Given(slot) => dense(slot(&id), self.index)?,
        };
        self.live = live;
        let (stream, pool) = (request.stream.unwrap_or_default(), request.pool.unwrap_or_default());
        let named = Named { slot, size, stream, pool, state: State::Live, since: self.index };
        self.names.insert(id, named);
        Ok((slot, size, stream, pool))
    }

    fn refused(&self, request: &Request<K>) -> Result<Slot, String> {
        match (&self.slots, &request.id) {
            (Slots::Allocate(slots), _) => Ok(slots.peek()),
            (Slots::Given(slot), Some(id)) => dense(slot(id), self.index),
            (Slots::Given(_), None) => Ok(Slot(0)),
        }
    }

    fn used(&self, request: &Request<K>) -> Result<Slot, String> {
        let id = request.id.as_ref().expect("checked to be there");
        match self.names.get(id) {
            Some(Named { state: State::Live, slot, .. }) => Ok(*slot),
            Some(Named { since, .. }) => {
                Err(format!("`{id}` is used, but was freed in event {since}"))
            }
            None => Err(format!("`{id}` is used, but was never allocated")),
        }
    }

    fn end(&mut self, request: Request<K>) -> Result<(Slot, Bytes, StreamId, PoolId), String> {
        let id = request.id.expect("checked to be there");
        let Some(named) = self.names.get_mut(&id) else {
            return Err(format!(
                "`{id}` is freed, but was never allocated; if it was alive before the trace starts, say so \
                 with `preexisting`"
            ));
        };
        match (named.state, request.kind) {
            (State::Freed, EventKind::FreeDone) | (State::Live, EventKind::FreeDone) => {
                return Err(format!(
                    "`{id}` has no free that waits; `free_later` comes before `free_done`"
                ));
            }
            (State::Freed, _) | (State::Pending, EventKind::Free | EventKind::FreeLater) => {
                return Err(format!("`{id}` is freed twice, first in event {}", named.since));
            }
            _ => {}
        }
        if request.size.is_some_and(|size| size != named.size) {
            let (freed, had) = (request.size.unwrap_or(0), named.size);
            return Err(format!(
                "`{id}` was allocated with {had} bytes ({}) and is freed with {freed}; leave the size out of frees",
                ShowBytes(had)
            ));
        }
        let pool = request.pool.unwrap_or(named.pool);
        if pool != named.pool && matches!(self.slots, Slots::Allocate(_)) {
            return Err(format!("`{id}` is of pool {} and is freed into pool {pool}", named.pool));
        }
        let stream = request.stream.unwrap_or(named.stream);
        let (slot, size) = (named.slot, named.size);
        named.since = self.index;
        named.state = match request.kind {
            EventKind::FreeLater => State::Pending,
            _ => State::Freed,
        };
        if named.state == State::Freed {
            self.live -= size;
            if let Slots::Allocate(slots) = &mut self.slots {
                slots.release(slot);
            }
        }
        Ok((slot, size, stream, pool))
    }

    /// Redirections nest; a trace of given slots may start within one.
    fn redirect(&mut self, kind: EventKind, pool: PoolId) -> Result<(), String> {
        let open = self.open_pools.entry(pool).or_default();
        if kind == EventKind::PoolOpen {
            *open += 1;
        } else if *open > 0 {
            *open -= 1;
        } else if matches!(self.slots, Slots::Allocate(_)) {
            return Err(format!("pool {pool} is closed, but no `pool_open` of it is in force"));
        }
        Ok(())
    }
}

fn dense(slot: Slot, index: u64) -> Result<Slot, String> {
    if u64::from(slot.0) > index {
        return Err(format!("slot {slot} is not dense: only {index} events come before it"));
    }
    Ok(slot)
}

/// Reads `source` to its end and fails at the first event that is not legal.
///
/// # Errors
/// That event's index and why, or those of the source.
pub fn check(source: &mut dyn EventSource) -> Result<(), TraceError> {
    let mut checker = Checker::of_slots();
    let mut batch = Batch::default();
    while source.fill(&mut batch)? {
        for event in &batch.events {
            let index = checker.count();
            checker.admit(request_of(event)).map_err(|what| {
                TraceError::new(TraceErrorKind::Illegal, Place::Event(index), what)
            })?;
        }
    }
    Ok(())
}

/// The request that an event is, named by its slot.
fn request_of(event: &Event) -> Request<u32> {
    use EventKind::*;
    let kind = event.kind();
    let named =
        matches!(kind, Alloc | AllocRefused | Free | FreeLater | FreeDone | Use | Preexisting);
    Request {
        kind,
        id: named.then_some(event.slot.0),
        size: Some(event.size).filter(|_| kind != Use),
        stream: Some(event.stream),
        pool: Some(event.pool()),
        at: Some(event.at),
    }
}
