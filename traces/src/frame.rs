//! The payload of an `EVTS` section: a few thousand events in columns.
//!
//! ```text
//! count:varint             1 to 16,384
//! base:varint unit:varint  time of the first event; all later steps in time are multiples of unit
//! shapes:varint shape*     1 to 256 of: kind | slot << 4 | size << 5 : u8, stream:varint, pool:varint
//! slots:varint step*       the slots that occur, ascending: the first one, then the steps between them
//! length:varint × 4        bytes of the time, slot, size and stack columns
//! shape column             count bytes: which shape each event has
//! time column              count - 1 varints: step in time from the event before, in units
//! slot column              for shapes with slot = 1: which of the slots above
//! size column              for shapes with size = 1
//! stack column             count varints, or nothing if no event has a stack
//! ```
//!
//! A shape with slot = 0 has slot 0. Its size is 0 (size = 0), in the column (1), or that of the last event in this
//! frame with the same slot and size = 1 or 2 (2): a free repeats the size of its allocation, which is written once.

use crate::format::MAX_FRAME_EVENTS;
use crate::varint;
use poolsim_core::stack::StackId;
use poolsim_core::{Batch, Bytes, Event, EventKind, Nanos, PoolId, Slot, StreamId};
use rustc_hash::FxHashMap;

const SIZE_ZERO: u8 = 0;
const SIZE_COLUMN: u8 = 1;
const SIZE_RECALLED: u8 = 2;
const MAX_SHAPES: usize = 256;

/// Marks a slot whose size this frame has not said yet; a size of this value is never recalled.
const NO_SIZE: Bytes = Bytes::MAX;

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

/// A part of the payload that is still to be read.
#[derive(Clone, Copy, Default)]
struct Column {
    at: usize,
    end: usize,
}

impl Column {
    fn of<'a>(&self, raw: &'a [u8]) -> &'a [u8] {
        &raw[self.at..self.end]
    }

    fn keep(&mut self, rest: &[u8]) {
        self.at = self.end - rest.len();
    }
}

/// Decodes a frame in steps, reusing its memory.
#[derive(Clone, Default)]
pub(crate) struct FrameDecoder {
    raw: Vec<u8>,
    shapes: Vec<Shape>,
    slots: Vec<u32>,
    sizes: Vec<Bytes>,
    count: usize,
    left: usize,
    at: Nanos,
    unit: Nanos,
    shape_column: Column,
    columns: [Column; 4],
    has_stacks: bool,
}

/// What is wrong with a frame's content.
pub(crate) type FrameFault = &'static str;

impl FrameDecoder {
    /// The buffer to decompress into before [`FrameDecoder::start`].
    pub fn raw(&mut self) -> &mut Vec<u8> {
        self.left = 0;
        &mut self.raw
    }

    /// Events of the frame.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Events that are still to be decoded.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Time of the next event before any was decoded.
    pub fn base(&self) -> Nanos {
        self.at
    }

    /// One more than the largest slot of the frame.
    pub fn slot_bound(&self) -> u64 {
        self.slots.last().map_or(0, |&slot| u64::from(slot) + 1)
    }

    /// Reads the tables in front of the columns.
    pub fn start(&mut self) -> Result<(), FrameFault> {
        let raw = std::mem::take(&mut self.raw);
        let result = self.start_in(&raw);
        self.raw = raw;
        result
    }

    fn start_in(&mut self, raw: &[u8]) -> Result<(), FrameFault> {
        const CUT: FrameFault = "the tables before the columns are cut short";
        let input = &mut &raw[..];
        self.count = varint::take_as(input).ok_or(CUT)?;
        if !(1..=MAX_FRAME_EVENTS).contains(&self.count) {
            return Err("a frame must hold 1 to 16,384 events");
        }
        self.at = varint::take(input).ok_or(CUT)?;
        self.unit = varint::take(input).ok_or(CUT)?;
        self.read_shapes(input)?;
        self.read_slots(input)?;
        let mut lengths = [0usize; 4];
        for length in &mut lengths {
            *length = varint::take_as(input).ok_or(CUT)?;
        }
        let mut at = raw.len() - input.len();
        let mut column = |length: usize| -> Result<Column, FrameFault> {
            let end = at.checked_add(length).filter(|&end| end <= raw.len());
            let column = Column { at, end: end.ok_or("a column is longer than the frame")? };
            at = column.end;
            Ok(column)
        };
        self.shape_column = column(self.count)?;
        for (column_of_four, length) in self.columns.iter_mut().zip(lengths) {
            *column_of_four = column(length)?;
        }
        self.has_stacks = lengths[3] > 0;
        if at != raw.len() {
            return Err("bytes follow the last column");
        }
        self.left = self.count;
        Ok(())
    }

