//! Shared containers, folded into rows as they are completed.

use super::texts::Texts;
use super::value::{Fold, Folded, Items, Value};
use poolsim_core::TraceError;
use poolsim_core::error::{Place, TraceErrorKind};

// What a list or dict slot holds, in place of a `Folded::kind`. The index is a body, a run or nothing.
const EMPTY: u8 = 255;
/// A body that was not offered to the fold.
const OPEN: u8 = 254;
/// A body that the fold did not want. Never offered again, or a list that grows could be offered, at the
/// cost of its length, at each of a million uses.
const PLAIN: u8 = 253;
/// A range of rows.
const RUN: u8 = 252;
/// A list that was used while it was empty.
const USED_EMPTY: u8 = 251;

#[derive(Clone, Copy)]
struct Run {
    kind: u8,
    first: u32,
    len: u32,
}

/// Bodies longer than this give their memory back once they are folded.
const KEEP: usize = 4096;

/// All containers of a file.
pub struct Objects {
    /// The strings.
    pub texts: Texts,
    lists: Vec<Folded>,
    dicts: Vec<Folded>,
    tuples: Vec<Box<[Value]>>,
    runs: Vec<Run>,
    bodies: Vec<Vec<Value>>,
    spare: Vec<u32>,
    held: usize,
}

impl Objects {
    /// No containers; string `n` is `words[n]`.
    pub fn new(words: &[&str]) -> Self {
        Objects {
            texts: Texts::with_words(words),
            lists: Vec::new(),
            dicts: Vec::new(),
            tuples: Vec::new(),
            runs: Vec::new(),
            bodies: Vec::new(),
            spare: Vec::new(),
            held: 0,
        }
    }

    /// Containers and items held at present.
    pub fn weight(&self) -> usize {
        self.lists.len() + self.dicts.len() + self.tuples.len() + self.held
    }

    /// A new list.
    pub fn list(&mut self) -> Value {
        self.lists.push(Folded { kind: EMPTY, index: 0 });
        Value::List(self.lists.len() as u32 - 1)
    }

    /// A new dict.
    pub fn dict(&mut self) -> Value {
        self.dicts.push(Folded { kind: EMPTY, index: 0 });
        Value::Dict(self.dicts.len() as u32 - 1)
    }

    /// A new tuple of settled items, or what the fold makes of it.
    pub fn tuple(&mut self, items: &[Value], fold: &mut impl Fold) -> Value {
        if let Some(folded) = fold.tuple(items) {
            return Value::Folded(folded);
        }
        self.held += items.len();
        self.tuples.push(items.into());
        Value::Tuple(self.tuples.len() as u32 - 1)
    }

    /// Appends to a list. Items are settled in place.
    pub fn extend<F: Fold>(
        &mut self,
        list: u32,
        items: &mut [Value],
        fold: &mut F,
        at: u64,
    ) -> Result<(), TraceError> {
        for item in items.iter_mut() {
            if matches!(item, Value::Dict(_) | Value::List(_)) {
                *item = self.settle(*item, fold, at)?;
            }
        }
        let slot = self.lists[list as usize];
        match slot.kind {
            EMPTY => {
                let Some(&first) = items.first() else { return Ok(()) };
                match first {
                    Value::Folded(f) if F::in_runs(f.kind) => {
                        self.runs.push(Run { kind: f.kind, first: f.index, len: 0 });
                        let run = self.runs.len() as u32 - 1;
                        self.lists[list as usize] = Folded { kind: RUN, index: run };
                        self.extend_run(list, run, items);
                    }
                    _ => {
                        let body = self.body();
                        self.lists[list as usize] = Folded { kind: OPEN, index: body };
                        self.fill(body, items);
                    }
                }
            }
            RUN => self.extend_run(list, slot.index, items),
            OPEN | PLAIN => self.fill(slot.index, items),
            _ => return Err(changed("list", at)),
        }
        Ok(())
    }

    /// Adds keys and values, alternating, to a dict. Values are settled in place.
    pub fn insert<F: Fold>(
        &mut self,
        dict: u32,
        pairs: &mut [Value],
        fold: &mut F,
        at: u64,
    ) -> Result<(), TraceError> {
        for pair in pairs.chunks_exact_mut(2) {
            pair[1] = self.settle(pair[1], fold, at)?;
        }
        let slot = self.dicts[dict as usize];
        match slot.kind {
            EMPTY if pairs.is_empty() => {}
            EMPTY => {
                // Every pickler writes a small dict in one go, so it is complete here. One pair is
                // not offered: protocol 0 writes pair after pair.
                if pairs.len() > 2
                    && let Some(folded) = fold.dict(pairs, &self.texts, at)?
                {
                    self.dicts[dict as usize] = folded;
                    return Ok(());
                }
                let body = self.body();
                self.dicts[dict as usize] = Folded { kind: OPEN, index: body };
                self.fill(body, pairs);
            }
            OPEN | PLAIN => self.fill(slot.index, pairs),
            _ => return Err(changed("dict", at)),
        }
        Ok(())
    }

