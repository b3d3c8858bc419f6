//! Whose memory it is: bytes by the library that asked the driver for them.

use poolsim_core::stack::StackTable;
use poolsim_core::{Batch, Bytes, EventKind, EventSource, TraceError, TraceHeader};
use poolsim_traces::calls::CALLS;
use std::collections::{BTreeMap, HashMap};

/// The memory of one library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// Its file name.
    pub library: String,
    /// Its requests that were granted.
    pub requests: u64,
    /// The bytes of these requests together.
    pub requested: Bytes,
    /// Frees of its memory.
    pub frees: u64,
    /// Most bytes that it held.
    pub peak: Bytes,
    /// What it held when all together held most.
    pub at_peak: Bytes,
    /// What it held at the end.
    pub last: Bytes,
    now: Bytes,
}

/// What the device's management library said meanwhile, of all processes.
pub struct Used {
    /// At its first answer.
    pub first: Bytes,
    /// At most.
    pub peak: Bytes,
    /// At its last answer.
    pub last: Bytes,
}

impl Used {
    /// As the capture put it into the header.
    pub fn of(header: &TraceHeader) -> Option<Used> {
        let number = |key: &str| header.attributes.get(key).and_then(|text| text.parse().ok());
        Some(Used {
            first: number("device used first")?,
            peak: number("device used peak")?,
            last: number("device used last")?,
        })
    }
}

/// The libraries, the one with the highest peak first; none if the stacks are not those of driver calls.
///
/// # Errors
/// Those of the source.
pub fn layers(source: &mut dyn EventSource, stacks: &StackTable) -> Result<Vec<Layer>, TraceError> {
    let is_call = |name: &str| CALLS.iter().any(|(_, call)| *call == name);
    if !stacks.frames().iter().any(|frame| is_call(&frame.name)) {
        return Ok(Vec::new());
    }
    let mut layers: BTreeMap<String, Layer> = BTreeMap::new();
    let mut owners: HashMap<u32, String> = HashMap::new();
    let (mut now, mut peak) = (0, 0);
    let mut batch = Batch::default();
    while source.fill(&mut batch)? {
        for (n, event) in batch.events.iter().enumerate() {
            match event.kind() {
                EventKind::Alloc | EventKind::Preexisting => {
                    let stack = batch.stacks.get(n).copied().unwrap_or_default();
                    let frame = stacks.stack(stack).next().filter(|frame| is_call(&frame.name));
                    let library = frame.map_or("other sources", |frame| &frame.file).to_string();
                    let layer = layers.entry(library.clone()).or_default();
                    layer.requests += 1;
                    layer.requested = layer.requested.saturating_add(event.size);
                    layer.now += event.size;
                    layer.peak = layer.peak.max(layer.now);
                    owners.insert(event.slot.0, library);
                    now += event.size;
                    if now > peak {
                        peak = now;
                        layers.values_mut().for_each(|layer| layer.at_peak = layer.now);
                    }
                }
                EventKind::Free | EventKind::FreeLater => {
                    if let Some(layer) =
                        owners.remove(&event.slot.0).and_then(|l| layers.get_mut(&l))
                    {
                        layer.frees += 1;
                        layer.now -= event.size;
                        now -= event.size;
                    }
                }
                _ => {}
            }
        }
    }
    let named = |(library, layer): (String, Layer)| Layer { library, last: layer.now, ..layer };
    let mut layers: Vec<Layer> = layers.into_iter().map(named).collect();
    layers.sort_by_key(|layer| std::cmp::Reverse(layer.peak));
    Ok(layers)
}
