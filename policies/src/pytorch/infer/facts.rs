//! What a recording says without simulating anything: which block an entry means, which lot it lies in,
//! where memory is given back and what could have been given back but was not.

use super::super::config::Config;
use super::super::size::round_size;
use super::lots::Lot;
use super::rewind::Start;
use poolsim_core::recording::{Action, Recording};
use poolsim_core::units::Bytes;

/// "No slot".
pub(super) const NO_SLOT: u32 = u32::MAX;

/// An entry that contradicts the ones before it.
#[derive(Clone, Debug)]
pub(super) struct Broken {
    pub entry: u32,
    pub what: String,
}

/// A stretch of entries in which segments or pages are given back, with the completions between them.
#[derive(Clone, Debug)]
pub(super) struct Region {
    /// Its place in the list of all.
    pub index: u32,
    pub begin: u32,
    /// One past its last entry.
    pub end: u32,
    /// Entries of the rest of a request follow directly.
    pub request: bool,
    /// Lots by release entry, in order.
    pub released: Vec<u32>,
    /// Segments without a live or pending block that are left when it is over.
    pub idle: Vec<u32>,
}

/// What the entries say.
pub(super) struct Facts<'a> {
    pub rec: &'a Recording,
    pub config: &'a Config,
    pub start: Start,
    pub lots: Vec<Lot>,
    /// Slot of the block that an entry allocates, frees or completes.
    pub slot: Vec<u32>,
    /// Lot that an entry allocates from, makes, grows, shrinks or ends.
    pub lot: Vec<u32>,
    /// Slots and lots of `start.blocks`.
    pub start_slots: Vec<(u32, u32)>,
    pub slot_count: u32,
    pub regions: Vec<Region>,
    /// The memory fraction in force, if it is known or was found.
    pub fraction: Option<f64>,
    /// The device's memory, if there is a hint of it.
    pub device_total: Option<Bytes>,
    /// Most bytes held from the device at once.
    pub peak_reserved: Bytes,
    /// Whether any request was refused.
    pub refuses: bool,
    /// Whether any free waited for other streams.
    pub defers: bool,
    pub broken: Option<Broken>,
}

impl Facts<'_> {
    /// Whether the first entry is the second half of a free that was complete at once, and the ring buffer cut between.
    /// (If it was a deferred free, then this is as good: the first request notices it before anything else.)
    pub fn starts_in_free(&self) -> bool {
        let first = self.rec.entries.first();
        first.is_some_and(|e| e.action == Action::FreeCompleted) && self.slot[0] != NO_SLOT
    }

    /// Rounded size of a request.
    pub fn rounded(&self, size: Bytes) -> Bytes {
        round_size(self.config, size)
    }

    /// Whether part of the default pool's idle segments can be released while the rest stays: by garbage
    /// collection or by the oversize release.
    pub fn releases_in_part(&self) -> bool {
        self.config.gc_threshold > 0.0 || self.config.max_split_size.is_some()
    }
}
