//! What a trace is made of: requests, not decisions.

use crate::error::TraceError;
use crate::stack::StackId;
use crate::units::{Bytes, Nanos, PoolId, Slot, StreamId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an event asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum EventKind {
    /// `slot` asks for `size` bytes on `stream` from `pool`.
    Alloc = 0,
    /// As `Alloc`, but the recorded run refused it (out of memory), so no free follows. If a policy
    /// grants it, the engine frees it at once and counts it as rescued.
    AllocRefused = 1,
    /// `slot` is freed and nothing is in flight: requested and complete in one.
    Free = 2,
    /// `slot` is freed, but other streams still use it; a `FreeDone` may follow.
    FreeLater = 3,
    /// The other streams are done with `slot`.
    FreeDone = 4,
    /// `slot` is used on `stream` (`record_stream`).
    Use = 5,
    /// The program gives cached memory back (`empty_cache`).
    EmptyCache = 6,
    /// A redirection to `pool` starts (graph capture, `use_mem_pool`).
    PoolOpen = 7,
    /// It ends.
    PoolClose = 8,
    /// The owner of `pool` is gone; its memory may be released now.
    PoolDrop = 9,
    /// As `PoolDrop`, and released at once (a destroyed MemPool).
    PoolDestroy = 10,
    /// The host waits for `stream`.
    SyncStream = 11,
    /// The host waits for the device.
    SyncDevice = 12,
    /// An allocation that was alive before the trace starts. As `Alloc` for every policy that cannot
    /// restore the recorded heap itself.
    Preexisting = 13,
}

impl EventKind {
    /// Every kind, in number order.
    pub const ALL: [EventKind; 14] = [
        EventKind::Alloc,
        EventKind::AllocRefused,
        EventKind::Free,
        EventKind::FreeLater,
        EventKind::FreeDone,
        EventKind::Use,
        EventKind::EmptyCache,
        EventKind::PoolOpen,
        EventKind::PoolClose,
        EventKind::PoolDrop,
        EventKind::PoolDestroy,
        EventKind::SyncStream,
        EventKind::SyncDevice,
        EventKind::Preexisting,
    ];

    /// The kind with this number.
    pub fn from_number(n: u8) -> Option<EventKind> {
        EventKind::ALL.get(usize::from(n)).copied()
    }

    /// The stable name, the same as in the native JSON format.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Alloc => "alloc",
            EventKind::AllocRefused => "alloc_refused",
            EventKind::Free => "free",
            EventKind::FreeLater => "free_later",
            EventKind::FreeDone => "free_done",
            EventKind::Use => "use",
            EventKind::EmptyCache => "empty_cache",
            EventKind::PoolOpen => "pool_open",
            EventKind::PoolClose => "pool_close",
            EventKind::PoolDrop => "pool_drop",
            EventKind::PoolDestroy => "pool_destroy",
            EventKind::SyncStream => "sync_stream",
            EventKind::SyncDevice => "sync_device",
            EventKind::Preexisting => "preexisting",
        }
    }

    /// Whether the event makes its slot live (`AllocRefused` does not).
    pub fn makes_live(self) -> bool {
        matches!(self, EventKind::Alloc | EventKind::Preexisting)
    }
}

/// One event. 24 bytes, `Copy`, never written to after import. Fields that a kind does not use are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, since the start of the trace.
    pub at: Nanos,
    /// Bytes asked for (`Alloc`, `AllocRefused`, `Preexisting`), and repeated on frees of that slot.
    pub size: Bytes,
    /// Which allocation.
    pub slot: Slot,
    /// On which stream.
    pub stream: StreamId,
    tag: u16,
}

const POOL_BITS: u32 = 12;

impl Event {
    /// Largest pool number that an event can carry.
    pub const MAX_POOL: u16 = (1 << POOL_BITS) - 1;

    /// An event.
    ///
    /// # Panics
    /// If the pool number is above [`Event::MAX_POOL`]; importers check it first.
    #[inline]
    pub fn new(
        kind: EventKind,
        at: Nanos,
        slot: Slot,
        size: Bytes,
        stream: StreamId,
        pool: PoolId,
    ) -> Event {
        assert!(pool.0 <= Event::MAX_POOL, "pool {pool} is above {}", Event::MAX_POOL);
        Event { at, size, slot, stream, tag: (kind as u16) << POOL_BITS | pool.0 }
    }

