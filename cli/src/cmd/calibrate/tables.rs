//! From measured calls to the tables of a profile.

use poolsim_core::{Bytes, DeviceOp};
use poolsim_real_backend::{Sample, State};
use poolsim_sim::device::CallTable;
use std::collections::BTreeMap;

/// What a reader of the profile should know.
pub const NOTES: &[&str] = &[
    "between measured sizes: interpolated on log-log scales",
    "growing: taken piece by piece and held, then given back in the same order; again: taken right after it was given \
     back; crowded: beside a thousand others; busy: while a kernel runs on another stream; fragmented: in a pool with \
     two thousand blocks of mixed sizes",
    "pages of 20 MiB, and access to several at once, were measured side by side in one range longer than the device's \
     memory, as expandable segments grow",
    "pool pages: one 32 MiB page of the driver's memory pool, from requests of 1 to 16 new pages and of scattered ones that \
     were moved, and from trims of scattered pages and runs",
    "hits of a pool: with the pool's attributes asked for between the calls, as a replay does",
    "each time is what it would have been at the driver's pace that driver_pace_ns states: the sum of the medians of \
     cudaMalloc and cudaFree of 2 MiB, and of a 2 MiB page created, mapped, given access to, unmapped and released",
    "events and host waits: the call itself on an idle stream; the time that a host waits for work is not in it",
];

/// The driver call behind an operation, and the state in which the simulation takes it to be.
fn call_of(op: DeviceOp) -> (&'static str, State) {
    match op {
        DeviceOp::Alloc => ("cudaMalloc", State::Growing),
        DeviceOp::Free => ("cudaFree", State::Growing),
        DeviceOp::Reserve => ("cuMemAddressReserve", State::Growing),
        DeviceOp::Unreserve => ("cuMemAddressFree", State::Growing),
        DeviceOp::Create => ("cuMemCreate", State::Growing),
        DeviceOp::Destroy => ("cuMemRelease", State::Growing),
        DeviceOp::Map => ("cuMemMap", State::Growing),
        DeviceOp::Access => ("cuMemSetAccess", State::Growing),
        DeviceOp::Unmap => ("cuMemUnmap", State::Growing),
        DeviceOp::Record => ("cuEventRecord", State::Again),
        DeviceOp::Query => ("cuEventQuery", State::Again),
        DeviceOp::Wait => ("cuStreamWaitEvent", State::Again),
        DeviceOp::Synchronize => ("cuCtxSynchronize", State::Again),
        DeviceOp::PoolMalloc => ("cudaMallocAsync", State::Fragmented),
        DeviceOp::PoolFree => ("cudaFreeAsync", State::Fragmented),
        DeviceOp::PoolGrow => ("pool page, new", State::Growing),
        DeviceOp::PoolMove => ("pool page, moved", State::Growing),
        DeviceOp::PoolShrink => ("pool page, released", State::Growing),
    }
}

/// The largest single page whose access is like a run's: a run of one.
const LARGEST_SINGLE_ACCESS: Bytes = 2 << 20;

fn table_name(call: &str, state: State) -> String {
    format!("{call}, {}", state.name())
}

/// Which table prices which operation.
pub fn operations() -> BTreeMap<String, Vec<String>> {
    let one = |&op: &DeviceOp| {
        let (call, state) = call_of(op);
        (op.name().into(), vec![table_name(call, state)])
    };
    DeviceOp::ALL.iter().map(one).collect()
}

/// Every measured call and state.
pub fn calls(samples: &[Sample]) -> Vec<CallTable> {
    let mut tables: BTreeMap<String, BTreeMap<Bytes, &Sample>> = BTreeMap::new();
    for sample in samples.iter().filter(|s| !s.call.ends_with(".run")) {
        let single = sample.call == "cuMemSetAccess" && sample.bytes > LARGEST_SINGLE_ACCESS;
        let name = if single && sample.state == State::Growing {
            "cuMemSetAccess, one page".to_string()
        } else {
            table_name(sample.call, sample.state)
        };
        tables.entry(name).or_default().insert(sample.bytes, sample);
    }
    for sample in samples {
        if let Some(call) = sample.call.strip_suffix(".run") {
            tables.entry(table_name(call, sample.state)).or_default().insert(sample.bytes, sample);
        }
    }
    tables.into_iter().map(|(name, rows)| table(name, &rows)).collect()
}

fn table(name: String, rows: &BTreeMap<Bytes, &Sample>) -> CallTable {
    let mut table = CallTable { name, ..CallTable::default() };
    for (&bytes, sample) in rows {
        let summary = sample.times.summary();
        table.bytes.push(bytes);
        table.samples.push(summary.calls);
        table.p50_ns.push(summary.p50_ns);
        table.mean_ns.push(sample.times.usual_mean());
        table.p90_ns.push(summary.p90_ns);
        table.p99_ns.push(summary.p99_ns);
        table.max_ns.push(summary.max_ns);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolsim_core::DeviceCaps;
    use poolsim_real_backend::Latency;
    use poolsim_sim::DeviceProfile;
    use poolsim_sim::device::{ProfileFile, ProfileProvenance};

    fn sample(call: &'static str, state: State, bytes: Bytes, ns: u64) -> Sample {
        let mut times = Latency::default();
        times.add(ns);
        Sample { call, state, bytes, times }
    }

    #[test]
    fn what_was_measured_prices_the_simulation() {
        let mut samples: Vec<Sample> = DeviceOp::ALL
            .iter()
            .map(|&op| {
                let (call, state) = call_of(op);
                sample(call, state, 2 << 20, 1000 + op as u64)
            })
            .collect();
        samples.push(sample("cuMemCreate", State::Growing, 20 << 20, 5000));
        samples.push(sample("cuMemCreate.run", State::Growing, 20 << 20, 3000));
        samples.push(sample("cuMemSetAccess", State::Growing, 1 << 30, 7000));
        samples.push(sample("cudaMalloc", State::Crowded, 2 << 20, 9000));
        let file = ProfileFile {
            name: "test".into(),
            provenance: ProfileProvenance::default(),
            device: DeviceCaps {
                name: "test".into(),
                total: 1 << 30,
                granule: 2 << 20,
                range_align: 2 << 20,
                paged: true,
            },
            operations: operations(),
            call: calls(&samples),
        };
        let text = toml::to_string(&file).unwrap();
        let profile = DeviceProfile::parse(&text).unwrap();
        for &op in DeviceOp::ALL {
            assert_eq!(profile.cost(op, 2 << 20), 1000 + op as u64, "{}", op.name());
        }
        // Histograms keep three digits.
        assert_eq!(profile.cost(DeviceOp::Create, 20 << 20) / 10, 300, "pages in a run");
        let access = 1000 + DeviceOp::Access as u64;
        assert_eq!(profile.cost(DeviceOp::Access, 1 << 30), access, "not that of one page");
        assert!(text.contains("cudaMalloc, crowded"), "{text}");
    }
}
