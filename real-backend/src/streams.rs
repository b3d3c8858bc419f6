//! Real streams for the streams of a trace.

use crate::call::{Context, Result};
use cudarc::driver::sys::CUstream;
use poolsim_core::StreamId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The streams of a device, made when they are first asked for and destroyed with the table.
#[derive(Debug)]
pub struct StreamTable {
    context: Arc<Context>,
    streams: Mutex<BTreeMap<StreamId, Raw>>,
}

#[derive(Clone, Copy, Debug)]
struct Raw {
    stream: CUstream,
    /// Made here, and to be destroyed here.
    own: bool,
}
// SAFETY: a stream handle may be used from any thread; the table that owns it locks.
unsafe impl Send for Raw {}

impl StreamTable {
    /// An empty table.
    pub fn new(context: Arc<Context>) -> Self {
        StreamTable { context, streams: Mutex::default() }
    }

    /// The real stream of a trace's stream.
    pub fn get(&self, id: StreamId) -> Result<CUstream> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(raw) = streams.get(&id) {
            return Ok(raw.stream);
        }
        let stream = self.context.stream()?;
        streams.insert(id, Raw { stream, own: true });
        Ok(stream)
    }

    /// The real stream of `id` is the one with this handle, which belongs to somebody else; 0 is the default stream.
    pub fn adopt(&self, id: StreamId, handle: u64) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.insert(id, Raw { stream: handle as CUstream, own: false });
    }

    /// The streams that exist.
    pub fn ids(&self) -> Vec<StreamId> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.keys().copied().collect()
    }
}

impl Drop for StreamTable {
    fn drop(&mut self) {
        let _ = self.context.enter();
        let streams = self.streams.get_mut().unwrap_or_else(PoisonError::into_inner);
        for raw in std::mem::take(streams).into_values().filter(|raw| raw.own) {
            let _ = self.context.destroy_stream(raw.stream);
        }
    }
}
