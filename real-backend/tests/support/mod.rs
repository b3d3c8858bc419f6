//! What the GPU tests share: a GPU or a loud word, and recordings from the repository's corpus.
#![allow(dead_code, missing_docs)]

use poolsim_core::{
    Batch, DeviceError, EventSource, Nanos, Trace, TraceError, TraceHeader, TraceReader,
};
use poolsim_policies::pytorch::{Config, infer::infer};
use poolsim_policies::{PolicySpec, Registry};
use poolsim_real_backend::{CudaDevice, Mode};
use poolsim_sim::engine::{Observer, Step};
use poolsim_traces::{OpenOptions, Source, open};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A GPU, or `None` after saying loudly that there is none.
pub fn gpu(mode: Mode) -> Option<CudaDevice> {
    match CudaDevice::new(0, mode) {
        Ok(device) => Some(device),
        Err(DeviceError::Unsupported(why)) => {
            println!("SKIPPED: nothing was checked on a GPU: {why}");
            None
        }
        Err(e) => panic!("there is a GPU, and it cannot be used: {e}"),
    }
}

fn root() -> PathBuf {
    std::env::var_os("POOLSIM_ROOT")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), PathBuf::from)
}

/// Snapshots of the corpus, by path.
pub fn corpus() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("traces/corpus")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the corpus can be listed") {
            let path = entry.expect("the corpus can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(".pickle.zst") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "the corpus holds snapshots");
    found
}

/// The requests of a snapshot.
pub fn requests(path: &Path) -> Arc<Trace> {
    let opened = open(path, &OpenOptions::default()).expect("a corpus file can be read");
    let Source::Recording(mut recording) = opened.source else { panic!("a snapshot") };
    recording.header.device_memory.get_or_insert(150_109_880_320);
    let settings = recording.header.settings.clone().unwrap_or_default();
    let spec: PolicySpec = if settings.is_empty() { "pytorch".into() } else { settings }
        .parse()
        .expect("recorded settings are legal");
    let resolved = Registry::builtin().resolve(&spec).expect("recorded settings are known");
    let config = Config::from_params(&resolved.params).expect("recorded settings are consistent");
    Arc::new(infer(&recording, &config).trace)
}

pub fn reader(trace: &Arc<Trace>) -> TraceReader {
    TraceReader::new(trace.clone())
}

/// The first events of a trace.
pub struct Prefix {
    inner: TraceReader,
    left: usize,
}

impl Prefix {
    pub fn new(trace: &Arc<Trace>, events: u64) -> Self {
        Prefix { inner: reader(trace), left: usize::try_from(events).unwrap_or(usize::MAX) }
    }
}

impl EventSource for Prefix {
    fn header(&self) -> &TraceHeader {
        self.inner.header()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        if self.left == 0 || !self.inner.fill(batch)? {
            batch.clear();
            return Ok(false);
        }
        batch.events.truncate(self.left);
        batch.stacks.truncate(self.left);
        self.left -= batch.events.len();
        Ok(true)
    }
}

/// Counts the events before those whose driver calls are modelled to take longer, together, than a test may.
pub struct Affordable {
    pub most: Nanos,
    pub events: u64,
}

impl Observer for Affordable {
    fn on_step(&mut self, step: &Step<'_>) {
        if step.ledger.total_time() <= self.most {
            self.events = step.index + 1;
        }
    }
}
