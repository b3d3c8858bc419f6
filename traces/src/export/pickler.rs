//! Writes pickles of protocol 4, as Python's pickler does: framed, with a memo that counts.
//!
//! Only opcodes that PyTorch's viewer (MemoryViz.js) reads too.

use hashbrown::HashMap;
use std::io::{self, Write};

/// Items that one `APPENDS` or `SETITEMS` adds; Python's pickler uses the same number.
const BATCH: usize = 1000;
/// A frame is written once it is as long as this.
const FRAME: usize = 64 << 10;

/// The number of a memoised object.
#[derive(Clone, Copy, Debug)]
pub struct MemoId(u32);

/// A pickle that is being written.
pub struct Pickler<'a> {
    out: &'a mut dyn Write,
    frame: Vec<u8>,
    memo: u32,
    words: HashMap<String, MemoId>,
}

impl<'a> Pickler<'a> {
    /// Starts a pickle.
    pub fn new(out: &'a mut dyn Write) -> io::Result<Self> {
        out.write_all(&[0x80, 4])?;
        let frame = Vec::with_capacity(FRAME + 1024);
        Ok(Pickler { out, frame, memo: 0, words: HashMap::new() })
    }

    /// Ends it.
    pub fn finish(mut self) -> io::Result<()> {
        self.frame.push(b'.');
        self.flush_frame()?;
        self.out.flush()
    }

    /// An integer.
    pub fn int(&mut self, n: i64) {
        let out = &mut self.frame;
        if let Ok(n) = u8::try_from(n) {
            out.extend([b'K', n]);
        } else if let Ok(n) = u16::try_from(n) {
            out.push(b'M');
            out.extend(n.to_le_bytes());
        } else if let Ok(n) = i32::try_from(n) {
            out.push(b'J');
            out.extend(n.to_le_bytes());
        } else {
            let sign_bits = if n < 0 { (!n).leading_zeros() } else { n.leading_zeros() };
            let len = (64 - sign_bits) as usize / 8 + 1;
            out.extend([0x8a, len as u8]);
            out.extend(&n.to_le_bytes()[..len]);
        }
    }

    /// An integer from 0 up.
    pub fn uint(&mut self, n: u64) {
        match i64::try_from(n) {
            Ok(n) => self.int(n),
            Err(_) => {
                self.frame.extend([0x8a, 9]);
                self.frame.extend(n.to_le_bytes());
                self.frame.push(0);
            }
        }
    }

    /// A float.
    pub fn float(&mut self, f: f64) {
        self.frame.push(b'G');
        self.frame.extend(f.to_be_bytes());
    }

    /// A truth value.
    pub fn bool(&mut self, b: bool) {
        self.frame.push(if b { 0x88 } else { 0x89 });
    }

    /// A string; equal strings are written once.
    pub fn text(&mut self, text: &str) {
        if let Some(&id) = self.words.get(text) {
            return self.get(id);
        }
        match u8::try_from(text.len()) {
            Ok(len) => self.frame.extend([0x8c, len]),
            Err(_) => {
                let len = u32::try_from(text.len()).expect("names are shorter than 4 GiB");
                self.frame.push(b'X');
                self.frame.extend(len.to_le_bytes());
            }
        }
        self.frame.extend(text.as_bytes());
        let id = self.memoise();
        self.words.insert(text.to_owned(), id);
    }

    /// A pair of integers.
    pub fn pair(&mut self, (first, second): (u64, u64)) {
        self.uint(first);
        self.uint(second);
        self.frame.push(0x86);
    }

    /// An object that was written before.
    pub fn get(&mut self, MemoId(id): MemoId) {
        match u8::try_from(id) {
            Ok(id) => self.frame.extend([b'h', id]),
            Err(_) => {
                self.frame.push(b'j');
                self.frame.extend(id.to_le_bytes());
            }
        }
    }

    /// A list of what `write` writes for each item.
    pub fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<MemoId> {
        self.frame.push(b']');
        let id = self.memoise();
        let mut open = 0;
        for item in items {
            if open == 0 {
                self.frame.push(b'(');
            }
            write(self, item)?;
            open += 1;
            if open == BATCH {
                self.frame.push(b'e');
                open = 0;
            }
            if self.frame.len() >= FRAME {
                self.flush_frame()?;
            }
        }
        if open > 0 {
            self.frame.push(b'e');
        }
        Ok(id)
    }

    /// A dict; `write` writes keys and values in turn, at least one pair and at most 1000.
    pub fn dict(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<MemoId> {
        self.frame.push(b'}');
        let id = self.memoise();
        self.frame.push(b'(');
        write(self)?;
        self.frame.push(b'u');
        Ok(id)
    }

    fn memoise(&mut self) -> MemoId {
        self.frame.push(0x94);
        self.memo += 1;
        MemoId(self.memo - 1)
    }

    fn flush_frame(&mut self) -> io::Result<()> {
        self.out.write_all(&[0x95])?;
        self.out.write_all(&(self.frame.len() as u64).to_le_bytes())?;
        self.out.write_all(&self.frame)?;
        self.frame.clear();
        Ok(())
    }
}
