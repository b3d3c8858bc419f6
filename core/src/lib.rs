//! The words and contracts that every other poolsim crate shares. No algorithm, no I/O.
//!
//! Four nouns carry the design:
//!
//! * A [`Device`] is the mechanism: address space, physical memory, streams, time. The simulated
//!   device and the CUDA driver implement the same trait.
//! * A [`Policy`] is an allocator: it borrows a device for each call and decides which
//!   block serves which request. The same compiled policy runs on both devices.
//! * An [`Event`] is one thing that the recorded job asked for. A trace is a stream of them.
//! * A [`RunRecord`] says what one run (policy × trace × device) was, and what it measured.
//!
//! There are four because each changes for its own reason: devices with hardware, policies with ideas,
//! events with what recorders can see, records with what people want to know. Every arrow between
//! crates points here; nothing here points anywhere.
#![forbid(unsafe_code)]

pub mod device;
pub mod error;
pub mod event;
pub mod heap;
pub mod metric;
pub mod moment;
pub mod policy;
pub mod record;
pub mod recording;
pub mod stack;
pub mod trace;
pub mod units;

pub use device::{Backing, Device, DeviceCaps, DeviceOp, Ledger, Range, ReplayTarget, SyncScope};
pub use error::{AllocError, ConfigError, DeviceError, OomCause, TraceError};
pub use event::{Batch, Event, EventKind, EventSource, PoolFlags, TraceHeader};
pub use heap::{BlockState, BlockView, HeapImage, HeapVisitor, RangeView};
pub use moment::{CallsPoint, Keyframe, Levels, Life, Moment, Point};
pub use policy::{AllocRequest, Gauge, Grant, Policy, PoolOp, PoolStats};
pub use record::RunRecord;
pub use recording::{Action, DriverAnswer, Entry, Recording};
pub use trace::{Trace, TraceReader};
pub use units::{BlockId, Bytes, DevAddr, FenceId, Nanos, PageId, PoolId, RangeId, Slot, StreamId};
