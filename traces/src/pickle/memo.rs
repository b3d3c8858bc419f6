//! What a pickle may refer to again.

use super::texts::TextId;
use super::value::{Folded, Value};
use hashbrown::HashMap;

/// A [`Value`] in 8 bytes: a snapshot memoises several objects per entry and refers to few of them again.
#[derive(Clone, Copy)]
enum Slot {
    Empty,
    Text(u32),
    List(u32),
    Dict(u32),
    Tuple(u32),
    // Not a `Folded`, whose padding would make the slot larger.
    Row { kind: u8, index: u32 },
    Other(u32),
}

/// The memo. Its memory follows the number of puts, never the size of an index.
#[derive(Default)]
pub struct Memo {
    dense: Vec<Slot>,
    sparse: HashMap<u64, Slot>,
    /// Values that are not handles; picklers do not memoise them.
    others: Vec<Value>,
    puts: u64,
}

impl Memo {
    /// `MEMOIZE`: the next number, which counts puts.
    #[inline]
    pub fn push(&mut self, value: Value) {
        let slot = self.pack(value);
        if self.puts == self.dense.len() as u64 {
            self.dense.push(slot);
        } else {
            self.set(self.puts, slot);
        }
        self.puts += 1;
    }

    /// `PUT` and kin.
    pub fn put(&mut self, index: u64, value: Value) {
        let slot = self.pack(value);
        self.set(index, slot);
        self.puts += 1;
    }

    /// `GET` and kin. `settled` says what became of a dict or list; that is kept, so that the next `GET`
    /// need not ask.
    #[inline]
    pub fn get(&mut self, index: u64, settled: impl FnOnce(Value) -> Value) -> Option<Value> {
        match self.dense.get_mut(index as usize) {
            Some(&mut Slot::Row { kind, index }) => Some(Value::Folded(Folded { kind, index })),
            Some(&mut Slot::Text(id)) => Some(Value::Text(TextId(id))),
            Some(slot @ (Slot::Dict(_) | Slot::List(_))) => {
                let value = settled(match *slot {
                    Slot::Dict(id) => Value::Dict(id),
                    Slot::List(id) => Value::List(id),
                    _ => unreachable!("matched above"),
                });
                if let Value::Folded(Folded { kind, index }) = value {
                    *slot = Slot::Row { kind, index };
                }
                Some(value)
            }
            _ => self.get_other(index),
        }
    }

    #[cold]
    fn get_other(&self, index: u64) -> Option<Value> {
        let slot = match self.dense.get(index as usize) {
            Some(Slot::Empty) | None => *self.sparse.get(&index)?,
            Some(slot) => *slot,
        };
        Some(match slot {
            Slot::Empty => return None,
            Slot::Text(id) => Value::Text(TextId(id)),
            Slot::List(id) => Value::List(id),
            Slot::Dict(id) => Value::Dict(id),
            Slot::Tuple(id) => Value::Tuple(id),
            Slot::Row { kind, index } => Value::Folded(Folded { kind, index }),
            Slot::Other(id) => self.others[id as usize],
        })
    }

    /// Entries held.
    pub fn len(&self) -> usize {
        self.dense.len() + self.sparse.len() + self.others.len()
    }

    fn set(&mut self, index: u64, slot: Slot) {
        let len = self.dense.len() as u64;
        if index < len {
            self.dense[index as usize] = slot;
        } else if index <= 2 * self.puts + 16 {
            self.dense.resize(index as usize, Slot::Empty);
            self.dense.push(slot);
        } else {
            self.sparse.insert(index, slot);
        }
    }

    fn pack(&mut self, value: Value) -> Slot {
        match value {
            Value::Text(id) => Slot::Text(id.0),
            Value::List(id) => Slot::List(id),
            Value::Dict(id) => Slot::Dict(id),
            Value::Tuple(id) => Slot::Tuple(id),
            Value::Folded(Folded { kind, index }) => Slot::Row { kind, index },
            other => {
                self.others.push(other);
                Slot::Other(self.others.len() as u32 - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_indices_cost_no_memory_for_the_gap() {
        let get = |memo: &mut Memo, index| memo.get(index, |value| value);
        let mut memo = Memo::default();
        memo.put(u64::from(u32::MAX), Value::Int(1));
        memo.put(3, Value::Int(2));
        memo.push(Value::Int(3));
        assert_eq!(get(&mut memo, u64::from(u32::MAX)), Some(Value::Int(1)));
        assert_eq!(get(&mut memo, 3), Some(Value::Int(2)));
        assert_eq!(get(&mut memo, 2), Some(Value::Int(3)));
        assert_eq!(get(&mut memo, 0), None);
        assert!(memo.dense.len() < 40);
    }

    #[test]
    fn a_slot_is_small() {
        assert_eq!(size_of::<Slot>(), 8);
    }
}
