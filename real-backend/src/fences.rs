//! Fences as CUDA events: by the streams' real work, or by the recorded completions.

use crate::call::{Context, Result};
use cudarc::driver::sys::CUevent;
use cudarc::driver::sys::CUstream;
use poolsim_core::{FenceId, Slot, StreamId, SyncScope};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
struct Fence {
    id: FenceId,
    event: CUevent,
    /// The free that it belongs to; it passes when the trace says so.
    held: Option<Slot>,
}

// SAFETY: an event handle may be used from any thread that has the context current.
unsafe impl Send for Fence {}

/// The fences of a device, in order for each stream.
#[derive(Debug)]
pub(crate) struct Fences {
    context: Arc<Context>,
    /// Completions come from the streams, never from the trace.
    real: bool,
    open: BTreeMap<StreamId, VecDeque<Fence>>,
    /// Passed and not reported yet.
    passed: Vec<FenceId>,
    unused_ids: Vec<u32>,
    reported: Vec<FenceId>,
    events: Vec<CUevent>,
    /// Events of fences that passed without a question, as the trace or a host wait said so. An allocator would have
    /// asked, so the next poll does.
    unqueried: Vec<CUevent>,
    next: u32,
    holding: Option<Slot>,
}

// SAFETY: as for `Fence`; the vector of spare events belongs to this table alone.
unsafe impl Send for Fences {}

impl Fences {
    pub(crate) fn new(context: Arc<Context>, real: bool) -> Self {
        Fences {
            context,
            real,
            open: BTreeMap::new(),
            passed: Vec::new(),
            unused_ids: Vec::new(),
            reported: Vec::new(),
            events: Vec::new(),
            unqueried: Vec::new(),
            next: 0,
            holding: None,
        }
    }

    pub(crate) fn hold(&mut self, slot: Slot) {
        self.holding = Some(slot).filter(|_| !self.real);
    }

    /// Whether a free is under way whose completion the trace knows.
    pub(crate) fn holding(&self) -> bool {
        self.holding.is_some()
    }

    pub(crate) fn end_hold(&mut self) {
        self.holding = None;
    }

    /// Marks the end of a stream's work.
    pub(crate) fn record(&mut self, stream: StreamId, raw: CUstream) -> Result<FenceId> {
        let event = match self.events.pop() {
            Some(event) => event,
            None => self.context.event()?,
        };
        self.context.record(event, raw)?;
        let id = FenceId(self.unused_ids.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        }));
        let fence = Fence { id, event, held: self.holding };
        self.open.entry(stream).or_default().push_back(fence);
        Ok(id)
    }

    /// The event behind a fence that has not passed.
    pub(crate) fn event(&self, id: FenceId) -> Option<CUevent> {
        self.open.values().flatten().find(|f| f.id == id).map(|f| f.event)
    }

    /// The recorded work of a free is done: waits for its events, which in a replay without real work are done already.
    pub(crate) fn complete(&mut self, slot: Slot) {
        let mut done = Vec::new();
        for queue in self.open.values_mut() {
            queue.retain(|f| {
                if f.held == Some(slot) {
                    done.push(*f);
                }
                f.held != Some(slot)
            });
        }
        for fence in done {
            // A failing wait means a failing device, which the next call reports.
            let _ = self.context.synchronize_event(fence.event);
            self.pass(fence);
        }
    }

    fn pass(&mut self, fence: Fence) {
        self.passed.push(fence.id);
        self.unqueried.push(fence.event);
    }

    /// Appends the fences that passed; returns how many events were asked.
    pub(crate) fn poll(&mut self, passed: &mut Vec<FenceId>) -> u64 {
        let ids = self.reported.drain(..).map(|f| f.0);
        self.unused_ids.extend(ids);
        let mut queries = self.unqueried.len() as u64;
        for &event in &self.unqueried {
            let _ = self.context.is_done(event);
        }
        self.events.append(&mut self.unqueried);
        for queue in self.open.values_mut() {
            let mut at = 0;
            // A fence that the trace holds back does not hold back those behind it: only its own free is not complete.
            while let Some(&fence) = queue.get(at) {
                if fence.held.is_some() {
                    at += 1;
                    continue;
                }
                queries += 1;
                if !self.context.is_done(fence.event).unwrap_or(true) {
                    break;
                }
                queue.remove(at);
                self.passed.push(fence.id);
                self.events.push(fence.event);
            }
        }
        self.reported.extend(&self.passed);
        passed.append(&mut self.passed);
        queries
    }

    /// Waits for every event.
    pub(crate) fn wait_for_all(&self) -> Result<()> {
        self.open.values().flatten().try_for_each(|f| self.context.synchronize_event(f.event))
    }

    /// After a host wait: all fences of its scope have passed, held ones too.
    pub(crate) fn waited(&mut self, scope: SyncScope) {
        let streams: Vec<StreamId> = match scope {
            SyncScope::Stream(s) => vec![s],
            SyncScope::Device | SyncScope::Fences => self.open.keys().copied().collect(),
        };
        for stream in streams {
            for fence in self.open.remove(&stream).unwrap_or_default() {
                self.pass(fence);
            }
        }
    }
}

impl Drop for Fences {
    fn drop(&mut self) {
        let _ = self.context.enter();
        let open = std::mem::take(&mut self.open).into_values().flatten().map(|f| f.event);
        let spare = std::mem::take(&mut self.events).into_iter();
        for event in open.chain(spare).chain(std::mem::take(&mut self.unqueried)) {
            let _ = self.context.destroy_event(event);
        }
    }
}
