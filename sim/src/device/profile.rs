//! What device calls cost: measured profiles.

use poolsim_core::device::DeviceOp;
use poolsim_core::{Bytes, ConfigError, DeviceCaps, Nanos};
use serde::Deserialize;
use std::collections::BTreeMap;

const H200: &str = include_str!("../../profiles/h200.toml");

/// The measured cost of every device operation on one machine, and how it was measured.
///
/// A call's cost is the median latency by size. Between two measured sizes it is interpolated on log-log
/// scales; below the smallest it is that of the smallest; above the largest it grows in proportion.
#[derive(Clone, Debug)]
pub struct DeviceProfile {
    /// Short name.
    pub name: String,
    /// What was measured, and how.
    pub provenance: ProfileProvenance,
    /// The device that the profile was measured on, for runs that name no other.
    pub caps: DeviceCaps,
    /// Curves by `DeviceOp` index; an operation costs the sum of its curves.
    curves: Vec<Vec<Curve>>,
}

/// How a profile was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileProvenance {
    /// The GPU.
    pub gpu: String,
    /// The driver's version.
    pub driver: String,
    /// The CUDA version.
    pub cuda: String,
    /// When.
    pub date: String,
    /// How.
    pub method: String,
    /// What a reader should know before believing the numbers.
    pub notes: Vec<String>,
}

impl std::fmt::Display for ProfileProvenance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, driver {}, CUDA {}, {}", self.gpu, self.driver, self.cuda, self.date)
    }
}

/// One driver call: median latency by size.
#[derive(Clone, Debug)]
struct Curve {
    /// Sizes, ascending, with their medians.
    points: Vec<(Bytes, Nanos)>,
    samples: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    name: String,
    provenance: ProfileProvenance,
    device: DeviceCaps,
    /// Calls by operation name.
    operations: BTreeMap<String, Vec<String>>,
    call: Vec<CallTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallTable {
    name: String,
    bytes: Vec<Bytes>,
    samples: Vec<u64>,
    p50_ns: Vec<Nanos>,
}

impl DeviceProfile {
    /// The profile of an NVIDIA H200 that comes with poolsim.
    pub fn h200() -> Self {
        DeviceProfile::parse(H200).expect("the built-in profile is well formed")
    }

    /// Reads a profile from TOML; `profiles/h200.toml` shows the layout.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let file: ProfileFile = toml::from_str(text)
            .map_err(|e| ConfigError(format!("this is not a device profile: {e}")))?;
        let bad = |what: String| ConfigError(format!("device profile {}: {what}", file.name));
        let mut tables = BTreeMap::new();
        for call in &file.call {
            let curve = Curve::new(call).map_err(|e| bad(format!("call {}: {e}", call.name)))?;
            if tables.insert(call.name.as_str(), curve).is_some() {
                return Err(bad(format!("call {} is there twice", call.name)));
            }
        }
        let known = |name: &String| DeviceOp::ALL.iter().any(|op| op.name() == name);
        if let Some(name) = file.operations.keys().find(|name| !known(name)) {
            return Err(bad(format!("there is no operation {name}")));
        }
        let mut curves = Vec::with_capacity(DeviceOp::ALL.len());
        for op in DeviceOp::ALL.iter().map(|op| op.name()) {
            let calls = file.operations.get(op).ok_or_else(|| {
                bad(format!("operation {op} is missing; give it `[]` if it is not measured"))
            })?;
            let curve = |name: &String| {
                tables.get(name.as_str()).cloned().ok_or_else(|| {
                    bad(format!("operation {op} names call {name}, which has no table"))
                })
            };
            curves.push(calls.iter().map(curve).collect::<Result<_, _>>()?);
        }
        Ok(DeviceProfile {
            name: file.name,
            provenance: file.provenance,
            caps: file.device,
            curves,
        })
    }

    /// A profile in which every call is free, for tests and for devices nobody measured.
    pub fn free_of_charge(caps: DeviceCaps) -> Self {
        DeviceProfile {
            name: "free".into(),
            provenance: ProfileProvenance {
                method: "not measured: every call costs nothing".into(),
                ..ProfileProvenance::default()
            },
            caps,
            curves: vec![Vec::new(); DeviceOp::ALL.len()],
        }
    }

    /// What one call on `bytes` bytes costs.
    pub fn cost(&self, op: DeviceOp, bytes: Bytes) -> Nanos {
        self.curves[op as usize].iter().map(|c| c.at(bytes)).sum()
    }

    /// How many calls the cost of an operation rests on; 0 for one that was not measured and costs nothing.
    pub fn samples(&self, op: DeviceOp) -> u64 {
        self.curves[op as usize].iter().map(|c| c.samples).min().unwrap_or(0)
    }

    /// Operations that were not measured and so cost nothing here.
    pub fn unmeasured(&self) -> impl Iterator<Item = DeviceOp> {
        DeviceOp::ALL.iter().copied().filter(|&op| self.curves[op as usize].is_empty())
    }
}

impl Curve {
    fn new(table: &CallTable) -> Result<Self, String> {
        let n = table.bytes.len();
        if n == 0 || table.p50_ns.len() != n || table.samples.len() != n {
            return Err("bytes, samples and p50_ns must have the same length, at least 1".into());
        }
        if table.bytes[0] == 0 || table.bytes.windows(2).any(|w| w[0] >= w[1]) {
            return Err("bytes must be positive and ascending".into());
        }
        if table.p50_ns.contains(&0) {
            return Err("p50_ns must be positive; leave the call out instead".into());
        }
        Ok(Curve {
            points: table.bytes.iter().copied().zip(table.p50_ns.iter().copied()).collect(),
            samples: table.samples.iter().sum(),
        })
    }

    fn at(&self, bytes: Bytes) -> Nanos {
        let after = self.points.partition_point(|&(size, _)| size <= bytes);
        if after == 0 {
            return self.points[0].1;
        }
        let (low, low_ns) = self.points[after - 1];
        if low == bytes {
            return low_ns;
        }
        let Some(&(high, high_ns)) = self.points.get(after) else {
            // One point: the call's cost does not depend on the size.
            let grown = if after == 1 { 1.0 } else { bytes as f64 / low as f64 };
            return (low_ns as f64 * grown).round() as Nanos;
        };
        let part = (bytes as f64 / low as f64).ln() / (high as f64 / low as f64).ln();
        (low_ns as f64 * (high_ns as f64 / low_ns as f64).powf(part)).round() as Nanos
    }
}