    /// What a value is once it is put into a container: complete, hence folded if the fold wants it.
    #[inline]
    pub fn settle<F: Fold>(
        &mut self,
        value: Value,
        fold: &mut F,
        at: u64,
    ) -> Result<Value, TraceError> {
        match value {
            Value::Dict(id) => self.settle_dict(id, fold, at),
            Value::List(id) => Ok(self.settle_list(id, fold)),
            other => Ok(other),
        }
    }

    /// What a dict or list became, without completing it: it may be taken from the memo to be filled.
    #[inline]
    pub fn settled(&self, value: Value) -> Value {
        let slot = match value {
            Value::Dict(id) => self.dicts[id as usize],
            Value::List(id) => self.lists[id as usize],
            _ => return value,
        };
        if slot.kind < Folded::KINDS { Value::Folded(slot) } else { value }
    }

    fn settle_dict<F: Fold>(
        &mut self,
        id: u32,
        fold: &mut F,
        at: u64,
    ) -> Result<Value, TraceError> {
        let slot = self.dicts[id as usize];
        if slot.kind < Folded::KINDS {
            return Ok(Value::Folded(slot));
        }
        if slot.kind == OPEN {
            let body = &self.bodies[slot.index as usize];
            if let Some(folded) = fold.dict(body, &self.texts, at)? {
                self.dicts[id as usize] = folded;
                self.release(slot.index);
                return Ok(Value::Folded(folded));
            }
            self.dicts[id as usize].kind = PLAIN;
        }
        Ok(Value::Dict(id))
    }

    fn settle_list<F: Fold>(&mut self, id: u32, fold: &mut F) -> Value {
        let slot = self.lists[id as usize];
        match slot.kind {
            OPEN => {
                if let Some(folded) = fold.list(&self.bodies[slot.index as usize]) {
                    self.lists[id as usize] = folded;
                    self.release(slot.index);
                    return Value::Folded(folded);
                }
                self.lists[id as usize].kind = PLAIN;
                Value::List(id)
            }
            EMPTY | USED_EMPTY => {
                self.lists[id as usize].kind = USED_EMPTY;
                Value::EmptyList
            }
            kind if kind < Folded::KINDS => Value::Folded(slot),
            _ => Value::List(id),
        }
    }

    /// The items of a list value; `None` if the value is none.
    pub fn items(&self, value: Value) -> Option<Items<'_>> {
        match value {
            Value::EmptyList => Some(Items::Values(&[])),
            Value::Tuple(id) => Some(Items::Values(&self.tuples[id as usize])),
            Value::List(id) => {
                let slot = self.lists[id as usize];
                Some(match slot.kind {
                    RUN => {
                        let Run { kind, first, len } = self.runs[slot.index as usize];
                        Items::Rows { kind, first, len }
                    }
                    OPEN | PLAIN => Items::Values(&self.bodies[slot.index as usize]),
                    _ => Items::Values(&[]),
                })
            }
            _ => None,
        }
    }

    /// The keys and values, alternating, of a dict value; `None` if the value is none.
    pub fn pairs(&self, value: Value) -> Option<&[Value]> {
        let Value::Dict(id) = value else { return None };
        let slot = self.dicts[id as usize];
        Some(match slot.kind {
            OPEN | PLAIN => &self.bodies[slot.index as usize],
            _ => &[],
        })
    }

    fn body(&mut self) -> u32 {
        self.spare.pop().unwrap_or_else(|| {
            self.bodies.push(Vec::new());
            self.bodies.len() as u32 - 1
        })
    }

    fn fill(&mut self, body: u32, items: &[Value]) {
        self.bodies[body as usize].extend_from_slice(items);
        self.held += items.len();
    }

    fn release(&mut self, body: u32) {
        let values = &mut self.bodies[body as usize];
        self.held -= values.len();
        if values.capacity() > KEEP {
            *values = Vec::new();
        } else {
            values.clear();
        }
        self.spare.push(body);
    }

    /// Appends to a run, which becomes a plain list where the items do not go on in row order.
    fn extend_run(&mut self, list: u32, run: u32, items: &[Value]) {
        let Run { kind, first, mut len } = self.runs[run as usize];
        let mut taken = 0;
        for item in items {
            // A run never reaches 2^32 rows: the tables are smaller.
            if *item != Value::Folded(Folded { kind, index: first.wrapping_add(len) }) {
                break;
            }
            len += 1;
            taken += 1;
        }
        self.runs[run as usize].len = len;
        if taken < items.len() {
            let body = self.body();
            let rows = Items::Rows { kind, first, len };
            self.bodies[body as usize].extend((0..rows.len()).map(|n| rows.get(n)));
            self.held += rows.len();
            self.fill(body, &items[taken..]);
            self.lists[list as usize] = Folded { kind: PLAIN, index: body };
        }
    }
}

/// The error for a container that grows after it was used.
pub fn changed(what: &str, at: u64) -> TraceError {
    TraceError::new(
        TraceErrorKind::Refused,
        Place::Byte(at),
        format!(
            "a {what} is changed here after it was already used inside another object; no snapshot \
             does that, so this pickle is refused"
        ),
    )
}
