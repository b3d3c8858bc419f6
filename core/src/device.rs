//! The mechanism: address space, physical memory, streams and time.

use crate::error::DeviceError;
use crate::record::Decision;
use crate::recording::Action;
use crate::units::{Bytes, DevAddr, FenceId, Nanos, PageId, RangeId, Slot, StreamId};
use serde::{Deserialize, Serialize};

/// What a device can do and how large it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCaps {
    /// The device's name, as its driver gives it.
    pub name: String,
    /// Total physical memory (PyTorch's `totalGlobalMem`).
    pub total: Bytes,
    /// Smallest unit of physical memory and of mapping; also the unit of paged ranges.
    pub granule: Bytes,
    /// Alignment of reserved address ranges.
    pub range_align: Bytes,
    /// Whether `Backing::Paged` ranges, pages and maps are there.
    pub paged: bool,
}

/// How a range gets its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Backing {
    /// Addresses and memory together (`cudaMalloc`).
    Whole,
    /// Addresses only; pages are mapped later (`cuMemAddressReserve`).
    Paged,
}

/// A range of device addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The handle to give it back with.
    pub id: RangeId,
    /// First address.
    pub addr: DevAddr,
    /// Length in bytes.
    pub size: Bytes,
}

macro_rules! device_ops {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The device calls that cost time and are counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[repr(u8)]
        pub enum DeviceOp { $($(#[$doc])* $name,)* }

        impl DeviceOp {
            /// Every operation, in index order.
            pub const ALL: &'static [DeviceOp] = &[$(DeviceOp::$name,)*];

            /// The stable name, as results print it.
            pub fn name(self) -> &'static str {
                match self { $(DeviceOp::$name => $text,)* }
            }
        }
    };
}

device_ops! {
    /// `cudaMalloc`.
    Alloc = "cuda_malloc",
    /// `cudaFree`.
    Free = "cuda_free",
    /// `cuMemAddressReserve`.
    Reserve = "mem_address_reserve",
    /// `cuMemAddressFree`.
    Unreserve = "mem_address_free",
    /// `cuMemCreate` of one page.
    Create = "mem_create",
    /// `cuMemRelease` of one page.
    Destroy = "mem_release",
    /// `cuMemMap` of one page.
    Map = "mem_map",
    /// `cuMemSetAccess` of what was mapped in one go.
    Access = "mem_set_access",
    /// `cuMemUnmap` of one page.
    Unmap = "mem_unmap",
    /// `cudaEventRecord`.
    Record = "event_record",
    /// `cudaEventQuery`.
    Query = "event_query",
    /// `cudaStreamWaitEvent`.
    Wait = "stream_wait_event",
    /// A host wait for one stream or for the device.
    Synchronize = "synchronize",
    /// A hit in a driver pool (`cudaMallocAsync` without new memory).
    PoolMalloc = "malloc_async",
    /// `cudaFreeAsync`.
    PoolFree = "free_async",
    /// A driver pool takes one new page.
    PoolGrow = "pool_page_new",
    /// A driver pool moves one page to another address.
    PoolMove = "pool_page_move",
    /// A driver pool gives one page back.
    PoolShrink = "pool_page_release",
}

/// How often each operation ran, on how many bytes, and how long it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Calls by `DeviceOp` index; failed calls are counted too.
    pub calls: [u64; DeviceOp::ALL.len()],
    /// Bytes by `DeviceOp` index.
    pub bytes: [Bytes; DeviceOp::ALL.len()],
    /// Time by `DeviceOp` index.
    pub time: [Nanos; DeviceOp::ALL.len()],
}

impl Default for Ledger {
    fn default() -> Self {
        const N: usize = DeviceOp::ALL.len();
        Ledger { calls: [0; N], bytes: [0; N], time: [0; N] }
    }
}

impl Ledger {
    /// Counts one call.
    #[inline]
    pub fn charge(&mut self, op: DeviceOp, bytes: Bytes, time: Nanos) {
        self.charge_many(op, 1, bytes, time);
    }

    /// Counts `calls` calls on `bytes` bytes together that took `time` together.
    #[inline]
    pub fn charge_many(&mut self, op: DeviceOp, calls: u64, bytes: Bytes, time: Nanos) {
        let i = op as usize;
        self.calls[i] += calls;
        self.bytes[i] += bytes;
        self.time[i] += time;
    }

    /// Time of all operations together.
    pub fn total_time(&self) -> Nanos {
        self.time.iter().sum()
    }
}

/// What a host wait covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// All work on the device.
    Device,
    /// All work on one stream.
    Stream(StreamId),
    /// Every fence recorded so far (PyTorch's `synchronize_and_free_events` waits for events, not for the device).
    Fences,
}

/// Memory, addresses, order and time of one GPU. See the crate docs.
///
/// Every mutating call charges its own cost to the device's clock and [`Ledger`]; a policy never adds
/// up costs. Rules of granularity are enforced here, with the same `Err` on every implementation, so a
/// policy cannot pass in simulation and fail on the driver.
pub trait Device {
    /// What this device can do.
    fn caps(&self) -> &DeviceCaps;
    /// The only clock that a policy may read.
    fn now(&self) -> Nanos;
    /// A quote for one call on `bytes` bytes; no side effect.
    fn cost(&self, op: DeviceOp, bytes: Bytes) -> Nanos;
    /// Free physical memory (`cudaMemGetInfo`).
    fn free_bytes(&self) -> Bytes;

