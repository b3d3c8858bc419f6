//! What the tests of `cuda-async` share.
#![allow(dead_code, reason = "each test binary uses its part")]

use poolsim_core::Bytes;
use poolsim_policies::BuildEnv;
use poolsim_policies::cuda_async::{Attributes, CudaAsync};
use poolsim_sim::{DeviceProfile, SimConfig, SimDevice};
use std::path::PathBuf;

/// The recordings of the driver's pool that come with the repository.
pub fn corpus() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/corpus/driver-pool"))
}

/// A folder of the larger set of recordings; says so aloud if it is not there.
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("POOLSIM_SHARED")
        .map_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared").into(), PathBuf::from);
    let found = Some(root.join(path)).filter(|path| path.exists());
    if found.is_none() {
        println!("SKIPPED: no {path} in {}; set POOLSIM_SHARED", root.display());
    }
    found
}

/// An H200, of which `capacity` can be taken.
pub fn h200(capacity: Option<Bytes>) -> SimDevice {
    SimDevice::new(SimConfig { capacity, ..SimConfig::new(DeviceProfile::h200()) })
}

/// A pool's attributes as they are at first, but for the threshold.
pub fn attributes(release_threshold: Option<Bytes>) -> Attributes {
    Attributes {
        release_threshold,
        max_size: None,
        follow_event_dependencies: true,
        opportunistic: true,
        internal_dependencies: true,
    }
}

/// A pool on an H200.
pub fn pool(attributes: Attributes) -> CudaAsync {
    let caps = DeviceProfile::h200().caps;
    CudaAsync::new(attributes, &BuildEnv { caps, memory_fraction: None })
}