    /// What the event asks for.
    #[inline]
    pub fn kind(&self) -> EventKind {
        EventKind::ALL[usize::from(self.tag >> POOL_BITS)]
    }

    /// From which pool.
    #[inline]
    pub fn pool(&self) -> PoolId {
        PoolId(self.tag & Event::MAX_POOL)
    }
}

/// A buffer of consecutive events that an engine owns and reuses.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The events.
    pub events: Vec<Event>,
    /// The stack of each event, or empty where the trace has none.
    pub stacks: Vec<StackId>,
}

impl Batch {
    /// Empties the batch, keeping its memory.
    pub fn clear(&mut self) {
        self.events.clear();
        self.stacks.clear();
    }
}

/// A stream of events. Cheap to make again for another pass.
pub trait EventSource {
    /// What the trace says of itself.
    fn header(&self) -> &TraceHeader;
    /// Replaces the batch's content by the next events (at most about 4096). `Ok(false)` at the end,
    /// with an empty batch.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, TraceError>;
}

/// Properties of a private pool that change what an allocator does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFlags {
    /// Blocks of this pool are never split.
    #[serde(default)]
    pub no_split: bool,
    /// Requests to the default pool may fall back to this pool's free blocks before anything is released.
    #[serde(default)]
    pub use_on_oom: bool,
}

/// A pool, as the trace names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolInfo {
    /// PyTorch's id pair, or the source's own number in the first field. `(0, 0)` is the default pool.
    pub id: (u64, u64),
    /// What the pool does differently.
    #[serde(flatten)]
    pub flags: PoolFlags,
}

/// What the source of a trace was able to see. A `false` is said aloud by every command for which it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Knows {
    /// Streams of allocations are recorded.
    pub streams: bool,
    /// Which frees had to wait for other streams, and until when.
    pub completions: bool,
    /// The order of events is certain.
    pub order: bool,
    /// Allocations can be told apart by address or id.
    pub identity: bool,
    /// Times are recorded.
    pub times: bool,
    /// Private pools are recorded or were inferred.
    pub pools: bool,
    /// Stacks are recorded.
    pub stacks: bool,
    /// The history starts from an empty allocator.
    pub from_start: bool,
}

impl Default for Knows {
    fn default() -> Self {
        Knows {
            streams: true,
            completions: true,
            order: true,
            identity: true,
            times: true,
            pools: true,
            stacks: false,
            from_start: true,
        }
    }
}

/// What a trace says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceHeader {
    /// The kind of source: `pytorch-snapshot`, `native-json`, `rmm-csv`, `synth`, …
    pub source: String,
    /// The device's index in the recorded process.
    pub device: u32,
    /// The device's name, if known.
    pub device_name: Option<String>,
    /// Total memory of the device in bytes, if known.
    pub device_memory: Option<Bytes>,
    /// The memory fraction that was in force, if known.
    pub memory_fraction: Option<f64>,
    /// The allocator settings in force, in the source's own syntax (`PYTORCH_CUDA_ALLOC_CONF`).
    pub settings: Option<String>,
    /// Version of the framework, if known.
    pub framework: Option<String>,
    /// Raw stream handles by [`StreamId`].
    pub streams: Vec<u64>,
    /// Pools by [`PoolId`]; the first is the default pool.
    pub pools: Vec<PoolInfo>,
    /// Wall-clock time of the trace's time 0, microseconds since 1970, if known.
    pub start_unix_us: Option<u64>,
    /// What the source could see.
    pub knows: Knows,
    /// Number of events, if known before reading them.
    pub events: Option<u64>,
    /// One more than the largest slot, if known before reading the events.
    pub slots: Option<u32>,
    /// Notes for people: what was lost or inferred on the way in.
    pub notes: Vec<String>,
    /// Further facts (job, driver, command, …).
    pub attributes: BTreeMap<String, String>,
}

/// A named span or point of the program: a user annotation, an optimizer step, a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    /// Its name. Untrusted text.
    pub name: String,
    /// Start.
    pub start: Nanos,
    /// End; equal to `start` for a point, `None` if it was still open.
    pub end: Option<Nanos>,
}
