//! The synthetic traces of an experiment, one for each seed.

use super::Experiment;
use super::cells::TraceFile;
use anyhow::{Context, anyhow};
use poolsim_traces::Source;
use poolsim_traces::export::{self, OutputOptions};
use poolsim_traces::synth::find;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A program of `poolsim synth`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Synth {
    /// Its name.
    program: String,
    /// Its settings; those that are left out have their defaults.
    #[serde(default)]
    set: BTreeMap<String, u64>,
}

impl Experiment {
    /// Makes the synthetic traces and keeps them in the folder `synth` of `results`. The same experiment makes the same
    /// bytes, so a sweep that goes on finds its traces unchanged.
    ///
    /// # Errors
    /// A program or setting that there is not; a file that cannot be written.
    pub fn make_traces(&self, results: &Path) -> anyhow::Result<Vec<TraceFile>> {
        let mut made = Vec::new();
        for synth in &self.synth {
            let generator = find(&synth.program).map_err(|e| anyhow!("`[[synth]]`: {e}"))?;
            let set: Vec<(String, u64)> = synth.set.clone().into_iter().collect();
            let said: String = set.iter().map(|(key, value)| format!(",{key}={value}")).collect();
            for &seed in &self.seeds {
                let name = format!("synth/{}{said},seed={seed}.pst", synth.program);
                let path = results.join(&name);
                let trace = generator
                    .generate(&set, seed)
                    .map_err(|e| anyhow!("`[[synth]]` {}: {}", synth.program, e.what))?;
                let folder = path.parent().expect("it lies in a folder");
                fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
                let exporter = export::find(None, &path).expect(".pst is a format");
                let source = Source::Trace(Box::new(trace));
                let options = OutputOptions { overwrite: true };
                export::write_file(&source, exporter, &path, options)?;
                made.push(TraceFile { path, name, seed });
            }
        }
        Ok(made)
    }
}
