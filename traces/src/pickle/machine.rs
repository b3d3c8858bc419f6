//! The pickle machine: opcodes, stack and memo.

use super::memo::Memo;
use super::objects::{Objects, changed};
use super::opcode as op;
use super::source::Source;
use super::text;
use super::value::{Fold, Value};
use poolsim_core::TraceError;
use poolsim_core::error::{Place, TraceErrorKind};
use std::io::Read;

/// Marks that may be open at once. A snapshot nests seven containers.
const MAX_MARKS: usize = 10_000;
/// Longest string and number in bytes. Settings strings, the longest that snapshots hold, stay far below.
pub(super) const MAX_TEXT: u64 = 16 << 20;
/// Objects that a file of any length may hold; above, there is room for one per two bytes read. A
/// snapshot needs about one per eight.
const FREE_OBJECTS: u64 = 1 << 20;
/// How often the number of objects is checked, in opcodes.
const CHECK_EVERY: u32 = 4096;

/// Reads one pickle. See the module docs.
pub struct Machine<R, F> {
    pub(super) source: Source<R>,
    pub(super) stack: Vec<Value>,
    marks: Vec<usize>,
    pub(super) memo: Memo,
    pub(super) objects: Objects,
    fold: F,
    /// Offset of the opcode at hand.
    pub(super) at: u64,
}

/// What a pickle held.
pub struct Loaded<R, F> {
    /// The pickled object, settled.
    pub root: Value,
    /// Its containers and strings.
    pub objects: Objects,
    /// What was folded.
    pub fold: F,
    /// Bytes of the pickle.
    pub length: u64,
    /// The reader, of which more than the pickle may have been taken.
    pub reader: R,
}

impl<R: Read, F: Fold> Machine<R, F> {
    /// A machine at the start of a pickle; string `n` will be `words[n]`.
    pub fn new(reader: R, fold: F, words: &[&str]) -> Self {
        Machine {
            source: Source::new(reader),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Memo::default(),
            objects: Objects::new(words),
            fold,
            at: 0,
        }
    }

    /// Runs to `STOP`.
    ///
    /// # Errors
    /// Malformed or cut pickles, and pickles that ask for more than plain data or more memory than their
    /// length can justify; all with the byte offset.
    pub fn run(mut self) -> Result<Loaded<R, F>, TraceError> {
        loop {
            self.check_weight()?;
            for _ in 0..CHECK_EVERY {
                self.at = self.source.offset();
                let code = self.source.byte()?;
                if code == op::STOP {
                    return self.finish();
                }
                self.step(code)?;
            }
        }
    }

    fn finish(mut self) -> Result<Loaded<R, F>, TraceError> {
        let root = self.pop()?;
        let root = self.objects.settle(root, &mut self.fold, self.at)?;
        let length = self.source.offset();
        let reader = self.source.into_reader();
        Ok(Loaded { root, objects: self.objects, fold: self.fold, length, reader })
    }

    /// The opcodes that snapshots are made of.
    #[inline]
    fn step(&mut self, code: u8) -> Result<(), TraceError> {
        match code {
            op::BINGET | op::LONG_BINGET | op::MEMOIZE | op::BINPUT | op::LONG_BINPUT => {
                self.use_memo(code)?;
            }
            op::LONG1 => {
                let len = self.source.byte()?;
                let value = text::long(self.source.bytes(usize::from(len))?);
                self.stack.push(value);
            }
            op::BININT1 => {
                let n = self.source.byte()?;
                self.stack.push(Value::Int(i64::from(n)));
            }
            op::BININT2 => {
                let n = u16::from_le_bytes(self.source.array()?);
                self.stack.push(Value::Int(i64::from(n)));
            }
            op::BININT => {
                let n = i32::from_le_bytes(self.source.array()?);
                self.stack.push(Value::Int(i64::from(n)));
            }
            op::SHORT_BINUNICODE => {
                let len = self.source.byte()?;
                self.text(u64::from(len))?;
            }
            op::BINUNICODE => {
                let len = u32::from_le_bytes(self.source.array()?);
                self.text(u64::from(len))?;
            }
            op::MARK => self.mark()?,
            op::EMPTY_DICT => {
                let dict = self.objects.dict();
                self.stack.push(dict);
            }
            op::EMPTY_LIST => {
                let list = self.objects.list();
                self.stack.push(list);
            }
            op::SETITEMS => {
                let start = self.pop_mark()?;
                self.set_items(start)?;
            }
            op::APPENDS => {
                let start = self.pop_mark()?;
                self.append_items(start)?;
            }
            op::NONE => self.stack.push(Value::None),
            op::NEWTRUE => self.stack.push(Value::Bool(true)),
            op::NEWFALSE => self.stack.push(Value::Bool(false)),
            op::TUPLE2 => self.tuple_of(2)?,
            op::FRAME => self.frame()?,
            _ => self.rare(code)?,
        }
        Ok(())
    }

