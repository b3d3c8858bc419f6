//! What can go wrong, sorted by who has to act.
//!
//! Running out of memory is a value ([`AllocError`]), bad input an error with a place in it
//! ([`TraceError`]), a wrong setting a [`ConfigError`]. A broken invariant is a panic, never one of these.

use crate::units::{Bytes, ShowBytes};
use std::path::PathBuf;
use thiserror::Error;

/// Why a device refused a call.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No physical memory is left, or an adaptor's cap was reached.
    #[error("the device is out of memory: {} asked, {} free", ShowBytes(*.asked), ShowBytes(*.free))]
    OutOfMemory {
        /// Bytes that the call asked for.
        asked: Bytes,
        /// Bytes that were free.
        free: Bytes,
    },
    /// No address range of this length is left.
    #[error("no address range of {} is left", ShowBytes(*.asked))]
    OutOfAddresses {
        /// Bytes of address space asked for.
        asked: Bytes,
    },
    /// The caller broke the device's rules (misaligned, unmapped, unknown handle). A bug in a policy.
    #[error("illegal device call: {0}")]
    Illegal(String),
    /// This device cannot do that.
    #[error("not supported by this device: {0}")]
    Unsupported(String),
    /// The driver failed.
    #[error("{call} failed: {message}")]
    Driver {
        /// The driver call.
        call: &'static str,
        /// The driver's own words.
        message: String,
    },
}

/// Which bound made a request fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OomCause {
    /// The device had no memory (or no addresses) left.
    DeviceFull,
    /// The allocator's own limit (PyTorch's memory fraction, a pool's maximum size).
    Limit,
    /// The request is larger than the policy can ever serve.
    TooLarge,
}

/// Why a policy did not grant a request.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum AllocError {
    /// Out of memory, in the state that the policy was left in.
    #[error(
        "out of memory: {} asked ({} after rounding), {} reserved, largest free block {}",
        ShowBytes(*.requested), ShowBytes(*.rounded), ShowBytes(*.reserved), ShowBytes(*.largest_free)
    )]
    OutOfMemory {
        /// Bytes asked for.
        requested: Bytes,
        /// Bytes after the policy's rounding.
        rounded: Bytes,
        /// Bytes held from the device after every attempt.
        reserved: Bytes,
        /// Largest free block on any stream of the same pool, 0 if none.
        largest_free: Bytes,
        /// Which bound failed.
        cause: OomCause,
    },
    /// The device failed in another way than by being full.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// A setting that cannot be used. The text names the key, the value, what is allowed and the nearest names.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// A trace that cannot be read or is not legal. The text says what to do next.
#[derive(Debug, Error)]
#[error("{}{}: {what}", .path.as_deref().map_or("trace".into(), |p| p.display().to_string()), .place)]
pub struct TraceError {
    /// The file, where there is one.
    pub path: Option<PathBuf>,
    /// Where in it.
    pub place: Place,
    /// What was wrong, and what to do next.
    pub what: String,
    /// What the trace lacks makes it useless here though it is well formed (state only, wrong kind).
    pub kind: TraceErrorKind,
}

/// The classes of trace errors that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceErrorKind {
    /// The operating system refused to read or write.
    Io,
    /// The bytes do not follow the format.
    Malformed,
    /// The content is well formed but asks for something that is refused (code in a pickle, a limit).
    Refused,
    /// The events contradict each other (a free of nothing, time running backwards).
    Illegal,
    /// A well-formed file that holds nothing to replay.
    NoEvents,
}

/// A place in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Place {
    /// Not known, or the whole file.
    #[default]
    Whole,
    /// A byte offset in the (decompressed) content.
    Byte(u64),
    /// A line, counted from 1.
    Line(u64),
    /// An event or entry, counted from 0.
    Event(u64),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Whole => Ok(()),
            Place::Byte(n) => write!(f, ", byte {n}"),
            Place::Line(n) => write!(f, ", line {n}"),
            Place::Event(n) => write!(f, ", event {n}"),
        }
    }
}

impl TraceError {
    /// An error of `kind` at `place`, in a file that the caller adds with [`TraceError::in_file`].
    pub fn new(kind: TraceErrorKind, place: Place, what: impl Into<String>) -> Self {
        TraceError { path: None, place, what: what.into(), kind }
    }

    /// The same error, naming the file unless it already names one.
    #[must_use]
    pub fn in_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.path.get_or_insert_with(|| path.into());
        self
    }
}
