//! One fingerprint for the same events in any container.

use poolsim_core::{Batch, Event, EventSource, TraceError};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// SHA-256 over the canonical bytes of a trace's events. Stacks, names and settings are not part of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Computes a [`Digest`] event by event.
#[derive(Clone, Default)]
pub struct Digester {
    hash: Sha256,
    bytes: Vec<u8>,
}

impl Digester {
    /// Takes the next events. Each counts as 25 bytes: kind (1), time (8), size (8), slot (4), stream (2)
    /// and pool (2), little-endian.
    pub fn update(&mut self, events: &[Event]) {
        for chunk in events.chunks(512) {
            self.bytes.clear();
            for event in chunk {
                self.bytes.push(event.kind() as u8);
                self.bytes.extend_from_slice(&event.at.to_le_bytes());
                self.bytes.extend_from_slice(&event.size.to_le_bytes());
                self.bytes.extend_from_slice(&event.slot.0.to_le_bytes());
                self.bytes.extend_from_slice(&event.stream.0.to_le_bytes());
                self.bytes.extend_from_slice(&event.pool().0.to_le_bytes());
            }
            self.hash.update(&self.bytes);
        }
    }

    /// The digest of all events taken.
    pub fn finish(self) -> Digest {
        Digest(self.hash.finalize().into())
    }
}

/// The digest of the events that `source` still has to give.
///
/// # Errors
/// Those of the source.
pub fn digest(source: &mut dyn EventSource) -> Result<Digest, TraceError> {
    let mut digester = Digester::default();
    let mut batch = Batch::default();
    while source.fill(&mut batch)? {
        digester.update(&batch.events);
    }
    Ok(digester.finish())
}
