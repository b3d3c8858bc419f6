//! Is the trace that a job leaves behind what the job asked for? Its replay in simulation must end with the numbers of the
//! live run, for any order of requests, frees and uses on other streams.

use poolsim_core::{TraceHeader, TraceReader};
use poolsim_policies::{BuildEnv, Registry};
use poolsim_sim::{DeviceProfile, ReplayOptions, SimConfig, SimDevice, replay};
use poolsim_torch_plugin::DeviceState;
use std::sync::Arc;

const MEMORY: u64 = 2 << 30;

fn device() -> SimDevice {
    let mut config = SimConfig::new(DeviceProfile::h200());
    config.caps.total = MEMORY;
    config.keep_log = true;
    SimDevice::new(config)
}

/// A fixed sequence that looks random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[test]
fn a_jobs_trace_replays_to_the_numbers_of_the_job() {
    let registry = Registry::builtin();
    for spec in ["pytorch", "expandable", "best-fit", "cuda-async", "cuda-malloc"] {
        let resolved = registry.resolve(&spec.parse().unwrap()).unwrap();
        let mut job = DeviceState::new(device(), |_, _, _| (), &resolved, None, true).unwrap();
        let mut numbers = Numbers(7);
        let (mut held, mut refused) = (Vec::new(), 0);
        for _ in 0..4000 {
            match numbers.below(16) {
                0..8 => {
                    let size = 1 << numbers.below(27);
                    match job.malloc(size + numbers.below(size), numbers.below(3) * 4096) {
                        Some(addr) => held.push(addr),
                        None => refused += 1,
                    }
                }
                8..14 if !held.is_empty() => {
                    let at = numbers.below(held.len() as u64) as usize;
                    job.free(held.swap_remove(at));
                }
                14 if !held.is_empty() => {
                    let at = numbers.below(held.len() as u64) as usize;
                    assert!(job.record_stream(held[at], numbers.below(4) * 4096));
                }
                15 if numbers.below(40) == 0 => job.empty_cache(),
                _ => assert!(!job.record_stream(1, 0), "nothing is allocated there"),
            }
        }
        let trace = Arc::new(job.trace(TraceHeader::default()));
        assert!(job.stream_handles().len() >= 3 && refused > 0, "{spec} met a full device");
        let mut device = device();
        let env =
            BuildEnv { caps: poolsim_core::Device::caps(&device).clone(), memory_fraction: None };
        let mut policy = resolved.build(&env).unwrap().policy;
        let end = replay(
            &mut TraceReader::new(trace),
            &mut policy,
            &mut device,
            &mut (),
            &ReplayOptions::default(),
        )
        .unwrap();
        assert_eq!(end.stats, *job.stats(), "{spec}");
        assert_eq!((end.ooms, end.rescued), (refused, 0), "{spec}");
    }
}
