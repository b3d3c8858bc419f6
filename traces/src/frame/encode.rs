//! From events to columns.

use super::{MAX_SHAPES, NO_SIZE, SIZE_COLUMN, SIZE_RECALLED, SIZE_ZERO};
use crate::format::MAX_FRAME_EVENTS;
use crate::varint;
use poolsim_core::stack::StackId;
use poolsim_core::{Bytes, Event, EventKind, Nanos, PoolId, StreamId};
use rustc_hash::FxHashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    kind: EventKind,
    stream: StreamId,
    pool: PoolId,
    has_slot: bool,
    size: u8,
}

/// Encodes frames, reusing its memory.
#[derive(Default)]
pub(crate) struct FrameEncoder {
    shapes: FxHashMap<Shape, u8>,
    shape_list: Vec<Shape>,
    locals: FxHashMap<u32, (u32, Bytes)>,
    slots: Vec<u32>,
    shape_column: Vec<u8>,
    columns: [Vec<u8>; 4],
}

impl FrameEncoder {
    /// Encodes as many of `events` as one frame holds into `out` (replaced) and says how many that were.
    /// `stacks` is as long as `events`, or empty. Times must not run backwards.
    pub fn encode(&mut self, events: &[Event], stacks: &[StackId], out: &mut Vec<u8>) -> usize {
        let events = &events[..events.len().min(MAX_FRAME_EVENTS)];
        let count = self.choose_shapes(events);
        let events = &events[..count];
        self.number_slots(events);
        let unit = time_unit(events);
        self.fill_columns(events, stacks.get(..count).unwrap_or(&[]), unit);
        self.assemble(events[0].at, unit, out);
        count
    }

    /// Fills the shape column and table, and stops before a 257th shape.
    fn choose_shapes(&mut self, events: &[Event]) -> usize {
        self.shapes.clear();
        self.shape_list.clear();
        self.locals.clear();
        self.shape_column.clear();
        for event in events {
            let has_slot = event.slot.0 != 0 || uses_slot(event.kind());
            let known = self.locals.get(&event.slot.0).filter(|_| has_slot).map(|local| local.1);
            let size = match event.size {
                size if size != NO_SIZE && known == Some(size) => SIZE_RECALLED,
                0 => SIZE_ZERO,
                _ => SIZE_COLUMN,
            };
            let shape = Shape {
                kind: event.kind(),
                stream: event.stream,
                pool: event.pool(),
                has_slot,
                size,
            };
            let number = match self.shapes.get(&shape) {
                Some(&number) => number,
                None if self.shape_list.len() == MAX_SHAPES => break,
                None => {
                    let number = self.shape_list.len() as u8;
                    self.shapes.insert(shape, number);
                    self.shape_list.push(shape);
                    number
                }
            };
            if has_slot && size != SIZE_ZERO {
                self.locals.insert(event.slot.0, (0, event.size));
            }
            self.shape_column.push(number);
        }
        self.shape_column.len()
    }

    fn number_slots(&mut self, events: &[Event]) {
        self.slots.clear();
        let with_slot = events.iter().zip(&self.shape_column);
        self.slots.extend(
            with_slot
                .filter(|&(_, &shape)| self.shape_list[usize::from(shape)].has_slot)
                .map(|(event, _)| event.slot.0),
        );
        self.slots.sort_unstable();
        self.slots.dedup();
        for (number, slot) in self.slots.iter().enumerate() {
            self.locals.insert(*slot, (number as u32, NO_SIZE));
        }
    }

    fn fill_columns(&mut self, events: &[Event], stacks: &[StackId], unit: Nanos) {
        let [times, slots, sizes, stack_column] = &mut self.columns;
        for column in [&mut *times, &mut *slots, &mut *sizes, &mut *stack_column] {
            column.clear();
        }
        let mut before = events[0].at;
        for (i, (event, &shape)) in events.iter().zip(&self.shape_column).enumerate() {
            let shape = self.shape_list[usize::from(shape)];
            if i > 0 {
                varint::put(times, (event.at - before) / unit);
                before = event.at;
            }
            if shape.has_slot {
                varint::put(slots, u64::from(self.locals[&event.slot.0].0));
            }
            if shape.size == SIZE_COLUMN {
                varint::put(sizes, event.size);
            }
        }
        if stacks.iter().any(|&stack| stack != StackId::NONE) {
            stacks.iter().for_each(|stack| varint::put(stack_column, u64::from(stack.0)));
        }
    }

    fn assemble(&self, base: Nanos, unit: Nanos, out: &mut Vec<u8>) {
        out.clear();
        varint::put(out, self.shape_column.len() as u64);
        varint::put(out, base);
        varint::put(out, unit);
        varint::put(out, self.shape_list.len() as u64);
        for shape in &self.shape_list {
            out.push(shape.kind as u8 | u8::from(shape.has_slot) << 4 | shape.size << 5);
            varint::put(out, u64::from(shape.stream.0));
            varint::put(out, u64::from(shape.pool.0));
        }
        varint::put(out, self.slots.len() as u64);
        let mut before = 0;
        for &slot in &self.slots {
            varint::put(out, u64::from(slot - before));
            before = slot;
        }
        self.columns.iter().for_each(|column| varint::put(out, column.len() as u64));
        out.extend_from_slice(&self.shape_column);
        self.columns.iter().for_each(|column| out.extend_from_slice(column));
    }
}

fn uses_slot(kind: EventKind) -> bool {
    use EventKind::*;
    matches!(kind, Alloc | AllocRefused | Free | FreeLater | FreeDone | Use | Preexisting)
}

/// The largest unit of which all steps are multiples: recorders that count microseconds leave a factor of 1000.
fn time_unit(events: &[Event]) -> Nanos {
    let mut unit = 0;
    for pair in events.windows(2) {
        let (mut a, mut b) = (unit, pair[1].at - pair[0].at);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        unit = a;
        if unit == 1 {
            break;
        }
    }
    unit.max(1)
}
