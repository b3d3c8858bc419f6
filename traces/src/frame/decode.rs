//! From columns to events.

use super::{MAX_SHAPES, NO_SIZE, SIZE_COLUMN, SIZE_RECALLED};
use crate::format::MAX_FRAME_EVENTS;
use crate::varint;
use poolsim_core::stack::StackId;
use poolsim_core::{Batch, Bytes, Event, EventKind, Nanos, PoolId, Slot, StreamId};

/// Zeros after the payload, so that numbers can be read eight bytes at a time.
const PAD: usize = 8;

/// A shape, as the decoder uses it: a mask is all ones for "yes".
#[derive(Clone, Copy)]
struct Shape {
    kind: EventKind,
    stream: StreamId,
    pool: PoolId,
    has_slot: bool,
    column_mask: u64,
    recall_mask: u64,
}

/// A part of the payload that is still to be read.
#[derive(Clone, Copy, Default)]
struct Column {
    at: usize,
    end: usize,
}

/// Decodes a frame in steps, reusing its memory.
#[derive(Clone, Default)]
pub(crate) struct FrameDecoder {
    raw: Vec<u8>,
    shapes: Vec<Shape>,
    slots: Vec<u32>,
    sizes: Vec<Bytes>,
    slot_bound: u64,
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
        self.slot_bound
    }

    /// Reads the tables in front of the columns.
    pub fn start(&mut self) -> Result<(), FrameFault> {
        let mut raw = std::mem::take(&mut self.raw);
        let result = self.start_in(&raw);
        raw.extend_from_slice(&[0; PAD]);
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
            let mask = |set: bool| if set { u64::MAX } else { 0 };
            self.shapes.push(Shape {
                kind,
                stream,
                pool: PoolId(pool),
                has_slot,
                column_mask: mask(size == SIZE_COLUMN),
                recall_mask: mask(size == SIZE_RECALLED),
            });
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
        self.slot_bound = if count > 0 { u64::from(slot) + 1 } else { 0 };
        // What events without a slot point to.
        self.slots.push(0);
        self.sizes.clear();
        self.sizes.resize(self.slots.len(), NO_SIZE);
        Ok(())
    }

    /// Appends the next `most` events (fewer at the end of the frame) to `batch`. After an error the frame
    /// must be started again.
    pub fn decode(&mut self, most: usize, batch: &mut Batch) -> Result<(), FrameFault> {
        let count = most.min(self.left);
        if count == 0 {
            return Ok(());
        }
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
        let [times, slots, sizes, _] = self.columns;
        let (mut time_at, mut slot_at, mut size_at) = (times.at, slots.at, sizes.at);
        let shapes = &raw[self.shape_column.at..self.shape_column.at + count];
        let (mut at, unit) = (self.at, self.unit);
        let no_slot = self.slots.len() - 1;
        let mut first = self.left == self.count;
        out.reserve(count);
        for &shape in shapes {
            let shape =
                self.shapes.get(usize::from(shape)).ok_or("an event has an unknown shape")?;
            if !first {
                let (step, length) = take_short(raw, time_at);
                time_at += length;
                let next = step.checked_mul(unit).and_then(|step| at.checked_add(step));
                at = next.ok_or("a time is above 2^64 - 1")?;
            }
            first = false;
            // Which event repeats a size is as good as random: masks cost less than a mispredicted branch.
            let mut local = no_slot;
            if shape.has_slot {
                let (number, length) = take_short(raw, slot_at);
                slot_at += length;
                local = number as usize;
            }
            let slot = *self.slots.get(local).ok_or("an event has an unknown slot")?;
            let mut said = 0;
            if shape.column_mask != 0 {
                let length;
                (said, length) = take_wide(raw, size_at);
                size_at += length;
            }
            let before = &mut self.sizes[local];
            if *before == NO_SIZE && shape.recall_mask != 0 {
                return Err("an event repeats a size that its frame has not said");
            }
            let size = said | (*before & shape.recall_mask);
            *before = size | (*before & !(shape.column_mask | shape.recall_mask));
            out.push(Event::new(shape.kind, at, Slot(slot), size, shape.stream, shape.pool));
        }
        if time_at > times.end || slot_at > slots.end || size_at > sizes.end {
            return Err("a column is shorter than its events need");
        }
        (self.columns[0].at, self.columns[1].at, self.columns[2].at) = (time_at, slot_at, size_at);
        self.shape_column.at += count;
        self.at = at;
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
        let column = self.columns[3];
        let mut at = column.at;
        for _ in 0..count {
            let (stack, length) = take_short(raw, at);
            at += length;
            out.push(StackId(u32::try_from(stack).map_err(|_| "a stack is above 2^32 - 1")?));
        }
        if at > column.end {
            return Err("the stack column is cut short");
        }
        self.columns[3].at = at;
        Ok(())
    }
}

