//! The opcodes that today's snapshots do not use: old protocols, other picklers, and all that is refused.

use super::machine::Machine;
use super::opcode as op;
use super::text;
use super::value::{Fold, Value};
use poolsim_core::TraceError;
use std::io::Read;

impl<R: Read, F: Fold> Machine<R, F> {
    #[cold]
    pub(super) fn rare(&mut self, code: u8) -> Result<(), TraceError> {
        match code {
            op::PROTO => self.protocol(),
            op::APPEND => self.add_top(1, Self::append_items),
            op::SETITEM => self.add_top(2, Self::set_items),
            op::EMPTY_TUPLE => self.tuple_of(0),
            op::TUPLE1 => self.tuple_of(1),
            op::TUPLE3 => self.tuple_of(3),
            op::TUPLE => {
                let start = self.pop_mark()?;
                self.tuple_from(start)
            }
            op::LIST => self.close_mark(false),
            op::DICT => self.close_mark(true),
            op::POP if self.at_mark() => self.pop_mark().map(drop),
            op::POP => self.pop().map(drop),
            op::POP_MARK => {
                let start = self.pop_mark()?;
                self.stack.truncate(start);
                Ok(())
            }
            op::DUP => {
                let top = self.top()?;
                self.stack.push(top);
                Ok(())
            }
            op::GET | op::PUT => self.numbered(code),
            op::INT | op::LONG | op::FLOAT => self.decimal(code),
            op::STRING | op::UNICODE => self.text_line(code),
            _ => self.sized(code),
        }
    }

    /// Opcodes with a binary argument.
    fn sized(&mut self, code: u8) -> Result<(), TraceError> {
        match code {
            op::BINFLOAT => {
                let value = f64::from_be_bytes(self.source.array()?);
                self.stack.push(Value::Float(value));
            }
            op::LONG4 => self.long4()?,
            op::BINSTRING => {
                let len = self.length4("string")?;
                self.text(len)?;
            }
            op::SHORT_BINSTRING => {
                let len = self.source.byte()?;
                self.text(u64::from(len))?;
            }
            op::BINUNICODE8 => {
                let len = u64::from_le_bytes(self.source.array()?);
                self.text(len)?;
            }
            op::SHORT_BINBYTES => {
                let len = self.source.byte()?;
                self.opaque(u64::from(len))?;
            }
            op::BINBYTES => {
                let len = u32::from_le_bytes(self.source.array()?);
                self.opaque(u64::from(len))?;
            }
            op::BINBYTES8 | op::BYTEARRAY8 => {
                let len = u64::from_le_bytes(self.source.array()?);
                self.opaque(len)?;
            }
            op::EMPTY_SET => self.stack.push(Value::Opaque),
            op::ADDITEMS | op::FROZENSET => {
                let start = self.pop_mark()?;
                self.stack.truncate(start);
                if code == op::FROZENSET {
                    self.stack.push(Value::Opaque);
                }
            }
            _ => return Err(self.no_data(code)),
        }
        Ok(())
    }

    fn protocol(&mut self) -> Result<(), TraceError> {
        match self.source.byte()? {
            0..=5 => Ok(()),
            n => Err(self.refused(format!(
                "the pickle is of protocol {n}; 0 to 5 are read. Write it again with \
                 pickle.dump(..., protocol=5)"
            ))),
        }
    }

    /// `LIST` and `DICT`: a container of what lies above the mark.
    fn close_mark(&mut self, dict: bool) -> Result<(), TraceError> {
        let start = self.pop_mark()?;
        let container = if dict { self.objects.dict() } else { self.objects.list() };
        self.stack.insert(start, container);
        if dict { self.set_items(start + 1) } else { self.append_items(start + 1) }
    }

    fn numbered(&mut self, code: u8) -> Result<(), TraceError> {
        let line = self.line()?;
        let index = match text::decimal(&line) {
            Some(Value::Int(n)) if n >= 0 => n as u64,
            _ => return Err(self.malformed("a memo index is no number")),
        };
        if code == op::GET { self.recall(index) } else { self.memoise(index) }
    }

