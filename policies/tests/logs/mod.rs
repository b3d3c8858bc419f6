//! Recorded logs of other allocators: where they are, their lines, and policies and devices to hold against them.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod rig;

use poolsim_core::{AllocRequest, DevAddr, DriverAnswer, PoolId, Slot, StreamId};
use poolsim_policies::{BuildEnv, Built, Registry};
use poolsim_sim::{DeviceProfile, Placement, SimConfig, SimDevice};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The committed recordings of a folder, in order.
pub fn corpus(folder: &str, extension: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = list(&root.join("../traces/corpus").join(folder), extension);
    assert!(!found.is_empty(), "the corpus has recordings in {folder}");
    found
}

/// The same and, where they are, the shared ones; says so if they are not.
pub fn recordings(folder: &str, extension: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = corpus(folder, extension);
    let shared =
        std::env::var_os("POOLSIM_SHARED").map_or_else(|| root.join("../../shared"), PathBuf::from);
    let shared = list(&shared.join("traces").join(folder), extension);
    if shared.is_empty() {
        println!("SKIPPED: no shared recordings of {folder} (set POOLSIM_SHARED), only the corpus");
    }
    found.extend(shared);
    found
}

fn list(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| path.to_string_lossy().ends_with(extension));
    found.sort();
    found
}

/// The text of a file that may be compressed.
pub fn text(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut text = String::new();
    let read = match bytes.as_slice() {
        [0x1f, 0x8b, ..] => flate2::read::GzDecoder::new(&*bytes).read_to_string(&mut text),
        [0x28, 0xb5, ..] => {
            zstd::Decoder::new(&*bytes).and_then(|mut d| d.read_to_string(&mut text))
        }
        bytes => (&*bytes).read_to_string(&mut text),
    };
    read.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text
}

/// A policy for an H200.
pub fn build(spec: &str) -> Built {
    let env = BuildEnv { caps: DeviceProfile::h200().caps, memory_fraction: None };
    Registry::builtin().build(&spec.parse().unwrap(), &env).unwrap_or_else(|e| panic!("{e}"))
}

/// An H200 whose driver answers as recorded.
pub fn device(answers: Vec<DriverAnswer>) -> SimDevice {
    let config = SimConfig::new(DeviceProfile::h200());
    SimDevice::new(SimConfig { placement: Placement::Recorded(answers), keep_log: true, ..config })
}

/// A range of any size at this address.
pub fn at(addr: DevAddr) -> DriverAnswer {
    DriverAnswer::Range { addr, size: 0 }
}

/// A request.
pub fn request(size: u64, stream: u16, slot: u32) -> AllocRequest {
    AllocRequest { size, stream: StreamId(stream), pool: PoolId::DEFAULT, slot: Slot(slot) }
}
