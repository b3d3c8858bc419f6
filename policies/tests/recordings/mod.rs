//! Opening recordings with what their sidecars say, and replaying what was inferred of them.

use poolsim_core::recording::Recording;
use poolsim_policies::pytorch::infer::Inferred;
use poolsim_policies::pytorch::{Config, Pytorch};
use poolsim_policies::{PolicySpec, Registry};
use poolsim_sim::device::{DeviceProfile, SimConfig};
use poolsim_sim::parity::{self, Parity};
use poolsim_traces::{OpenOptions, Source, open};
use std::path::{Path, PathBuf};

/// The settings in force in a recording.
pub fn config_of(rec: &Recording) -> Config {
    let spec: PolicySpec = rec
        .header
        .settings
        .as_deref()
        .filter(|s| !s.is_empty())
        .unwrap_or("pytorch")
        .parse()
        .expect("recorded settings parse");
    let resolved = Registry::builtin().resolve(&spec).expect("recorded settings are known");
    Config::from_params(&resolved.params).expect("recorded settings fit together")
}

/// Reads a recording, with the limit and device memory from the sidecar beside it.
pub fn read(path: &Path) -> Option<Recording> {
    let opened = open(path, &OpenOptions::default()).ok()?;
    let Source::Recording(mut rec) = opened.source else { return None };
    let name = path.file_name()?.to_str()?;
    let sidecar = path.with_file_name(format!("{}.json", name.split(".pickle").next()?));
    if let Ok(text) = std::fs::read_to_string(sidecar) {
        let side: serde_json::Value = serde_json::from_str(&text).expect("the sidecar is JSON");
        let total = side["total_memory"].as_u64().expect("a sidecar says the device's memory");
        rec.header.device_memory = Some(total);
        rec.header.memory_fraction =
            side["limit_gib"].as_f64().map(|gib| gib * (1u64 << 30) as f64 / total as f64);
    }
    Some(*rec)
}

/// Replays inferred requests blind and compares.
pub fn verify(rec: &Recording, config: &Config, inferred: &Inferred) -> Parity {
    let profile = DeviceProfile::h200();
    let mut sim = SimConfig::new(profile);
    sim.caps.total = inferred.trace.header.device_memory.unwrap_or(sim.caps.total);
    let mut policy = Pytorch::new(config, &sim.caps, inferred.trace.header.memory_fraction);
    let replayed =
        parity::replay_recorded(&inferred.trace, inferred.answers.clone(), &mut policy, sim, None)
            .unwrap_or_else(|e| {
                panic!("an inferred trace is legal: {e}; {:?}", inferred.unexplained)
            });
    parity::compare(rec, &replayed)
}

/// Snapshots below a folder, in order.
pub fn snapshots(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().contains(".pickle") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
