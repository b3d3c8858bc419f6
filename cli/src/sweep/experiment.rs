//! The file that says what to sweep.

use super::made::Synth;
use crate::size::parse_size;
use anyhow::{Context, anyhow, bail, ensure};
use poolsim_core::Bytes;
use poolsim_policies::Registry;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// An experiment, as its file says it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Traces, relative to the experiment's file. `*` and `?` stand for parts of names; a folder stands for nothing: name
    /// what is meant in it. `{seed}` stands for each seed.
    #[serde(default)]
    pub traces: Vec<String>,
    /// Synthetic traces, each made once for every seed.
    #[serde(default)]
    pub synth: Vec<Synth>,
    /// Policies, as `--policy` takes them; `*` is every policy that there is, with its defaults.
    #[serde(default)]
    pub policies: Vec<String>,
    /// Policies with several values for some parameters: every combination is a policy.
    #[serde(default)]
    pub grid: Vec<Grid>,
    /// Bytes that the job can have, or `device` for all that there are.
    #[serde(default = "whole_device")]
    pub capacities: Vec<String>,
    /// What stands for `{seed}` in traces, and what synthetic traces are made with.
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// As `--device-memory`.
    pub device_memory: Option<String>,
    /// As `--memory-fraction`.
    pub memory_fraction: Option<f64>,
    /// Whether to compute the bound of each trace.
    #[serde(default = "yes")]
    pub bound: bool,
    /// Steps that packing a trace may take.
    #[serde(default = "bound_steps")]
    pub bound_steps: u64,
}

/// One policy, many settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// The policy, with what all settings share.
    pub policy: String,
    /// Values by parameter.
    pub params: BTreeMap<String, Vec<Param>>,
}

/// A value as TOML writes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Param {
    /// `True` and `False` of specs.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Real(f64),
    /// Anything else, as a spec writes it.
    Text(String),
}

impl std::fmt::Display for Param {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Param::Bool(true) => f.write_str("True"),
            Param::Bool(false) => f.write_str("False"),
            Param::Int(n) => n.fmt(f),
            Param::Real(x) => x.fmt(f),
            Param::Text(text) => text.fmt(f),
        }
    }
}

fn whole_device() -> Vec<String> {
    vec![DEVICE.into()]
}

fn one_seed() -> Vec<u64> {
    vec![0]
}

fn yes() -> bool {
    true
}

fn bound_steps() -> u64 {
    poolsim_sim::bound::DEFAULT_STEPS
}

/// The policy that means every one.
const EVERY: &str = "*";

/// The capacity that means all of the device.
const DEVICE: &str = "device";

