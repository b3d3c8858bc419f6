//! Frees of shared blocks that the GPU has not passed: memory that the program gave up and nobody may touch.

use poolsim_core::{Bytes, StreamId};
use std::collections::{BTreeMap, VecDeque};

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub(super) start: Bytes,
    pub(super) end: Bytes,
    pub(super) requested: Bytes,
    /// The stream that had the block.
    pub(super) stream: StreamId,
    /// Its stamp on the unifying stream.
    pub(super) stamp: u64,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    by_start: BTreeMap<Bytes, Free>,
    /// Start by stamp, oldest first; an entry whose free is gone has no counterpart.
    queue: VecDeque<(u64, Bytes)>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    pub(super) fn add(&mut self, free: Free) {
        self.by_start.insert(free.start, free);
        self.queue.push_back((free.stamp, free.start));
    }

    /// Takes out the oldest one if its stamp is at most `finished`.
    pub(super) fn take_finished(&mut self, finished: u64) -> Option<Free> {
        while let Some((stamp, start)) = self.queue.front().copied() {
            if stamp > finished {
                return None;
            }
            self.queue.pop_front();
            if self.by_start.get(&start).is_some_and(|free| free.stamp == stamp) {
                return self.by_start.remove(&start);
            }
        }
        None
    }

    /// Takes out one that touches `[start, end)`.
    pub(super) fn take_touching(&mut self, start: Bytes, end: Bytes) -> Option<Free> {
        let last = self.by_start.range(..end).next_back().map(|(_, free)| *free)?;
        (last.end > start).then(|| self.by_start.remove(&last.start)).flatten()
    }

    /// Those that start in `[start, end)`, in address order.
    pub(super) fn within(&self, start: Bytes, end: Bytes) -> impl Iterator<Item = &Free> {
        self.by_start.range(start..end).map(|(_, free)| free)
    }
}
