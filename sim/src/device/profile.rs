//! What device calls cost: measured profiles.

use poolsim_core::device::DeviceOp;
use poolsim_core::{Bytes, ConfigError, DeviceCaps, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const H200: &str = include_str!("../../profiles/h200.toml");

/// The measured cost of every device operation on one machine, and how it was measured.
///
/// A call's cost is the mean latency by size without the slowest hundredth, or the median where the file has no means.
/// Between two measured sizes it is interpolated on log-log
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Cost of reading the clock when it was measured, in nanoseconds: contained once in each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_cost_ns: Option<f64>,
    /// Time of a fixed set of driver calls when it was measured, in nanoseconds: the yardstick of [`DeviceProfile::at_pace_of`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_pace_ns: Option<f64>,
    /// What a reader should know before believing the numbers.
    pub notes: Vec<String>,
}

impl std::fmt::Display for ProfileProvenance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, driver {}, CUDA {}, {}", self.gpu, self.driver, self.cuda, self.date)
    }
}

/// One driver call: its price by size.
#[derive(Clone, Debug)]
struct Curve {
    /// Sizes, ascending, with their prices.
    points: Vec<(Bytes, Nanos)>,
    samples: u64,
}

/// A profile as its file has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileFile {
    /// Short name.
    pub name: String,
    /// What was measured, and how.
    pub provenance: ProfileProvenance,
    /// The device.
    pub device: DeviceCaps,
    /// The calls that an operation consists of, by its name; none for one that was not measured.
    pub operations: BTreeMap<String, Vec<String>>,
    /// The calls. Those that no operation names are there for readers.
    pub call: Vec<CallTable>,
}

/// One call's latencies by size, in nanoseconds. The simulation uses the means, or the medians if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallTable {
    /// The call, and the state that it was measured in.
    pub name: String,
    /// Sizes, ascending.
    pub bytes: Vec<Bytes>,
    /// How many calls each figure rests on.
    pub samples: Vec<u64>,
    /// Medians.
    pub p50_ns: Vec<Nanos>,
    /// Means of all calls but the slowest hundredth, where they were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mean_ns: Vec<Nanos>,
    /// 90th percentiles, where they were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub p90_ns: Vec<Nanos>,
    /// 99th percentiles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub p99_ns: Vec<Nanos>,
    /// Longest calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub max_ns: Vec<Nanos>,
}

impl DeviceProfile {
    /// The profile of an NVIDIA H200 that comes with poolsim.
    pub fn h200() -> Self {
        DeviceProfile::parse(H200).expect("the built-in profile is well formed")
    }

    /// Reads a profile from TOML; `profiles/h200.toml` shows the layout.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text)
            .map_err(|e| ConfigError(format!("this is not a device profile: {e}")))
            .and_then(DeviceProfile::from_file)
    }

    /// The profile that a file describes.
    ///
    /// # Errors
    /// Calls without tables, operations without calls, tables that are not ascending.
    pub fn from_file(file: ProfileFile) -> Result<Self, ConfigError> {
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

    /// The profile as at another pace of the driver, the time in nanoseconds of the set of calls that `driver_pace_ns` of
    /// the profile stands for: one machine's changed by a third between runs seconds apart. Returns the factor; `None`,
    /// and nothing changed, if the profile does not say what its pace was.
    pub fn at_pace_of(&mut self, driver_pace_ns: f64) -> Option<f64> {
        let factor = driver_pace_ns / self.provenance.driver_pace_ns.filter(|&ns| ns > 0.0)?;
        for curve in self.curves.iter_mut().flatten() {
            for (_, ns) in &mut curve.points {
                *ns = ((*ns as f64 * factor).round() as Nanos).max(1);
            }
        }
        Some(factor)
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
        let further = [&table.mean_ns, &table.p90_ns, &table.p99_ns, &table.max_ns];
        if further.iter().any(|list| !list.is_empty() && list.len() != n) {
            return Err(
                "mean_ns, p90_ns, p99_ns and max_ns must be left out or as long as bytes".into()
            );
        }
        if table.bytes[0] == 0 || table.bytes.windows(2).any(|w| w[0] >= w[1]) {
            return Err("bytes must be positive and ascending".into());
        }
        let prices = if table.mean_ns.is_empty() { &table.p50_ns } else { &table.mean_ns };
        if table.p50_ns.contains(&0) || prices.contains(&0) {
            return Err("p50_ns and mean_ns must be positive; leave the call out instead".into());
        }
        Ok(Curve {
            points: table.bytes.iter().copied().zip(prices.iter().copied()).collect(),
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
