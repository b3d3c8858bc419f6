//! What the environment asks for.

use poolsim_policies::{PolicySpec, Registry, Resolved};
use std::env;
use std::path::PathBuf;

/// The settings of a process.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) policy: Resolved,
    pub(crate) memory_fraction: Option<f64>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) stats: Option<PathBuf>,
}

impl Config {
    /// Reads the environment.
    ///
    /// # Errors
    /// Names the variable and what is wrong with it.
    pub(crate) fn from_env() -> Result<Config, String> {
        let text = env::var("POOLSIM_POLICY").unwrap_or_else(|_| "pytorch".into());
        let policy = text
            .parse::<PolicySpec>()
            .and_then(|spec| Registry::builtin().resolve(&spec))
            .map_err(|e| format!("POOLSIM_POLICY: {e}"))?;
        let memory_fraction = match env::var("POOLSIM_MEMORY_FRACTION") {
            Err(_) => None,
            Ok(text) => Some(fraction(&text)?),
        };
        let path = |name| env::var_os(name).map(PathBuf::from);
        Ok(Config {
            policy,
            memory_fraction,
            trace: path("POOLSIM_TRACE"),
            stats: path("POOLSIM_STATS"),
        })
    }
}

fn fraction(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("POOLSIM_MEMORY_FRACTION: {text:?} is no number from 0 to 1")),
    }
}