    fn decimal(&mut self, code: u8) -> Result<(), TraceError> {
        let line = self.line()?;
        let value = match (code, line.as_slice()) {
            (op::INT, b"00") => Some(Value::Bool(false)),
            (op::INT, b"01") => Some(Value::Bool(true)),
            (op::FLOAT, text) => {
                std::str::from_utf8(text).ok().and_then(|t| t.trim().parse().ok()).map(Value::Float)
            }
            (_, text) => text::decimal(text.strip_suffix(b"L").unwrap_or(text)),
        };
        let value = value.ok_or_else(|| self.malformed("a number is written in no known way"))?;
        self.stack.push(value);
        Ok(())
    }

    fn text_line(&mut self, code: u8) -> Result<(), TraceError> {
        let line = self.line()?;
        let text =
            if code == op::UNICODE { Some(text::raw_unicode(&line)) } else { text::quoted(&line) };
        let text = text.ok_or_else(|| self.malformed("a string is quoted in no known way"))?;
        let id = self.objects.texts.intern(&text);
        self.stack.push(Value::Text(id));
        Ok(())
    }

    fn line(&mut self) -> Result<Vec<u8>, TraceError> {
        match self.source.line()? {
            Some(line) => Ok(line.to_vec()),
            None => Err(self.refused(
                "a line of text is longer than 512 KiB; nothing in a snapshot is, so the file is \
                 damaged or not a snapshot",
            )),
        }
    }

    /// A signed 4-byte length.
    fn length4(&mut self, what: &str) -> Result<u64, TraceError> {
        let len = i32::from_le_bytes(self.source.array()?);
        u64::try_from(len).map_err(|_| self.malformed(&format!("a {what} has a negative length")))
    }

    fn long4(&mut self) -> Result<(), TraceError> {
        let len = self.length4("number")?;
        self.check_length("number", len)?;
        let value = text::long(self.source.bytes(len as usize)?);
        self.stack.push(value);
        Ok(())
    }

    fn opaque(&mut self, len: u64) -> Result<(), TraceError> {
        self.source.skip(len)?;
        self.stack.push(Value::Opaque);
        Ok(())
    }

    /// The error for an opcode that does more than build plain data.
    fn no_data(&mut self, code: u8) -> TraceError {
        let Some(name) = op::name(code) else {
            return self.malformed(&format!("{code:#04x} is no pickle opcode"));
        };
        let what = match code {
            op::GLOBAL | op::INST => match (self.line(), self.line()) {
                (Ok(module), Ok(attribute)) => {
                    format!("names the global {}", dotted(&module, &attribute))
                }
                (Err(e), _) | (_, Err(e)) => return e,
            },
            op::STACK_GLOBAL => match self.stack.as_slice() {
                [.., Value::Text(module), Value::Text(attribute)] => {
                    let texts = &self.objects.texts;
                    let (module, attribute) = (texts.get(*module), texts.get(*attribute));
                    format!("names the global {}", dotted(module.as_bytes(), attribute.as_bytes()))
                }
                _ => "names a global".into(),
            },
            op::EXT1 | op::EXT2 | op::EXT4 => "names a global of the extension registry".into(),
            op::PERSID | op::BINPERSID => "refers to an object outside the pickle".into(),
            op::NEXT_BUFFER | op::READONLY_BUFFER => "needs an out-of-band buffer".into(),
            _ => "builds a Python object".into(),
        };
        self.refused(format!(
            "the pickle {what} ({name}); snapshots are plain data, and pickles that hold more are \
             refused, never executed. If you trust the file, load it in Python, turn every object \
             into dicts, lists, tuples, strings and numbers, and dump it again"
        ))
    }
}

/// `module.attribute`, safe to print.
fn dotted(module: &[u8], attribute: &[u8]) -> String {
    let show = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let short: String = text.chars().take(100).collect();
        short.escape_debug().to_string()
    };
    format!("`{}.{}`", show(module), show(attribute))
}
