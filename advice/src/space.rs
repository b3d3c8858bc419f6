//! The settings that can be tried on a job.
//!
//! A grid: for each option the default and values a power of two apart. Finer steps are left out on purpose: what only
//! `max_split_size_mb:137` can do was tuned to one recording.

use crate::job::Job;
use crate::torch::Torch;
use poolsim_core::units::MIB;
use poolsim_core::{Bytes, ConfigError, EventKind};
use poolsim_policies::{PolicySpec, Registry, Resolved};
use std::collections::BTreeMap;

/// A setting of PyTorch's allocator that can be built on the job's machine.
#[derive(Clone, Debug)]
pub struct Setting {
    /// What it means.
    pub resolved: Resolved,
    conf: String,
    keys: usize,
}

impl Setting {
    /// The setting that a value of PYTORCH_CUDA_ALLOC_CONF means.
    ///
    /// # Errors
    /// It is not legal, or contradicts itself.
    pub fn parse(conf: &str, job: &Job) -> Result<Setting, ConfigError> {
        let spec: PolicySpec = conf.parse()?;
        Setting::of(Registry::builtin().resolve(&spec)?, job)
    }

    /// A setting that is understood already.
    ///
    /// # Errors
    /// It contradicts itself.
    pub fn of(resolved: Resolved, job: &Job) -> Result<Setting, ConfigError> {
        resolved.build(&job.env())?;
        let items = resolved.params.items();
        let conf: Vec<String> = items.iter().map(|(key, value)| format!("{key}:{value}")).collect();
        Ok(Setting { conf: conf.join(","), keys: items.len(), resolved })
    }

    /// PyTorch's defaults.
    pub fn standard(job: &Job) -> Setting {
        Setting::parse("", job).expect("the defaults are legal")
    }

    /// What to give the environment variable; empty for the defaults.
    pub fn conf(&self) -> &str {
        &self.conf
    }

    /// How many options it sets.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// Whether it is one of PyTorch's native allocator.
    pub fn is_native(&self) -> bool {
        self.resolved.def.name == "pytorch"
    }

    /// For tables.
    pub fn title(&self) -> &str {
        if self.conf.is_empty() { "default" } else { &self.conf }
    }
}

/// One option with the values to try; the first is the empty text, which leaves it out.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The option.
    pub key: &'static str,
    /// Its values.
    pub values: Vec<String>,
}

/// The grid of a job.
#[derive(Clone, Debug)]
pub struct Space {
    /// Its options.
    pub axes: Vec<Axis>,
    /// Options that were left out, and why.
    pub left_out: Vec<(&'static str, String)>,
}

/// One value for each axis, as indices.
pub type Point = Vec<usize>;

impl Space {
    /// The grid that makes sense for these jobs: options that the version does not know and values that no request of theirs
    /// can feel are left out.
    pub fn of(jobs: &[Job], torch: Torch) -> Space {
        let mut space = Space { axes: Vec::new(), left_out: Vec::new() };
        let largest = jobs.iter().map(largest_request).max().unwrap_or(0);
        let least = torch.least_split_mb();
        let powers = |from: u64, to: Bytes| {
            let all = std::iter::successors(Some(from), |n| n.checked_mul(2));
            all.take_while(move |n| n.saturating_mul(MIB) <= to)
        };
        let numbers = |values: Vec<u64>| values.iter().map(u64::to_string).collect::<Vec<_>>();
        let splits: Vec<u64> = std::iter::once(least).chain(powers(32, largest).take(10)).collect();
        let splits = if largest < least * MIB { Vec::new() } else { splits };
        space.axis(torch, "expandable_segments", vec!["True".into()], "");
        let too_small =
            format!("no request is as large as {least} MiB, the smallest that it takes");
        let roundings = if splits.is_empty() { Vec::new() } else { vec![128, 512, 2048] };
        space.axis(torch, "max_split_size_mb", numbers(splits), &too_small);
        space.axis(torch, "max_non_split_rounding_mb", numbers(roundings), &too_small);
        let mut divisions: Vec<String> = ["2", "4", "8", "16"].map(String::from).into();
        divisions.push("[256:1,512:2,1024:4,>:8]".into());
        space.axis(torch, "roundup_power2_divisions", divisions, "");
        space.axis(torch, "large_segment_size_mb", numbers(vec![12, 32, 64, 128]), "");
        let limited = jobs.iter().all(|job| job.memory_fraction.is_some_and(|share| share < 1.0));
        let thresholds = ["0.5", "0.6", "0.7", "0.8", "0.9"].map(String::from);
        let thresholds = if limited { thresholds.to_vec() } else { Vec::new() };
        let unlimited =
            "it does nothing without a memory fraction below 1, which the job does not set";
        space.axis(torch, "garbage_collection_threshold", thresholds, unlimited);
        space
    }

    fn axis(&mut self, torch: Torch, key: &'static str, values: Vec<String>, without: &str) {
        if !torch.knows(key) {
            self.left_out.push((key, format!("PyTorch {torch} does not know it")));
        } else if values.is_empty() {
            self.left_out.push((key, without.into()));
        } else {
            let values = std::iter::once(String::new()).chain(values).collect();
            self.axes.push(Axis { key, values });
        }
    }

    /// The point at which every option is left out.
    pub fn origin(&self) -> Point {
        vec![0; self.axes.len()]
    }

    /// Every point, in order.
    pub fn points(&self) -> Vec<Point> {
        let mut points = vec![Vec::new()];
        for axis in &self.axes {
            let longer = |point: &Point| {
                let point = point.clone();
                (0..axis.values.len()).map(move |i| [&point[..], &[i]].concat())
            };
            points = points.iter().flat_map(longer).collect();
        }
        points
    }

    /// The setting at a point; `None` where it contradicts itself, or says something that has no effect or does harm as
    /// combined: such a setting is never advised.
    pub fn setting(&self, point: &Point, job: &Job) -> Option<Setting> {
        let mut items = Vec::new();
        for (axis, &i) in self.axes.iter().zip(point) {
            if i > 0 {
                items.push(format!("{}:{}", axis.key, axis.values[i]));
            }
        }
        let setting = Setting::parse(&items.join(","), job).ok()?;
        setting.resolved.warnings(&job.env()).is_empty().then_some(setting)
    }

    /// The settings at these points, each once.
    pub fn settings(&self, points: &[Point], job: &Job) -> Vec<(Point, Setting)> {
        let mut seen = BTreeMap::new();
        let mut settings = Vec::new();
        for point in points {
            if let Some(setting) = self.setting(point, job)
                && seen.insert(setting.conf().to_string(), ()).is_none()
            {
                settings.push((point.clone(), setting));
            }
        }
        settings
    }
}

fn largest_request(job: &Job) -> Bytes {
    let requests = job.trace.events.iter().filter(|event| {
        matches!(event.kind(), EventKind::Alloc | EventKind::AllocRefused | EventKind::Preexisting)
    });
    requests.map(|event| event.size).max().unwrap_or(0)
}
