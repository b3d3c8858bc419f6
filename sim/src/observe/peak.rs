//! Where memory was lost when reserved bytes first peaked.

use crate::engine::{Heap, Observer, ReplayOptions, Step, replay};
use poolsim_core::{
    BlockState, BlockView, Bytes, EventSource, HeapImage, HeapVisitor, Policy, RangeView,
    ReplayTarget, StreamId, TraceError,
};

/// The heap after the event at which reserved bytes first reached their peak. Reserved bytes are requested bytes and
/// the losses `rounding`, `stranded` and `free_ranges`, unless the event itself gave memory back again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeakState {
    /// The event.
    pub event: u64,
    /// Bytes asked for by active blocks.
    pub requested: Bytes,
    /// Reserved bytes.
    pub reserved: Bytes,
    /// Active minus requested bytes.
    pub rounding: Bytes,
    /// Free bytes in ranges with active blocks.
    pub stranded: Bytes,
    /// Free bytes in ranges without any.
    pub free_ranges: Bytes,
    /// Free bytes of other streams than the event's, of both kinds.
    pub other_streams: Bytes,
    /// The largest free block.
    pub largest_free: Bytes,
}

/// Sums up a heap walk.
struct Losses {
    state: PeakState,
    own: StreamId,
    stream: StreamId,
    free_here: Bytes,
    active_here: bool,
}

impl Losses {
    fn close_range(&mut self) {
        let free = std::mem::take(&mut self.free_here);
        if std::mem::take(&mut self.active_here) {
            self.state.stranded += free;
        } else {
            self.state.free_ranges += free;
        }
    }
}

impl HeapVisitor for Losses {
    fn range(&mut self, range: &RangeView) {
        self.close_range();
        self.stream = range.stream;
    }

    fn block(&mut self, block: &BlockView) {
        if block.state != BlockState::Free {
            self.active_here = true;
            return;
        }
        self.free_here += block.size;
        self.state.largest_free = self.state.largest_free.max(block.size);
        if self.stream != self.own {
            self.state.other_streams += block.size;
        }
    }
}

/// Looks at the heap after one event.
pub struct PeakLosses {
    event: u64,
    state: PeakState,
}

impl PeakLosses {
    /// Will look after `event`.
    pub fn at(event: u64) -> PeakLosses {
        PeakLosses { event, state: PeakState::default() }
    }

    /// What it saw; all zero before the event.
    pub fn state(&self) -> PeakState {
        self.state
    }
}

impl Observer for PeakLosses {
    fn wants_heap(&self, step: &Step<'_>) -> bool {
        step.index == self.event
    }

    fn on_heap(&mut self, step: &Step<'_>, heap: &dyn Heap, _: &dyn ReplayTarget) {
        let stats = step.stats;
        let mut losses = Losses {
            state: PeakState {
                event: self.event,
                requested: stats.requested.current,
                reserved: stats.reserved.current,
                rounding: stats.active.current - stats.requested.current,
                ..PeakState::default()
            },
            own: step.event.stream,
            stream: step.event.stream,
            free_here: 0,
            active_here: false,
        };
        heap.visit(&mut losses);
        losses.close_range();
        self.state = losses.state;
    }
}

/// Replays up to `event` ([`Totals::peak_event`](super::Totals::peak_event) of a full run) and looks at the heap there.
///
/// This is a second pass: source, policy and device must be fresh and as they were in the full run. The walk
/// comes after the event, so an event that reserves and gives back shows what is left.
pub fn peak_state<P, T>(
    source: &mut dyn EventSource,
    policy: &mut P,
    target: &mut T,
    restore: Option<&HeapImage>,
    event: u64,
) -> Result<PeakState, TraceError>
where
    P: Policy + ?Sized,
    T: ReplayTarget,
{
    let mut at = PeakLosses::at(event);
    let options = ReplayOptions { stop_after_event: Some(event), stop_at_oom: false, restore };
    replay(source, policy, target, &mut at, &options)?;
    Ok(at.state)
}