    /// Takes a range. `Whole` ranges come with memory and may have any size above 0, as `cudaMalloc` takes it;
    /// `Paged` ones are addresses only, in multiples of the granule.
    fn reserve(&mut self, size: Bytes, backing: Backing) -> Result<Range, DeviceError>;
    /// Gives a range back. Pages still mapped in it are an `Illegal` error.
    fn release(&mut self, range: RangeId) -> Result<(), DeviceError>;
    /// Creates physical memory that is mapped nowhere yet.
    fn create(&mut self, size: Bytes) -> Result<PageId, DeviceError>;
    /// Gives physical memory back; it must be mapped nowhere.
    fn destroy(&mut self, page: PageId) -> Result<(), DeviceError>;
    /// Maps a page at offset `at` of a paged range and makes it accessible. A page may be mapped at
    /// several places at once.
    fn map(&mut self, range: RangeId, at: Bytes, page: PageId) -> Result<(), DeviceError>;
    /// Unmaps `[at, at + len)`, which must cover whole mapped pages. The pages themselves stay.
    fn unmap(&mut self, range: RangeId, at: Bytes, len: Bytes) -> Result<(), DeviceError>;

    /// Creates and maps `len / page` pages of `page` bytes each at `[at, at + len)`: all or nothing.
    /// Costs what the single calls cost.
    fn populate(
        &mut self,
        range: RangeId,
        at: Bytes,
        len: Bytes,
        page: Bytes,
    ) -> Result<(), DeviceError>;
    /// Unmaps and destroys the pages that [`Device::populate`] put at `[at, at + len)`.
    fn depopulate(&mut self, range: RangeId, at: Bytes, len: Bytes) -> Result<(), DeviceError>;

    /// Marks the present end of a stream's work.
    fn record(&mut self, stream: StreamId) -> Result<FenceId, DeviceError>;
    /// Appends every fence that passed since the last poll, in the order in which they passed. Each
    /// fence is reported once; after that its id may be used again.
    fn poll(&mut self, passed: &mut Vec<FenceId>);
    /// Makes later work on `stream` wait for `fence`, without blocking the host.
    fn wait(&mut self, stream: StreamId, fence: FenceId) -> Result<(), DeviceError>;
    /// Blocks the host until the scope's work is done; all its fences have then passed.
    fn synchronize(&mut self, scope: SyncScope) -> Result<(), DeviceError>;
    /// Whether all work that was issued on `stream` so far is known to be done (`cudaStreamQuery`). `false` is
    /// always safe: a fence then says when.
    fn idle(&mut self, stream: StreamId) -> bool {
        let _ = stream;
        false
    }
    /// Charges host time or driver-internal work that is none of the calls above (a driver pool's page moves).
    fn charge(&mut self, op: DeviceOp, calls: u64, bytes: Bytes);
    /// Whether the calls from now on are charged and counted. A policy that models a pool inside the driver switches
    /// this off around the page calls of which one driver call consists, and charges that call itself with
    /// [`Device::charge`]. Devices that measure time instead of pricing calls need not listen.
    fn set_metered(&mut self, on: bool) {
        let _ = on;
    }
    /// Writes a decision into the log that `verify`, `--decisions` and the parity tests read, if a log is
    /// kept. Policies note what they take from and give to the device and every free that completes
    /// later than it was requested; the engine writes the rest (`Alloc`, `FreeRequested`, the
    /// `FreeCompleted` of a free that completes at once, `Oom`).
    fn note(&mut self, action: Action, addr: DevAddr, size: Bytes, stream: StreamId);
}

/// A device that a replay engine drives: the engine alone moves time and says when recorded work is done.
pub trait ReplayTarget: Device {
    /// Time is now at least `at` (simulated), or is let pass until `at` (paced on real hardware).
    fn advance_to(&mut self, at: Nanos);
    /// Fences recorded from now until [`ReplayTarget::end_hold`] pass only at [`ReplayTarget::complete`] for `slot`
    /// (or at a host wait): the trace knows when this free's other streams were done.
    fn hold(&mut self, slot: Slot);
    /// Ends [`ReplayTarget::hold`].
    fn end_hold(&mut self);
    /// The work that `slot`'s free waits for is done.
    fn complete(&mut self, slot: Slot);
    /// What was called so far.
    fn ledger(&self) -> &Ledger;
    /// Physical bytes that are taken at present.
    fn used_bytes(&self) -> Bytes;

    /// Whether [`Device::note`] keeps anything. Engines skip their own notes if not.
    fn keeps_log(&self) -> bool {
        false
    }
    /// Lines noted from now on belong to this event. Called only if a log is kept.
    fn set_event(&mut self, event: u64) {
        let _ = event;
    }
    /// The log, oldest line first.
    fn log(&self) -> &[Decision] {
        &[]
    }
    /// Forgets the log so far, for readers that take it line by line.
    fn clear_log(&mut self) {}
    /// Whether every byte of `[addr, addr + len)` is memory that this device handed out and did not get
    /// back; `None` if it cannot tell.
    fn backed(&self, addr: DevAddr, len: Bytes) -> Option<bool> {
        let _ = (addr, len);
        None
    }
}

/// A device address range with its length, for messages.
pub fn show_range(addr: DevAddr, size: Bytes) -> String {
    format!("[{addr:#x}, {:#x})", addr.saturating_add(size))
}
