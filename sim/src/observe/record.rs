//! Puts a run's facts together.

use super::{Ooms, PeakState, Totals};
use crate::engine::RunEnd;
use poolsim_core::device::DeviceOp;
use poolsim_core::metric::name;
use poolsim_core::record::{Provenance, RECORD_VERSION, Value};
use poolsim_core::{Ledger, RunRecord};

/// Everything that a record is made of.
pub struct RunFacts<'a> {
    /// What the run was.
    pub provenance: Provenance,
    /// How it ended.
    pub end: &'a RunEnd,
    /// What the device was called for.
    pub ledger: &'a Ledger,
    /// Means and the moment of the peak.
    pub totals: &'a Totals,
    /// Refused requests.
    pub ooms: &'a Ooms,
    /// The heap at the peak, if it was looked at; without it the loss metrics are left out.
    pub peak: Option<PeakState>,
    /// What a reader must know.
    pub warnings: Vec<String>,
}

/// The record of a run.
pub fn run_record(facts: RunFacts<'_>) -> RunRecord {
    let RunFacts { provenance, end, ledger, totals, ooms, peak, warnings } = facts;
    let mut record = RunRecord {
        version: RECORD_VERSION,
        provenance,
        ooms: ooms.0.clone(),
        warnings,
        ..RunRecord::default()
    };
    set_stats(&mut record, end);
    set_means(&mut record, totals);
    if let Some(peak) = peak {
        for (name, bytes) in [
            (name::lost_to_rounding_bytes, peak.rounding),
            (name::lost_to_stranded_bytes, peak.stranded),
            (name::lost_to_free_ranges_bytes, peak.free_ranges),
            (name::lost_to_other_streams_bytes, peak.other_streams),
            (name::largest_free_bytes, peak.largest_free),
        ] {
            record.set(name, Value::Int(bytes));
        }
    }
    set_device(&mut record, ledger);
    record
}

fn set_stats(record: &mut RunRecord, end: &RunEnd) {
    let stats = &end.stats;
    for (name, n) in [
        (name::events, end.events),
        (name::allocs, end.allocs),
        (name::peak_requested_bytes, stats.requested.peak),
        (name::peak_allocated_bytes, stats.allocated.peak),
        (name::peak_active_bytes, stats.active.peak),
        (name::peak_reserved_bytes, stats.reserved.peak),
        (name::final_allocated_bytes, stats.allocated.current),
        (name::final_reserved_bytes, stats.reserved.current),
        (name::ooms, end.ooms),
        (name::rescued, end.rescued),
        (name::retries, stats.retries),
    ] {
        record.set(name, Value::Int(n));
    }
    if stats.reserved.peak > 0 {
        let utilisation = stats.active.peak as f64 / stats.reserved.peak as f64;
        record.set(name::utilisation, Value::Real(utilisation));
        record.set(name::fragmentation, Value::Real(1.0 - utilisation));
    }
}

fn set_means(record: &mut RunRecord, totals: &Totals) {
    let Some(means) = totals.means() else {
        record
            .warnings
            .push("the trace takes no time, so there are no time-weighted means".to_string());
        return;
    };
    let names = [
        name::mean_requested_bytes,
        name::mean_allocated_bytes,
        name::mean_active_bytes,
        name::mean_reserved_bytes,
    ];
    for (name, mean) in names.into_iter().zip(means) {
        record.set(name, Value::Real(mean));
    }
}

fn set_device(record: &mut RunRecord, ledger: &Ledger) {
    let calls = |op: DeviceOp| ledger.calls[op as usize];
    for (name, n) in [
        (name::device_calls, ledger.calls.iter().sum()),
        (name::device_time_ns, ledger.total_time()),
        (name::cuda_malloc_calls, calls(DeviceOp::Alloc)),
        (name::cuda_free_calls, calls(DeviceOp::Free)),
        (name::map_calls, calls(DeviceOp::Map)),
        (name::unmap_calls, calls(DeviceOp::Unmap)),
        (name::synchronize_calls, calls(DeviceOp::Synchronize)),
    ] {
        record.set(name, Value::Int(n));
    }
    for &op in DeviceOp::ALL.iter().filter(|&&op| calls(op) > 0) {
        record.device_calls.insert(op.name().into(), calls(op));
        record.device_time_ns.insert(op.name().into(), ledger.time[op as usize]);
    }
}
