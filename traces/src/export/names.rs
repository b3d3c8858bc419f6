//! Names for formats that tell allocations apart by address, which a trace does not hold.

use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{Event, StreamId, TraceError, TraceHeader};
use rustc_hash::FxHashMap;

/// Made-up addresses, each used once, and the handles of streams.
pub(super) struct Names {
    live: FxHashMap<u32, u64>,
    next: u64,
    streams: Vec<u64>,
}

/// The first address, where drivers put theirs, so that readers take it for one.
const FIRST: u64 = 0x7f00_0000_0000;

/// Handles of streams that the header does not list start here.
const UNLISTED: u64 = 0xffff_0000_0000;

impl Names {
    pub fn new(header: &TraceHeader) -> Self {
        Names { live: FxHashMap::default(), next: FIRST, streams: header.streams.clone() }
    }

    /// The address of a new allocation.
    pub fn begin(&mut self, event: &Event) -> u64 {
        let name = self.next;
        self.next += 256;
        self.live.insert(event.slot.0, name);
        name
    }

    /// The address of what is freed.
    pub fn end(&mut self, event: &Event, place: Place) -> Result<u64, TraceError> {
        self.live.remove(&event.slot.0).ok_or_else(|| {
            let what = format!("frees slot {}, in which nothing is live", event.slot);
            TraceError::new(TraceErrorKind::Illegal, place, what)
        })
    }

    /// The handle of a stream.
    pub fn stream(&self, stream: StreamId) -> u64 {
        match self.streams.get(stream.index()) {
            Some(handle) => *handle,
            None if self.streams.is_empty() => u64::from(stream.0),
            None => UNLISTED + u64::from(stream.0),
        }
    }
}
