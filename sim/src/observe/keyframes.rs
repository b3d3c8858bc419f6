//! The heap at chosen events, with who holds what and for how long.

use crate::engine::{Heap, Observer, Step};
use poolsim_core::stack::StackId;
use poolsim_core::{
    BlockState, EventKind, HeapImage, Keyframe, Life, Moment, Nanos, ReplayTarget, Slot,
};

/// What is known of a slot's present allocation.
#[derive(Clone, Debug, Default)]
struct Holder {
    stack: StackId,
    born: Option<(u64, Nanos)>,
    /// Where it was seen, as keyframe and block: its free is written there.
    seen: Vec<(u32, u32)>,
}

/// Writes the heap down at a bounded number of equally distant events and at the moments that are named.
///
/// Space is bounded by the trace's live allocations and by `blocks`: when the regular keyframes hold more blocks than
/// that, every second one is dropped and the distance doubles, until they fit or only the first event's is left. Named
/// moments are always kept.
pub struct Keyframes {
    stride: u64,
    blocks: usize,
    named: Vec<(u64, Moment)>,
    /// By slot, until the program's free.
    holders: Vec<Holder>,
    frames: Vec<Keyframe>,
    /// Blocks in the regular keyframes.
    held: usize,
}

impl Keyframes {
    /// Regular keyframes every `stride` events with at most about `blocks` blocks in all, and one at each named event.
    pub fn new(stride: u64, blocks: usize, named: Vec<(u64, Moment)>) -> Keyframes {
        Keyframes {
            stride: stride.max(1),
            blocks,
            named,
            holders: Vec::new(),
            frames: Vec::new(),
            held: 0,
        }
    }

    /// The keyframes in the order of their events.
    pub fn into_frames(self) -> Vec<Keyframe> {
        self.frames
    }

    fn moment(&self, event: u64) -> Option<Moment> {
        let named = self.named.iter().find(|(at, _)| *at == event).map(|&(_, moment)| moment);
        named.or_else(|| event.is_multiple_of(self.stride).then_some(Moment::Regular))
    }

    fn holder(&mut self, slot: Slot) -> &mut Holder {
        if self.holders.len() <= slot.index() {
            self.holders.resize(slot.index() + 1, Holder::default());
        }
        &mut self.holders[slot.index()]
    }

    fn has_regular_after_the_first_event(&self) -> bool {
        self.frames.iter().any(|f| f.moment == Moment::Regular && f.event > 0)
    }

    #[cold]
    fn thin(&mut self) {
        self.stride *= 2;
        let stride = self.stride;
        let keep = |frame: &Keyframe| {
            frame.moment != Moment::Regular || frame.event.is_multiple_of(stride)
        };
        let mut new_number = Vec::with_capacity(self.frames.len());
        let mut kept = 0;
        for frame in &self.frames {
            new_number.push(keep(frame).then_some(kept));
            kept += u32::from(keep(frame));
        }
        for holder in &mut self.holders {
            holder.seen.retain_mut(|(frame, _)| {
                new_number[*frame as usize].map(|number| *frame = number).is_some()
            });
        }
        self.frames.retain(keep);
        let regular = self.frames.iter().filter(|f| f.moment == Moment::Regular);
        self.held = regular.map(|f| f.lives.len()).sum();
    }
}

impl Observer for Keyframes {
    fn on_step(&mut self, step: &Step<'_>) {
        let (event, slot) = (step.event, step.event.slot);
        match event.kind() {
            EventKind::Alloc => {
                let born = Some((step.index, event.at));
                *self.holder(slot) = Holder { stack: step.stack, born, seen: Vec::new() };
            }
            EventKind::Preexisting => {
                *self.holder(slot) = Holder { stack: step.stack, ..Holder::default() };
            }
            EventKind::Free | EventKind::FreeLater => {
                let died = Some((step.index, event.at));
                for (frame, block) in std::mem::take(&mut self.holder(slot).seen) {
                    self.frames[frame as usize].lives[block as usize].died = died;
                }
            }
            _ => {}
        }
    }

    fn wants_heap(&self, step: &Step<'_>) -> bool {
        self.moment(step.index).is_some()
    }

    fn on_heap(&mut self, step: &Step<'_>, heap: &dyn Heap, _: &dyn ReplayTarget) {
        let moment = self.moment(step.index).expect("it was asked for");
        let mut image = HeapImage::default();
        heap.visit(&mut image);
        image.sort();
        let mut lives = Vec::new();
        let number = self.frames.len() as u32;
        for (_, blocks) in &mut image.ranges {
            for block in blocks {
                let mut life = Life::default();
                if let Some(slot) = block.slot
                    && block.state == BlockState::Allocated
                    && let Some(holder) = self.holders.get_mut(slot.index())
                {
                    if block.stack == StackId::NONE {
                        block.stack = holder.stack;
                    }
                    life.born = holder.born;
                    holder.seen.push((number, lives.len() as u32));
                }
                lives.push(life);
            }
        }
        if moment == Moment::Regular {
            self.held += lives.len();
        }
        let (event, at) = (step.index, step.event.at);
        self.frames.push(Keyframe { event, at, moment, heap: image, lives });
        while self.held > self.blocks && self.has_regular_after_the_first_event() {
            self.thin();
        }
    }
}
