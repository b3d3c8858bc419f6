//! JAX's log of its BFC allocators, and the search for what it does not say.

mod naive;
mod search;
mod witness;

pub use search::search;
pub use witness::{NONE, Witness};

use poolsim_core::units::{GIB, MIB};
use poolsim_core::{Bytes, DevAddr};

const DEVICE: &str = "GPU_0_bfc";
const HOST: &str = "xla_gpu_host_bfc";

/// What one allocator did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call {
    /// A request; without a pointer it was refused.
    Alloc { bytes: Bytes, pointer: Option<DevAddr> },
    /// A free, by the size asked for.
    Free { bytes: Bytes },
}

/// The calls of one allocator, each in the order of the lines that were written under its lock.
#[derive(Debug, Default)]
pub struct Log {
    pub calls: Vec<Call>,
    /// Regions in the order in which they were taken.
    pub regions: Vec<(DevAddr, Bytes)>,
    /// Bytes of all regions after each call.
    pub held: Vec<Bytes>,
    /// For each refusal what is free in all, the largest free chunk and the size of the next region, as written.
    pub refusals: Vec<[String; 3]>,
}

impl Log {
    fn push(&mut self, call: Call) {
        self.calls.push(call);
        self.held.push(self.regions.iter().map(|region| region.1).sum());
    }

    pub fn requests(&self) -> usize {
        self.calls.iter().filter(|call| matches!(call, Call::Alloc { .. })).count()
    }
}

/// As the log writes a size.
pub fn written(bytes: Bytes) -> String {
    match bytes {
        GIB.. => format!("{:.2}GiB", bytes as f64 / GIB as f64),
        _ => format!("{:.2}MiB", bytes as f64 / MIB as f64),
    }
}

/// A pointer.
fn hex(text: &str) -> DevAddr {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a pointer")
}

/// The calls of the device's and of the pinned host's allocator.
///
/// A request names its allocator at the start and at the end; the pinned host's requests have no such lines, and its
/// pointers are those that no request of the device is waiting for.
pub fn read(text: &str) -> (Log, Log) {
    let (mut gpu, mut host) = (Log::default(), Log::default());
    let mut asked: Option<Bytes> = None;
    let mut device_grows = true;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().skip(2).collect();
        match words[..] {
            ["AllocateRaw", DEVICE, bytes, alignment] if alignment.starts_with("alignment=") => {
                asked = Some(bytes.parse().expect("bytes"));
            }
            ["AllocateRaw", DEVICE, bytes, pointer] if hex(pointer) == 0 => {
                let bytes = bytes.parse().expect("bytes");
                gpu.push(Call::Alloc { bytes, pointer: None });
                asked = None;
            }
            ["Returning:", pointer] => {
                let pointer = Some(hex(pointer));
                match asked.take() {
                    Some(bytes) => gpu.push(Call::Alloc { bytes, pointer }),
                    None => host.push(Call::Alloc { bytes: 0, pointer }),
                }
            }
            ["DeallocateRaw", DEVICE, bytes] => {
                gpu.push(Call::Free { bytes: bytes.parse().expect("bytes") });
            }
            ["DeallocateRaw", HOST, bytes] => {
                host.push(Call::Free { bytes: bytes.parse().expect("bytes") });
            }
            ["Extending", "allocation", "by", _, "bytes", "for", name] => {
                device_grows = name.starts_with(DEVICE);
            }
            ["Allocated", "memory", "at", from, "to", to] => {
                let log = if device_grows { &mut gpu } else { &mut host };
                log.regions.push((hex(from), hex(to) - hex(from)));
            }
            ["Allocator", "memory", "summary:", ..] => {
                let after = |name: &str| {
                    let (_, rest) = line.split_once(name).expect("a summary of memory");
                    rest.split(',').next().expect("a size").trim().to_string()
                };
                let (free, largest) = (after("free in pool"), after("usable by lower end"));
                gpu.refusals.push([free, largest, String::new()]);
            }
            ["Allocator", "region", "growth", _, _, _, _, "target", next, ..] => {
                let refusal = gpu.refusals.last_mut().expect("a summary of memory");
                refusal[2] = next.to_string();
            }
            _ => {}
        }
    }
    name_host_sizes(&mut host.calls);
    (gpu, host)
}

/// The pinned host's requests say no size; each is freed before the next one comes, so its free says it.
fn name_host_sizes(calls: &mut [Call]) {
    for i in 1..calls.len() {
        if let (Call::Alloc { pointer, .. }, Call::Free { bytes }) = (calls[i - 1], calls[i]) {
            calls[i - 1] = Call::Alloc { bytes, pointer };
        }
    }
    let named = |call: &Call| !matches!(call, Call::Alloc { bytes: 0, .. });
    assert!(calls.iter().all(named), "two requests of the pinned host are open at a time");
}
