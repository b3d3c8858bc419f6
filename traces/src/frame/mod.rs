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

mod decode;
mod encode;

pub(crate) use decode::FrameDecoder;
pub(crate) use encode::FrameEncoder;

use poolsim_core::Bytes;

const SIZE_ZERO: u8 = 0;
const SIZE_COLUMN: u8 = 1;
const SIZE_RECALLED: u8 = 2;
const MAX_SHAPES: usize = 256;

/// Marks a slot whose size this frame has not said yet; a size of this value is never recalled.
const NO_SIZE: Bytes = Bytes::MAX;
