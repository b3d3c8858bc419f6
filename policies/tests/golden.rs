//! Did behaviour change? Exact figures of every registered policy on one recording of each job in the corpus and on
//! generated traces, on a roomy and on a tight device. `UPDATE_GOLDEN=1` writes the table anew; read its diff.

mod common;
#[allow(dead_code, reason = "another test uses the rest")]
mod recordings;

use common::traces;
use poolsim_core::units::GIB;
use poolsim_core::{Bytes, Ledger, Trace, TraceReader};
use poolsim_policies::pytorch::infer::infer;
use poolsim_policies::{BuildEnv, PolicySpec, Registry};
use poolsim_sim::{DeviceProfile, ReplayOptions, RunEnd, SimConfig, SimDevice, replay};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

/// Compositions that no named policy covers.
const COMPOSITIONS: [&str; 3] = [
    "compose,round:pow2,place:bins,grow:double,reclaim:lru",
    "compose,place:first,grow:chunk",
    "compose,place:worst,reclaim:none",
];

fn specs() -> Vec<PolicySpec> {
    let registry = Registry::builtin();
    let named = registry.defs().iter().flat_map(|def| {
        let presets = def.presets.iter().map(|p| p.name);
        std::iter::once(def.name).chain(presets)
    });
    let all = named.chain(COMPOSITIONS);
    all.map(|text| registry.resolve(&text.parse().expect("a spec")).expect(text).spec()).collect()
}

/// One recording of each job, the first folder's, by job name.
fn jobs() -> BTreeMap<String, Arc<Trace>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/corpus");
    let mut jobs = BTreeMap::new();
    for path in recordings::snapshots(&corpus) {
        let file = path.file_name().and_then(|n| n.to_str()).expect("a corpus file has a name");
        let job = file.split(['-', '.']).next().unwrap_or(file).to_string();
        if jobs.contains_key(&job) {
            continue;
        }
        let rec = recordings::read(&path).unwrap_or_else(|| panic!("{}", path.display()));
        let inferred = infer(&rec, &recordings::config_of(&rec));
        jobs.insert(job, Arc::new(inferred.trace));
    }
    jobs.insert("synthetic steps".into(), Arc::new(traces::steps(1, 100)));
    jobs.insert("synthetic streams".into(), Arc::new(traces::random(3, 4000, true)));
    jobs
}

fn run(trace: &Arc<Trace>, spec: &PolicySpec, total: Bytes) -> (RunEnd, Ledger) {
    let caps = common::caps(total);
    let env = BuildEnv { caps: caps.clone(), memory_fraction: None };
    let built = Registry::builtin().build(spec, &env).unwrap_or_else(|e| panic!("{spec}: {e}"));
    let mut policy = built.policy;
    let config = SimConfig::new(DeviceProfile::free_of_charge(caps));
    let mut target = SimDevice::new(config);
    let mut source = TraceReader::new(Arc::clone(trace));
    let options = ReplayOptions::default();
    let end = replay(&mut source, &mut *policy, &mut target, &mut (), &options);
    let ledger = poolsim_core::ReplayTarget::ledger(&target).clone();
    (end.unwrap_or_else(|e| panic!("{spec}: {e}")), ledger)
}

fn table() -> String {
    let specs = specs();
    let width = specs.iter().map(|s| s.to_string().len()).max().unwrap_or(0);
    let mut out = String::from(
        "Bytes at their peaks, device calls and refusals, by policy. Written by tests/golden.rs.\n",
    );
    for (job, trace) in jobs() {
        let tight = (traces::peak_live(&trace) / 8 * 9).next_multiple_of(2 << 20);
        for (name, total) in [("roomy", 140 * GIB), ("tight", tight)] {
            let mib = total >> 20;
            writeln!(out, "\n{job}, {} events, {name} device of {mib} MiB", trace.events.len())
                .expect("writing into a string");
            writeln!(
                out,
                "{:width$} {:>13} {:>13} {:>13} {:>9} {:>6} {:>8}",
                "policy", "requested", "active", "reserved", "calls", "OOMs", "retries"
            )
            .expect("writing into a string");
            for spec in &specs {
                let (end, ledger) = run(&trace, spec, total);
                let (s, calls) = (end.stats, ledger.calls.iter().sum::<u64>());
                let peaks = [s.requested.peak, s.active.peak, s.reserved.peak];
                writeln!(
                    out,
                    "{:width$} {:>13} {:>13} {:>13} {calls:>9} {:>6} {:>8}",
                    spec.to_string(),
                    peaks[0],
                    peaks[1],
                    peaks[2],
                    end.ooms,
                    s.retries
                )
                .expect("writing into a string");
            }
        }
    }
    out
}

#[test]
fn figures_are_as_committed() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/figures.txt");
    let now = table();
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|v| !v.is_empty()) {
        std::fs::write(path, &now).expect("the table can be written");
    }
    let before = std::fs::read_to_string(path).unwrap_or_default();
    let first = now.lines().zip(before.lines()).find(|(a, b)| a != b);
    assert!(
        now == before,
        "figures changed; if that is right, run this test with UPDATE_GOLDEN=1 and read the diff. \
         First change (now, committed): {first:#?}"
    );
}
