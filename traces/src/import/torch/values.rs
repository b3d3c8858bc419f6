//! Reading the values of a snapshot's dicts.

use super::rows::NO_TIME;
use super::words as w;
use crate::pickle::{TextId, Texts, Value};
use poolsim_core::TraceError;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::heap::BlockState;

/// PyTorch refuses requests from here on (`kMaxAllocSize`), and no device has as much memory.
const SIZE_LIMIT: u64 = 1 << 60;

/// Reads values, with errors at the end of the dict at hand.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    pub texts: &'a Texts,
    /// Where the dict ends.
    pub at: u64,
}

impl Reader<'_> {
    #[cold]
    pub fn wrong(self, what: String) -> TraceError {
        TraceError::new(TraceErrorKind::Malformed, Place::Byte(self.at), what)
    }

    pub fn row(self, rows: usize) -> Result<u32, TraceError> {
        u32::try_from(rows)
            .ok()
            .filter(|&n| n < u32::MAX)
            .ok_or_else(|| self.wrong("the snapshot holds more than 2^32 of one kind".into()))
    }

    /// Addresses and stream handles: 64 bits, whichever sign the recorder gave them.
    #[inline]
    pub fn address(self, key: TextId, value: Value) -> Result<u64, TraceError> {
        match value {
            Value::Int(n) => Ok(n as u64),
            _ => integer(value).ok_or_else(|| self.no_number(key)),
        }
    }

    #[inline]
    pub fn size(self, key: TextId, value: Value) -> Result<u64, TraceError> {
        let size = integer(value).ok_or_else(|| self.no_number(key))?;
        if size < SIZE_LIMIT {
            return Ok(size);
        }
        Err(self.wrong(format!(
            "`{}` is {size} bytes; PyTorch refuses requests of 2^60 bytes and more, so the file is \
             damaged",
            self.texts.get(key)
        )))
    }

    #[cold]
    fn no_number(self, key: TextId) -> TraceError {
        self.wrong(format!(
            "`{}` is no integer between 0 and 2^64",
            self.texts.get(key).escape_debug()
        ))
    }

    pub fn device(self, value: Value) -> Result<u32, TraceError> {
        integer(value)
            .and_then(|n| u32::try_from(n).ok())
            .ok_or_else(|| self.wrong("a `device` is no device index".into()))
    }

    /// Microseconds since 1970, whole or with a fraction, in nanoseconds.
    #[inline]
    pub fn time(self, value: Value) -> Result<u64, TraceError> {
        let nanos = match value {
            Value::None => return Ok(NO_TIME),
            Value::Int(us) => u64::try_from(us).ok().and_then(|us| us.checked_mul(1000)),
            // The whole part first: a product with 1000 has no bits left for the fraction.
            Value::Float(us) if (0.0..1.8e16).contains(&us) => {
                Some(us.trunc() as u64 * 1000 + (us.fract() * 1e3).round() as u64)
            }
            _ => None,
        };
        nanos
            .filter(|&n| n < NO_TIME)
            .ok_or_else(|| self.wrong("a `time_us` is no time in microseconds since 1970".into()))
    }

    pub fn state(self, value: Value) -> Result<BlockState, TraceError> {
        match value {
            Value::Text(w::ACTIVE_ALLOCATED) => Ok(BlockState::Allocated),
            Value::Text(w::ACTIVE_PENDING_FREE | w::ACTIVE_AWAITING_FREE) => {
                Ok(BlockState::Pending)
            }
            Value::Text(w::INACTIVE) => Ok(BlockState::Free),
            Value::Text(other) => Err(self.wrong(format!(
                "a block has the unknown state `{}`; known are active_allocated, \
                 active_pending_free, active_awaiting_free and inactive",
                self.texts.get(other).escape_debug()
            ))),
            _ => Err(self.wrong("a block's `state` is no string".into())),
        }
    }
}

/// A whole number from 0 up; floats that are whole count, since some tools write all numbers so.
#[inline]
pub fn integer(value: Value) -> Option<u64> {
    match value {
        Value::Int(n) => u64::try_from(n).ok(),
        Value::Big(n) => Some(n),
        Value::Bool(b) => Some(u64::from(b)),
        Value::Float(f) if f.fract() == 0.0 && (0.0..9e15).contains(&f) => Some(f as u64),
        _ => None,
    }
}

/// A truth value; 0 and 1 count too.
pub fn truth(value: Value) -> bool {
    matches!(value, Value::Bool(true)) || integer(value).is_some_and(|n| n != 0)
}
