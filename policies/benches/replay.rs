//! How long a replay takes per event: every recording of the corpus under its own settings, every metric on.
//!
//! `cargo bench -p poolsim-policies`. Reading, inference and construction are not timed.

use divan::counter::ItemsCount;
use poolsim_core::{Recording, Trace, TraceReader};
use poolsim_policies::pytorch::Config;
use poolsim_policies::pytorch::infer::infer;
use poolsim_policies::{BuildEnv, PolicySpec, Registry, Resolved};
use poolsim_sim::observe::{Ooms, Totals};
use poolsim_sim::{DeviceProfile, ReplayOptions, SimConfig, SimDevice, replay};
use poolsim_traces::{OpenOptions, Source, open};
use std::path::PathBuf;
use std::sync::Arc;

/// Recordings, one of each kind of work.
const RECORDINGS: &[&str] = &[
    "default/gpt2_varlen",
    "expand/gpt2_varlen",
    "default/unet_multires",
    "default/fuzz_streams",
    "default/fuzz_pressure-lim14",
    "split128/fuzz_small",
    "gc70/mid_streams-lim0.4",
];

fn main() {
    divan::main();
}

fn recording(name: &str) -> Recording {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../traces/corpus");
    let path = folder.join(format!("{name}.pickle.zst"));
    let opened = open(&path, &OpenOptions::default()).expect("the corpus can be read");
    let Source::Recording(mut recording) = opened.source else { panic!("{name} is a recording") };
    let sidecar = std::fs::read(folder.join(format!("{name}.json"))).expect("it has a sidecar");
    let sidecar: serde_json::Value = serde_json::from_slice(&sidecar).expect("which is JSON");
    let total = sidecar["total_memory"].as_u64().expect("with the device's memory");
    let limit = sidecar["limit_gib"].as_f64();
    recording.header.device_memory = Some(total);
    recording.header.memory_fraction = limit.map(|g| g * (1u64 << 30) as f64 / total as f64);
    *recording
}

fn resolved(recording: &Recording) -> Resolved {
    let settings = recording.header.settings.as_deref().unwrap_or_default();
    let spec: PolicySpec = settings.parse().expect("recorded settings are a spec");
    Registry::builtin().resolve(&spec).expect("of a known policy")
}

#[divan::bench(args = RECORDINGS)]
fn pytorch(bencher: divan::Bencher<'_, '_>, name: &str) {
    let recording = recording(name);
    let resolved = resolved(&recording);
    let config = Config::from_params(&resolved.params).expect("recorded settings agree");
    let trace = Arc::new(infer(&recording, &config).trace);
    run(bencher, &resolved, &trace);
}

#[divan::bench(args = ["pytorch", "expandable", "best-fit"])]
fn gpt2_varlen(bencher: divan::Bencher<'_, '_>, spec: &str) {
    let trace = Arc::new(infer(&recording("default/gpt2_varlen"), &Config::default()).trace);
    let spec: PolicySpec = spec.parse().expect("the bench names a spec");
    run(bencher, &Registry::builtin().resolve(&spec).expect("of a known policy"), &trace);
}

fn run(bencher: divan::Bencher<'_, '_>, resolved: &Resolved, trace: &Arc<Trace>) {
    let profile = DeviceProfile::h200();
    let memory_fraction = trace.header.memory_fraction;
    let env = BuildEnv { caps: profile.caps.clone(), memory_fraction };
    bencher
        .counter(ItemsCount::new(trace.events.len()))
        .with_inputs(|| {
            let policy = resolved.build(&env).expect("these settings can be built").policy;
            let device = SimDevice::new(SimConfig::new(profile.clone()));
            (
                policy,
                device,
                (Totals::default(), Ooms::default()),
                TraceReader::new(Arc::clone(trace)),
            )
        })
        .bench_local_refs(|(policy, device, observer, source)| {
            replay(source, &mut **policy, device, observer, &ReplayOptions::default())
        });
}
