//! What a process leaves behind.

use crate::config::Config;
use crate::state::DeviceState;
use poolsim_core::metric::name;
use poolsim_core::record::{Measured, Provenance, RECORD_VERSION, Value};
use poolsim_core::{Device, DeviceOp, ReplayTarget, RunRecord, TraceHeader};
use poolsim_real_backend::{CudaDevice, Metered};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The file of a device: the path as it is for device 0, with `.N` before the ending for the others.
pub(crate) fn path_of_device(path: &Path, index: usize) -> PathBuf {
    if index == 0 {
        return path.into();
    }
    let mut name = OsString::from(path.file_stem().unwrap_or_default());
    name.push(format!(".{index}"));
    if let Some(ending) = path.extension() {
        name.push(".");
        name.push(ending);
    }
    path.with_file_name(name)
}

/// What the trace says of itself.
pub(crate) fn header(
    state: &DeviceState<CudaDevice>,
    index: usize,
    config: &Config,
) -> TraceHeader {
    let caps = state.device.caps();
    TraceHeader {
        device: u32::try_from(index).unwrap_or(0),
        device_name: Some(caps.name.clone()),
        device_memory: Some(caps.total),
        memory_fraction: config.memory_fraction,
        settings: Some(config.policy.spec().to_string()),
        streams: state.stream_handles().to_vec(),
        ..TraceHeader::default()
    }
}

/// The run so far.
pub(crate) fn record(state: &DeviceState<CudaDevice>, config: &Config) -> RunRecord {
    let stats = state.stats();
    let ledger = state.device.ledger();
    let mut record = RunRecord {
        version: RECORD_VERSION,
        provenance: Provenance {
            poolsim_version: env!("CARGO_PKG_VERSION").into(),
            policy: config.policy.spec().to_string(),
            target: "live".into(),
            device: Some(state.device.caps().clone()),
            memory_fraction: config.memory_fraction,
            device_profile: "measured".into(),
            placement: "driver".into(),
            ..Provenance::default()
        },
        measured: Some(measured(state)),
        ..RunRecord::default()
    };
    for (name, n) in [
        (name::peak_requested_bytes, stats.requested.peak),
        (name::peak_allocated_bytes, stats.allocated.peak),
        (name::peak_active_bytes, stats.active.peak),
        (name::peak_reserved_bytes, stats.reserved.peak),
        (name::final_allocated_bytes, stats.allocated.current),
        (name::final_reserved_bytes, stats.reserved.current),
        (name::ooms, stats.ooms),
        (name::retries, stats.retries),
        (name::device_calls, ledger.calls.iter().sum()),
        (name::device_time_ns, ledger.total_time()),
    ] {
        record.set(name, Value::Int(n));
    }
    for &op in DeviceOp::ALL.iter().filter(|&&op| ledger.calls[op as usize] > 0) {
        record.device_calls.insert(op.name().into(), ledger.calls[op as usize]);
        record.device_time_ns.insert(op.name().into(), ledger.time[op as usize]);
    }
    record
}

fn measured(state: &DeviceState<CudaDevice>) -> Measured {
    let own = [("alloc", state.policy.allocs()), ("free", state.policy.frees())];
    let driver = state.device.latencies().map(|(op, latency)| (op.name(), latency));
    Measured {
        mode: "inside PyTorch".into(),
        repeats: 1,
        timer_cost_ns: poolsim_real_backend::timer_cost(),
        driver_pace_ns: None,
        latency: own.into_iter().chain(driver).map(|(k, l)| (k.into(), l.summary())).collect(),
        ..Measured::default()
    }
}

/// Writes the records as one JSON document.
pub(crate) fn write(path: &Path, records: &[RunRecord]) -> std::io::Result<()> {
    let mut text = serde_json::to_vec_pretty(&json!({ "runs": records }))?;
    text.push(b'\n');
    std::fs::write(path, text)
}