impl Experiment {
    /// Reads a file.
    ///
    /// # Errors
    /// Names the file, the place and what was wrong.
    pub fn read(path: &Path) -> anyhow::Result<Experiment> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let experiment: Experiment =
            toml::from_str(&text).map_err(|e| anyhow!("{}: {e}", path.display()))?;
        experiment.check().with_context(|| path.display().to_string())?;
        Ok(experiment)
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.traces.is_empty() && self.synth.is_empty() {
            bail!("there is neither `traces` nor `[[synth]]`; name at least one trace");
        }
        ensure!(!self.capacities.is_empty(), "`capacities` is empty; `device` means all of it");
        ensure!(!self.seeds.is_empty(), "`seeds` is empty; leave it out for none");
        if self.policies.is_empty() && self.grid.is_empty() {
            bail!("there is neither `policies` nor `[[grid]]`; name at least one policy");
        }
        self.capacities()?;
        self.device_memory()?;
        let share = self.memory_fraction.unwrap_or(1.0);
        ensure!((0.0..=1.0).contains(&share), "`memory_fraction` is {share}, not from 0 to 1");
        Ok(())
    }

    /// Every policy, those of the grids written out, each once.
    pub fn specs(&self) -> Vec<String> {
        let mut specs = Vec::new();
        for policy in &self.policies {
            match policy.as_str() {
                EVERY => specs.extend(Registry::builtin().defs().iter().map(|def| def.name.into())),
                policy => specs.push(policy.into()),
            }
        }
        for grid in &self.grid {
            let mut rows = vec![grid.policy.clone()];
            for (key, values) in &grid.params {
                let longer = |row: &String| -> Vec<String> {
                    values.iter().map(|value| format!("{row},{key}:{value}")).collect()
                };
                rows = rows.iter().flat_map(longer).collect();
            }
            specs.extend(rows);
        }
        let mut seen = std::collections::BTreeSet::new();
        specs.retain(|spec| seen.insert(spec.clone()));
        specs
    }

    /// The capacities; `None` is all of the device.
    ///
    /// # Errors
    /// One that is no size.
    pub fn capacities(&self) -> anyhow::Result<Vec<Option<Bytes>>> {
        let one = |text: &String| match text.as_str() {
            DEVICE => Ok(None),
            text => parse_size(text).map(Some).map_err(|e| anyhow!("`capacities`: {e}")),
        };
        self.capacities.iter().map(one).collect()
    }

    /// The size of the device, where the experiment says it.
    ///
    /// # Errors
    /// It is no size.
    pub fn device_memory(&self) -> anyhow::Result<Option<Bytes>> {
        let Some(text) = &self.device_memory else { return Ok(None) };
        parse_size(text).map(Some).map_err(|e| anyhow!("`device_memory`: {e}"))
    }

    /// The files that the traces name, with the seed of each, in the order of the experiment and then of names.
    ///
    /// # Errors
    /// A name that no file has.
    pub fn files(&self, folder: &Path) -> anyhow::Result<Vec<(PathBuf, u64)>> {
        let mut files = Vec::new();
        for name in &self.traces {
            let seeds: &[u64] = if name.contains("{seed}") { &self.seeds } else { &[0] };
            for &seed in seeds {
                let name = name.replace("{seed}", &seed.to_string());
                let pattern = folder.join(&name);
                let pattern = pattern.to_str().context("the path is no text (UTF-8)")?;
                let found = glob::glob(pattern).with_context(|| format!("`traces`: {name}"))?;
                let before = files.len();
                for path in found {
                    let path = path?;
                    if path.is_file() {
                        files.push((path, seed));
                    }
                }
                ensure!(files.len() > before, "`traces`: there is no file {pattern}");
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        files.retain(|file| seen.insert(file.clone()));
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_every_combination_and_nothing_comes_twice() {
        let text = r#"
            traces = ["a"]
            policies = ["pytorch,max_split_size_mb:64", "pytorch"]
            [[grid]]
            policy = "pytorch"
            params.max_split_size_mb = [64, 128]
            [[grid]]
            policy = "compose"
            params = { place = ["best", "first"], "round.quantum" = ["512", "4KiB"] }
        "#;
        let experiment: Experiment = toml::from_str(text).unwrap();
        assert_eq!(
            experiment.specs(),
            [
                "pytorch,max_split_size_mb:64",
                "pytorch",
                "pytorch,max_split_size_mb:128",
                "compose,place:best,round.quantum:512",
                "compose,place:best,round.quantum:4KiB",
                "compose,place:first,round.quantum:512",
                "compose,place:first,round.quantum:4KiB",
            ]
        );
    }

    #[test]
    fn what_cannot_be_meant_is_an_error() {
        for text in [
            "traces = []\npolicies = ['bump']",
            "traces = ['a']",
            "traces = ['a']\npolicies = ['bump']\ncapacities = ['40G']",
            "traces = ['a']\npolicies = ['bump']\nmemory_fraction = 2.0",
            "traces = ['a']\npolicies = ['bump']\ncapacity = '40GiB'",
        ] {
            let parsed = toml::from_str::<Experiment>(text).map_err(anyhow::Error::from);
            assert!(parsed.and_then(|e| e.check()).is_err(), "{text}");
        }
    }
}