/// The varint at `at` and its length. The end of a column is the caller's to check: `raw` ends with [`PAD`]
/// zeros, which read as short numbers, and past them everything reads as 0.
///
/// Values go in and out by value: a cursor behind a reference would live in memory.
#[inline(always)]
fn take_wide(raw: &[u8], at: usize) -> (u64, usize) {
    let Some(bytes) = raw.get(at..).and_then(|rest| rest.first_chunk::<8>()) else {
        return (0, 0);
    };
    let word = u64::from_le_bytes(*bytes);
    let stops = !word & 0x8080_8080_8080_8080;
    if stops == 0 {
        return take_longest(raw, at);
    }
    // The bits below the first stop bit, then groups of seven moved together in pairs.
    let x = word & (stops ^ (stops - 1)) & 0x7f7f_7f7f_7f7f_7f7f;
    let x = (x & 0x007f_007f_007f_007f) | ((x & 0x7f00_7f00_7f00_7f00) >> 1);
    let x = (x & 0x0000_3fff_0000_3fff) | ((x & 0x3fff_0000_3fff_0000) >> 2);
    let x = (x & 0x0000_0000_0fff_ffff) | ((x & 0x0fff_ffff_0000_0000) >> 4);
    (x, (stops.trailing_zeros() as usize + 1) / 8)
}

/// [`take_wide`] for numbers that mostly take one or two bytes.
#[inline(always)]
fn take_short(raw: &[u8], at: usize) -> (u64, usize) {
    let Some(bytes) = raw.get(at..).and_then(|rest| rest.first_chunk::<2>()) else {
        return (0, 0);
    };
    let word = u16::from_le_bytes(*bytes);
    if word & 0x8080 == 0x8080 {
        return take_long(raw, at);
    }
    let two = word >> 7 & 1;
    let number = (word & 0x7f) | (word >> 1 & 0x3f80 & two.wrapping_neg());
    (u64::from(number), usize::from(1 + two))
}

#[cold]
#[inline(never)]
fn take_long(raw: &[u8], at: usize) -> (u64, usize) {
    take_wide(raw, at)
}

/// A number of nine or ten bytes; one that is no number moves past every column.
#[cold]
#[inline(never)]
fn take_longest(raw: &[u8], at: usize) -> (u64, usize) {
    let mut rest = &raw[at..];
    let before = rest.len();
    match varint::take(&mut rest) {
        Some(number) => (number, before - rest.len()),
        None => (0, before),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_reads_agree_with_narrow_ones() {
        for shift in 0..64 {
            for number in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut raw = Vec::new();
                varint::put(&mut raw, number);
                let length = raw.len();
                raw.extend_from_slice(&[0; PAD]);
                assert_eq!(take_wide(&raw, 0), (number, length));
                assert_eq!(take_short(&raw, 0), (number, length));
            }
        }
    }

    #[test]
    fn what_is_no_number_ends_up_past_the_end() {
        assert_eq!(take_wide(&[0xff; 30], 0), (0, 30));
        assert_eq!(take_short(&[0xff; 30], 0), (0, 30));
        assert_eq!(take_wide(&[0xff; 30], 30), (0, 0));
        assert_eq!(take_short(&[0xff; 30], 40), (0, 0));
    }
}
