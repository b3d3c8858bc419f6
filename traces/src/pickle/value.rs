//! Values, and how containers become rows.

use super::texts::{TextId, Texts};
use poolsim_core::TraceError;

/// A value. Containers are handles: copying a value never copies what it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Python's `None`, JSON's `null`.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer that fits.
    Int(i64),
    /// An integer from 2^63 up.
    Big(u64),
    /// An integer of more than 64 bits, or below -2^63. Its value is not kept.
    Huge,
    /// A float.
    Float(f64),
    /// A string.
    Text(TextId),
    /// Bytes or a set: legal data whose content no snapshot needs. Not kept.
    Opaque,
    /// An empty list that was used as it was.
    EmptyList,
    /// A list.
    List(u32),
    /// A dict.
    Dict(u32),
    /// A tuple.
    Tuple(u32),
    /// What a [`Fold`] made of a container.
    Folded(Folded),
}

/// A row that stands for a container; what the two numbers mean is the [`Fold`]'s business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folded {
    /// Which table; below [`Folded::KINDS`].
    pub kind: u8,
    /// Which row.
    pub index: u32,
}

impl Folded {
    /// Kinds from here up are taken.
    pub const KINDS: u8 = 128;
}

/// Turns complete containers into rows. `at` is the offset in the file, for errors.
pub trait Fold {
    /// A dict with these keys and values, alternating. `None` leaves it a dict.
    fn dict(
        &mut self,
        pairs: &[Value],
        texts: &Texts,
        at: u64,
    ) -> Result<Option<Folded>, TraceError>;
    /// A list, not empty. `None` leaves it a list.
    fn list(&mut self, items: &[Value]) -> Option<Folded>;
    /// A tuple. `None` leaves it a tuple.
    fn tuple(&mut self, items: &[Value]) -> Option<Folded>;
    /// Whether lists of this kind are long and mostly in row order, as the lists of trace entries are;
    /// such a list is held as a range of rows.
    fn in_runs(kind: u8) -> bool;
}

/// The items of a list.
#[derive(Clone, Copy)]
pub enum Items<'a> {
    /// One by one.
    Values(&'a [Value]),
    /// Consecutive rows of one kind.
    Rows {
        /// Which table.
        kind: u8,
        /// First row.
        first: u32,
        /// How many rows.
        len: u32,
    },
}

impl Items<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Items::Values(values) => values.len(),
            Items::Rows { len, .. } => *len as usize,
        }
    }

    /// The item at an index below [`Items::len`].
    pub fn get(&self, n: usize) -> Value {
        match *self {
            Items::Values(values) => values[n],
            Items::Rows { kind, first, .. } => {
                Value::Folded(Folded { kind, index: first + n as u32 })
            }
        }
    }
}