    fn read_shapes(&mut self, input: &mut &[u8]) -> Result<(), FrameFault> {
        const CUT: FrameFault = "the shape table is cut short";
        let count = varint::take(input).ok_or(CUT)?;
        if !(1..=MAX_SHAPES as u64).contains(&count) {
            return Err("a frame must have 1 to 256 shapes");
        }
        self.shapes.clear();
        for _ in 0..count {
            let (&flags, rest) = input.split_first().ok_or(CUT)?;
            *input = rest;
            let kind = EventKind::from_number(flags & 15).ok_or("a shape has an unknown kind")?;
            let stream =
                StreamId(varint::take_as(input).ok_or("a shape's stream is above 65,535")?);
            let pool: u16 = varint::take_as(input).ok_or("a shape's pool is above 4,095")?;
            let (has_slot, size) = (flags & 16 != 0, flags >> 5);
            if pool > Event::MAX_POOL {
                return Err("a shape's pool is above 4,095");
            }
            if size > SIZE_RECALLED || (size == SIZE_RECALLED && !has_slot) {
                return Err("a shape says where its size is in no known way");
            }
            self.shapes.push(Shape { kind, stream, pool: PoolId(pool), has_slot, size });
        }
        Ok(())
    }

    fn read_slots(&mut self, input: &mut &[u8]) -> Result<(), FrameFault> {
        let count = varint::take(input).ok_or("the slot table is cut short")?;
        if count > self.count as u64 {
            return Err("a frame has more slots than events");
        }
        self.slots.clear();
        let mut slot = 0u32;
        for i in 0..count {
            let step: u32 = varint::take_as(input).ok_or("the slot table is cut short")?;
            if i > 0 && step == 0 {
                return Err("the slot table names a slot twice");
            }
            slot = slot.checked_add(step).ok_or("a slot is above 2^32 - 1")?;
            self.slots.push(slot);
        }
        self.sizes.clear();
        self.sizes.resize(self.slots.len(), NO_SIZE);
        Ok(())
    }

    /// Appends the next `most` events (fewer at the end of the frame) to `batch`. After an error the frame
    /// must be started again.
    pub fn decode(&mut self, most: usize, batch: &mut Batch) -> Result<(), FrameFault> {
        let count = most.min(self.left);
        let raw = std::mem::take(&mut self.raw);
        let result = self.decode_events(&raw, count, &mut batch.events);
        let stacks = result.and_then(|()| self.decode_stacks(&raw, count, &mut batch.stacks));
        self.raw = raw;
        stacks?;
        self.left -= count;
        if self.left == 0 && self.columns.iter().any(|column| column.at != column.end) {
            return Err("a column is longer than its events need");
        }
        Ok(())
    }

    fn decode_events(
        &mut self,
        raw: &[u8],
        count: usize,
        out: &mut Vec<Event>,
    ) -> Result<(), FrameFault> {
        let [mut times, mut slots, mut sizes, _] = self.columns.map(|column| column.of(raw));
        let shapes = &raw[self.shape_column.at..self.shape_column.at + count];
        let first = self.left == self.count;
        out.reserve(count);
        for (i, &shape) in shapes.iter().enumerate() {
            let shape =
                self.shapes.get(usize::from(shape)).ok_or("an event has an unknown shape")?;
            if i > 0 || !first {
                let step = varint::take(&mut times).ok_or("the time column is cut short")?;
                let step = step.checked_mul(self.unit);
                self.at =
                    step.and_then(|s| self.at.checked_add(s)).ok_or("a time is above 2^64 - 1")?;
            }
            let mut size = if shape.size == SIZE_COLUMN {
                varint::take(&mut sizes).ok_or("the size column is cut short")?
            } else {
                0
            };
            let mut slot = 0;
            if shape.has_slot {
                let local =
                    varint::take(&mut slots).ok_or("the slot column is cut short")? as usize;
                slot = *self.slots.get(local).ok_or("an event has an unknown slot")?;
                if shape.size == SIZE_RECALLED {
                    size = self.sizes[local];
                    if size == NO_SIZE {
                        return Err("an event repeats a size that its frame has not said");
                    }
                }
                if shape.size != SIZE_ZERO {
                    self.sizes[local] = size;
                }
            }
            out.push(Event::new(shape.kind, self.at, Slot(slot), size, shape.stream, shape.pool));
        }
        self.shape_column.at += count;
        for (column, rest) in self.columns.iter_mut().zip([times, slots, sizes]) {
            column.keep(rest);
        }
        Ok(())
    }

    fn decode_stacks(
        &mut self,
        raw: &[u8],
        count: usize,
        out: &mut Vec<StackId>,
    ) -> Result<(), FrameFault> {
        if !self.has_stacks {
            return Ok(());
        }
        let mut rest = self.columns[3].of(raw);
        for _ in 0..count {
            let stack = varint::take_as(&mut rest).ok_or("the stack column is cut short")?;
            out.push(StackId(stack));
        }
        self.columns[3].keep(rest);
        Ok(())
    }
}
