//! Does `bfc` return the pointers that JAX's BFC allocators returned, grow as they grew and refuse what they refused?

mod bfc_log;
mod logs;

use bfc_log::{Call, Log, NONE, Witness, read, search, written};
use logs::{at, build, device, recordings, request, text};
use poolsim_core::{AllocError, BlockId, Bytes, DevAddr, Policy, ReplayTarget};
use poolsim_sim::SimDevice;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The logs, each once, with the spec of the policy that has the settings they were recorded under.
fn recorded() -> Vec<(String, Log, Log, String)> {
    let mut seen = BTreeSet::new();
    let mut logs = Vec::new();
    for path in recordings("jax-bfc", ".log.gz") {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        if !seen.insert(name.clone()) {
            continue;
        }
        let (gpu, host) = read(&text(&path));
        logs.push((name.clone(), gpu, host, sidecar_policy(&name)));
    }
    logs
}

fn sidecar_policy(log: &str) -> String {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/corpus/jax-bfc");
    let path = corpus.join(log.replace(".log.gz", ".json"));
    let sidecar: serde_json::Value = serde_json::from_str(&text(&path)).expect("JSON");
    sidecar["policy"].as_str().expect("a policy").to_string()
}

/// A log's calls through a policy, on a device that answers with the log's regions.
struct Run<'a> {
    policy: Box<dyn Policy>,
    dev: SimDevice,
    witness: &'a Witness,
    /// By request.
    blocks: BTreeMap<usize, BlockId>,
}

impl Run<'_> {
    fn free(&mut self, free: usize) {
        let block = self.blocks.remove(&self.witness.undoes[free]).expect("a live request");
        self.policy.free(&mut self.dev, block);
    }

    /// The pointer; of a refusal, what JAX writes of it.
    fn alloc(&mut self, call: usize, bytes: Bytes) -> Result<DevAddr, [String; 3]> {
        match self.policy.malloc(&mut self.dev, request(bytes, 0, call as u32)) {
            Ok(grant) => {
                self.blocks.insert(call, grant.block);
                Ok(grant.addr)
            }
            Err(AllocError::OutOfMemory { largest_free, .. }) => {
                Err(state(&*self.policy, largest_free))
            }
            Err(error) => panic!("call {call}: {error}"),
        }
    }
}

/// Holds every answer, and the bytes held after it, against the log.
fn check(name: &str, spec: &str, log: &Log, witness: &Witness) {
    let dev = device(log.regions.iter().map(|region| at(region.0)).collect());
    let mut run = Run { policy: build(spec).policy, dev, witness, blocks: BTreeMap::new() };
    let (mut refusals, mut late) = (log.refusals.iter(), None);
    for (i, &call) in log.calls.iter().enumerate() {
        run.dev.set_event(i as u64);
        match call {
            Call::Free { .. } if witness.late[i] => {
                assert_eq!(late.replace(i), None, "{name}: two frees are late at once");
            }
            Call::Free { .. } => run.free(i),
            Call::Alloc { bytes, pointer } => {
                let expected = pointer.ok_or_else(|| refusals.next().expect("a summary").clone());
                assert_eq!(run.alloc(i, bytes), expected, "{name}: call {i}, {bytes} bytes");
                let held = run.policy.stats().reserved.current;
                assert_eq!(held, log.held[i], "{name}: bytes held after call {i}");
                late.take().into_iter().for_each(|free| run.free(free));
            }
        }
    }
    assert!(run.dev.divergence().is_none(), "{name}: {:?}", run.dev.divergence());
}

/// What JAX writes of a refusal: what is free in all, the largest free chunk, the next region.
fn state(policy: &dyn Policy, largest_free: Bytes) -> [String; 3] {
    let (stats, native) = (policy.stats(), policy.native_stats());
    let next = native.iter().find(|(name, _)| name == "next_region_bytes").expect("a native value");
    let free = stats.reserved.current - stats.active.current;
    [free, largest_free, next.1 as Bytes].map(written)
}

/// How many of a log's frees could have meant more than one live request.
fn ambiguous(log: &Log) -> usize {
    let mut live = BTreeMap::<Bytes, usize>::new();
    let mut of_many = 0;
    for call in &log.calls {
        match *call {
            Call::Alloc { bytes, pointer: Some(_) } => *live.entry(bytes).or_default() += 1,
            Call::Alloc { .. } => {}
            Call::Free { bytes } => {
                let live = live.get_mut(&bytes).expect("a live request");
                of_many += usize::from(*live > 1);
                *live -= 1;
            }
        }
    }
    of_many
}

/// The log leaves open which request of a size a free undoes, and whether another thread's request came in between.
/// There is a way to read it under which the policy answers every request as JAX did.
#[test]
fn every_pointer_region_and_refusal_is_jaxs() {
    for (name, gpu, _, spec) in recorded() {
        let limit = build(&spec).policy.native_stats();
        let limit = limit.iter().find(|(name, _)| name == "bytes_limit").expect("a limit").1;
        let witness = search(&gpu, limit as Bytes);
        let witness =
            witness.unwrap_or_else(|call| panic!("{name}: no reading beyond call {call}"));
        let frees = witness.undoes.iter().filter(|request| **request != NONE).count();
        let late = witness.late.iter().filter(|late| **late).count();
        println!(
            "{name}: {} requests in {} regions, {} refused; {frees} frees, {} of a size with several live, {late} late",
            gpu.requests(),
            gpu.regions.len(),
            gpu.refusals.len(),
            ambiguous(&gpu)
        );
        assert!(late * 100 < frees, "{name}: {late} of {frees} frees are late");
        check(&name, &spec, &gpu, &witness);
    }
}

/// The pinned host's allocator serves one request at a time, so its log leaves nothing open.
#[test]
fn the_pinned_hosts_pointers_are_jaxs() {
    for (name, _, host, _) in recorded() {
        println!("{name}: {} requests in {} regions", host.requests(), host.regions.len());
        let n = host.calls.len();
        let undoes =
            |i: usize| if matches!(host.calls[i], Call::Free { .. }) { i - 1 } else { NONE };
        let witness = Witness { undoes: (0..n).map(undoes).collect(), late: vec![false; n] };
        check(&name, "bfc,memory_limit:64GiB", &host, &witness);
    }
}