    /// The opcodes that put into the memo and take from it.
    #[inline(always)]
    fn use_memo(&mut self, code: u8) -> Result<(), TraceError> {
        match code {
            op::BINGET => {
                let index = self.source.byte()?;
                self.recall(u64::from(index))?;
            }
            op::LONG_BINGET => {
                let index = u32::from_le_bytes(self.source.array()?);
                self.recall(u64::from(index))?;
                // Stacks are long rows of these.
                while self.source.next_is(op::LONG_BINGET) {
                    self.at = self.source.offset();
                    let [_, index @ ..] = self.source.array::<5>()?;
                    self.recall(u64::from(u32::from_le_bytes(index)))?;
                }
            }
            op::MEMOIZE => {
                let top = self.top()?;
                self.memo.push(top);
            }
            op::BINPUT => {
                let index = self.source.byte()?;
                self.memoise(u64::from(index))?;
            }
            _ => {
                let index = u32::from_le_bytes(self.source.array()?);
                self.memoise(u64::from(index))?;
            }
        }
        Ok(())
    }

    fn mark(&mut self) -> Result<(), TraceError> {
        if self.marks.len() == MAX_MARKS {
            return Err(self.refused(format!(
                "objects are nested more than {MAX_MARKS} deep here; a snapshot nests seven, so \
                 this is not one"
            )));
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    pub(super) fn pop_mark(&mut self) -> Result<usize, TraceError> {
        self.marks.pop().ok_or_else(|| self.malformed("an opcode needs a MARK, and none is open"))
    }

    /// True if the top of the stack is a mark.
    pub(super) fn at_mark(&self) -> bool {
        self.marks.last() == Some(&self.stack.len())
    }

    /// Where the part of the stack above the last mark starts.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    pub(super) fn pop(&mut self) -> Result<Value, TraceError> {
        if self.stack.len() > self.floor() {
            Ok(self.stack.pop().expect("the stack is above its floor"))
        } else {
            Err(self.malformed("an opcode takes a value from the stack, and there is none"))
        }
    }

    pub(super) fn top(&self) -> Result<Value, TraceError> {
        match self.stack.last() {
            Some(&value) if self.stack.len() > self.floor() => Ok(value),
            _ => Err(self.malformed("an opcode takes a value from the stack, and there is none")),
        }
    }

    /// The dict or list below `start`, to which the values from there on are added.
    fn container(&self, start: usize) -> Result<Value, TraceError> {
        if start <= self.floor() {
            return Err(self.malformed("an opcode adds to a container, and there is none"));
        }
        Ok(self.stack[start - 1])
    }

    pub(super) fn set_items(&mut self, start: usize) -> Result<(), TraceError> {
        if !(self.stack.len() - start).is_multiple_of(2) {
            return Err(self.malformed("a dict gets a key without a value"));
        }
        let id = match self.container(start)? {
            Value::Dict(id) => id,
            Value::Folded(_) => return Err(changed("dict", self.at)),
            _ => return Err(self.malformed("dict items are added to what is no dict")),
        };
        let pairs = &mut self.stack[start..];
        self.objects.insert(id, pairs, &mut self.fold, self.at)?;
        self.stack.truncate(start);
        Ok(())
    }

    pub(super) fn append_items(&mut self, start: usize) -> Result<(), TraceError> {
        let id = match self.container(start)? {
            Value::List(id) => id,
            Value::Folded(_) => return Err(changed("list", self.at)),
            _ => return Err(self.malformed("items are appended to what is no list")),
        };
        let items = &mut self.stack[start..];
        self.objects.extend(id, items, &mut self.fold, self.at)?;
        self.stack.truncate(start);
        Ok(())
    }

    /// Adds the top `count` values, of which none is a mark, to the container below them.
    pub(super) fn add_top(
        &mut self,
        count: usize,
        add: fn(&mut Self, usize) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        if self.stack.len() < self.floor() + count {
            return Err(self.malformed("an opcode takes more values than the stack holds"));
        }
        add(self, self.stack.len() - count)
    }

    pub(super) fn tuple_of(&mut self, count: usize) -> Result<(), TraceError> {
        self.add_top(count, Self::tuple_from)
    }

    pub(super) fn tuple_from(&mut self, start: usize) -> Result<(), TraceError> {
        for n in start..self.stack.len() {
            self.stack[n] = self.objects.settle(self.stack[n], &mut self.fold, self.at)?;
        }
        let tuple = self.objects.tuple(&self.stack[start..], &mut self.fold);
        self.stack.truncate(start);
        self.stack.push(tuple);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn recall(&mut self, index: u64) -> Result<(), TraceError> {
        let objects = &self.objects;
        match self.memo.get(index, |value| objects.settled(value)) {
            Some(value) => {
                self.stack.push(value);
                Ok(())
            }
            None => Err(self.no_memo(index)),
        }
    }

    #[cold]
    fn no_memo(&self, index: u64) -> TraceError {
        self.malformed(&format!("memo entry {index} is used before it is made"))
    }

    pub(super) fn memoise(&mut self, index: u64) -> Result<(), TraceError> {
        let top = self.top()?;
        self.memo.put(index, top);
        Ok(())
    }

    /// Pushes the next `len` bytes as a string. Halves of surrogate pairs, which Python can pickle but
    /// UTF-8 cannot hold, become replacement characters.
    pub(super) fn text(&mut self, len: u64) -> Result<(), TraceError> {
        self.check_length("string", len)?;
        let bytes = self.source.bytes(len as usize)?;
        let id = match std::str::from_utf8(bytes) {
            Ok(text) => self.objects.texts.intern(text),
            Err(_) => self.objects.texts.intern(&String::from_utf8_lossy(bytes)),
        };
        self.stack.push(Value::Text(id));
        Ok(())
    }

    pub(super) fn check_length(&self, what: &str, len: u64) -> Result<(), TraceError> {
        if len <= MAX_TEXT {
            return Ok(());
        }
        Err(self.refused(format!(
            "a {what} claims {len} bytes; nothing in a snapshot is longer than {MAX_TEXT}, so the \
             file is damaged or not a snapshot"
        )))
    }

    /// Frames only tell a reader how much to fetch at once; a wrong length does no harm, an absurd one
    /// shows a damaged file.
    fn frame(&mut self) -> Result<(), TraceError> {
        let len = u64::from_le_bytes(self.source.array()?);
        if len > 1 << 48 {
            return Err(self.malformed(&format!("a frame claims {len} bytes: the file is damaged")));
        }
        Ok(())
    }

    fn check_weight(&self) -> Result<(), TraceError> {
        let weight = (self.stack.len() + self.memo.len() + self.objects.weight()) as u64;
        let allowed = FREE_OBJECTS + self.source.offset() / 2;
        if weight <= allowed && weight < u64::from(u32::MAX / 2) {
            return Ok(());
        }
        Err(self.refused(format!(
            "the pickle makes {weight} objects of the {} bytes read so far; no snapshot is that \
             dense, so it is refused before it takes all memory",
            self.source.offset()
        )))
    }

    pub(super) fn malformed(&self, what: &str) -> TraceError {
        TraceError::new(
            TraceErrorKind::Malformed,
            Place::Byte(self.at),
            format!("{what}; the pickle is damaged"),
        )
    }

    pub(super) fn refused(&self, what: impl Into<String>) -> TraceError {
        TraceError::new(TraceErrorKind::Refused, Place::Byte(self.at), what)
    }
}
