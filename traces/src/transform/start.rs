//! A state as the beginning of a trace.

use super::SlotAllocator;
use poolsim_core::{BlockState, Event, EventKind, Recording, Trace};

/// What a state holds, as a trace of nothing but `preexisting` events, in order of address: something that a replay can
/// start from, once a trace is merged with it. Blocks whose free still waits are freed again, and wait.
pub fn start_of(state: &Recording) -> Trace {
    let mut trace = Trace { header: state.header.clone(), ..Trace::default() };
    let mut slots = SlotAllocator::default();
    let mut waiting = Vec::new();
    for (range, block) in state.heap.blocks() {
        if block.state == BlockState::Free {
            continue;
        }
        let slot = slots.take();
        let size = if block.requested > 0 { block.requested } else { block.size };
        let event = |kind| Event::new(kind, 0, slot, size, range.stream, range.pool);
        trace.events.push(event(EventKind::Preexisting));
        trace.event_stacks.push(block.stack);
        if block.state == BlockState::Pending {
            waiting.push((event(EventKind::FreeLater), block.stack));
        }
    }
    for (event, stack) in waiting {
        trace.events.push(event);
        trace.event_stacks.push(stack);
    }
    trace.stacks = state.stacks.clone();
    trace.header.knows.from_start = false;
    trace.header.notes.push("the allocations of a state; it has no history of its own".into());
    trace
}
