//! minimalloc's CSV of buffer lifetimes, in event indices.

use poolsim_core::{Batch, Bytes, EventKind, EventSource, Slot, TraceError};
use rustc_hash::FxHashMap;
use std::io::{self, Write};

struct Buffer {
    lower: u64,
    /// `None` while it is live.
    upper: Option<u64>,
    size: Bytes,
}

/// Writes every allocation that was granted as a buffer; ids count them in the order in which they were asked for. A
/// buffer lives until its free is complete, or to the end.
pub(super) fn write(source: &mut dyn EventSource, out: &mut dyn Write) -> Result<(), TraceError> {
    let mut buffers: Vec<Buffer> = Vec::new();
    let mut held: FxHashMap<Slot, usize> = FxHashMap::default();
    let (mut batch, mut index) = (Batch::default(), 0);
    while source.fill(&mut batch)? {
        for event in &batch.events {
            match event.kind() {
                kind if kind.makes_live() && event.size > 0 => {
                    held.insert(event.slot, buffers.len());
                    buffers.push(Buffer { lower: index, upper: None, size: event.size });
                }
                EventKind::Free | EventKind::FreeDone => {
                    if let Some(i) = held.remove(&event.slot) {
                        buffers[i].upper = Some(index);
                    }
                }
                _ => {}
            }
            index += 1;
        }
    }
    lines(&buffers, index, out).map_err(|e| {
        use poolsim_core::error::{Place, TraceErrorKind};
        TraceError::new(TraceErrorKind::Io, Place::Whole, e.to_string())
    })
}

fn lines(buffers: &[Buffer], end: u64, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "id,lower,upper,size")?;
    for (id, buffer) in buffers.iter().enumerate() {
        let Buffer { lower, upper, size } = buffer;
        writeln!(out, "{id},{lower},{},{size}", upper.unwrap_or(end))?;
    }
    Ok(())
}
