//! What a recorder saw of an allocator: requests and decisions together.
//!
//! A trace holds requests only. A recording also holds what the allocator made of them, and is what
//! `verify` compares against. PyTorch's snapshots are recordings; policies write the same log.

use crate::event::{Annotation, TraceHeader};
use crate::heap::HeapImage;
use crate::stack::{StackId, StackTable};
use crate::units::{Bytes, DevAddr, Nanos, PoolId, Slot, StreamId};
use serde::{Deserialize, Serialize};

/// What an entry says happened. PyTorch's action names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A block was handed out; `size` is what was asked for.
    Alloc,
    /// The program freed a block.
    FreeRequested,
    /// The block can be used again.
    FreeCompleted,
    /// A whole segment was taken from the device.
    SegmentAlloc,
    /// A whole segment was given back.
    SegmentFree,
    /// Pages were mapped.
    SegmentMap,
    /// Pages were unmapped.
    SegmentUnmap,
    /// A request failed; `addr` is the device's free memory, `size` the rounded request.
    Oom,
    /// A snapshot was taken.
    Snapshot,
}

impl Action {
    /// PyTorch's name of the action.
    pub fn name(self) -> &'static str {
        match self {
            Action::Alloc => "alloc",
            Action::FreeRequested => "free_requested",
            Action::FreeCompleted => "free_completed",
            Action::SegmentAlloc => "segment_alloc",
            Action::SegmentFree => "segment_free",
            Action::SegmentMap => "segment_map",
            Action::SegmentUnmap => "segment_unmap",
            Action::Oom => "oom",
            Action::Snapshot => "snapshot",
        }
    }
}

/// One entry of a recording. 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When, since the first entry.
    pub at: Nanos,
    /// Address; free device memory for [`Action::Oom`].
    pub addr: DevAddr,
    /// Bytes, with the meaning that [`Action`] gives.
    pub size: Bytes,
    /// Stack, if recorded.
    pub stack: StackId,
    /// Stream.
    pub stream: StreamId,
    /// What happened.
    pub action: Action,
}

/// What the recorded driver answered to a fallible call, in call order: the part of a recording that no
/// simulator can decide. `reserve` and `populate` calls take one answer each; a host wait for fences takes all
/// `Passed` answers that come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverAnswer {
    /// `reserve` gave a range of this size at this address.
    Range {
        /// First address.
        addr: DevAddr,
        /// Length in bytes; 0 if the recording does not say (an expandable reservation).
        size: Bytes,
    },
    /// `populate` succeeded.
    Populated,
    /// The call failed for want of memory.
    OutOfMemory,
    /// A host wait saw the work that this slot's free waits for done, before that of all slots that are not
    /// named. Given only where that is not the order in which the fences were recorded.
    Passed(Slot),
}

/// A recording of one device.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// What is known of the recorded job. `header.pools` lists the pools seen in the final heap.
    pub header: TraceHeader,
    /// Entries, oldest first.
    pub entries: Vec<Entry>,
    /// The pool of each entry where the recorder says it (PyTorch 2.12 and newer), else empty.
    pub entry_pools: Vec<PoolId>,
    /// The heap when the recording was written. Block slots are not known.
    pub heap: HeapImage,
    /// All stacks.
    pub stacks: StackTable,
    /// Named spans.
    pub annotations: Vec<Annotation>,
}
