//! From `--policy` to policies that can be built.

use crate::load::recorded_spec;
use crate::machine::Machine;
use crate::output::Usage;
use poolsim_core::TraceHeader;
use poolsim_policies::{PolicySpec, Registry, Resolved};
use std::collections::BTreeSet;

/// The word for the settings that the trace was recorded under.
pub const RECORDED: &str = "recorded";

/// A policy to run.
pub struct Choice {
    /// As the user wrote it.
    pub label: String,
    /// What it means.
    pub resolved: Resolved,
    /// Whether these are the settings that the trace was recorded under.
    pub as_recorded: bool,
}

/// Understands every `--policy`. Without any: the recorded settings, or PyTorch's defaults where the trace does
/// not say them.
///
/// # Errors
/// [`Usage`] for a policy or parameter that does not exist or contradicts another.
pub fn choose(
    labels: &[String],
    header: &TraceHeader,
    machine: &Machine,
) -> anyhow::Result<Vec<Choice>> {
    let registry = Registry::builtin();
    let recorded = match recorded_spec(header)? {
        Some(spec) => Some(registry.resolve(&spec)?),
        None => None,
    };
    let standard = match recorded {
        Some(_) => RECORDED,
        None => "pytorch",
    };
    let labels = if labels.is_empty() { &[standard.to_string()][..] } else { labels };
    let choose_one = |label: &String| {
        let resolved = if label == RECORDED {
            recorded.clone().ok_or_else(|| {
                Usage("the trace does not say which settings it was recorded under; name a policy instead of `recorded`".into())
            })?
        } else {
            let spec: PolicySpec = label.parse().map_err(usage)?;
            registry.resolve(&spec).map_err(usage)?
        };
        // Contradictions show only when it is built: better now than after a long read.
        resolved.build(&machine.env()).map_err(usage)?;
        let as_recorded = recorded.as_ref().is_some_and(|r| r.spec() == resolved.spec());
        Ok(Choice { label: label.clone(), resolved, as_recorded })
    };
    labels.iter().map(choose_one).collect()
}

/// What users should know of the settings, each once.
pub fn warnings(choices: &[Choice], machine: &Machine) -> Vec<String> {
    let mut said = BTreeSet::new();
    let mut lines = Vec::new();
    for choice in choices {
        for warning in choice.resolved.warnings(&machine.env()) {
            if said.insert(warning.0.clone()) {
                lines.push(format!("{}: {}", choice.label, warning.0));
            }
        }
    }
    lines
}

fn usage(error: poolsim_core::ConfigError) -> Usage {
    Usage(format!("--policy: {error}"))
}
