//! An experiment cut into cells.

use super::Experiment;
use crate::args::MachineArgs;
use anyhow::Context;
use poolsim_core::Bytes;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// One run of a sweep.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Digest of everything that the result follows from.
    pub key: String,
    /// Index of its trace in [`Plan::traces`].
    pub trace: usize,
    /// The policy as the experiment writes it.
    pub policy: String,
    /// Bytes that the job can have.
    pub capacity: Option<Bytes>,
}

/// A file of a sweep.
#[derive(Clone, Debug)]
pub struct TraceFile {
    /// Where it is.
    pub path: PathBuf,
    /// As results name it: relative to the experiment's file, where it lies below it; to the results, if it was made.
    pub name: String,
    /// What `{seed}` stood for, or what it was made with.
    pub seed: u64,
}

/// What a sweep will do.
pub struct Plan {
    /// The files.
    pub traces: Vec<TraceFile>,
    /// The cells, by trace, then policy, then capacity.
    pub cells: Vec<Cell>,
    /// The machine, where the experiment says it.
    pub machine: MachineArgs,
    /// Steps for the bound; `None` for no bound.
    pub bound_steps: Option<u64>,
}

impl Plan {
    /// Cuts an experiment whose file lies in `folder`, and whose synthetic traces were `made`, into cells.
    ///
    /// # Errors
    /// A trace that is not there or cannot be read.
    pub fn new(
        experiment: &Experiment,
        folder: &Path,
        made: Vec<TraceFile>,
    ) -> anyhow::Result<Plan> {
        let machine = MachineArgs {
            device_memory: experiment.device_memory()?,
            memory_fraction: experiment.memory_fraction,
        };
        let bound_steps = experiment.bound.then_some(experiment.bound_steps);
        let (specs, capacities) = (experiment.specs(), experiment.capacities()?);
        let (mut traces, mut cells) = (Vec::new(), Vec::new());
        let named = experiment.files(folder)?.into_iter().map(|(path, seed)| {
            let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
            TraceFile { path, name, seed }
        });
        for file in named.chain(made) {
            let content = contents(&file.path)?;
            let TraceFile { name, seed, .. } = &file;
            for policy in &specs {
                for &capacity in &capacities {
                    let said = format!(
                        "{}\n{name}\n{seed}\n{policy}\n{capacity:?}\n{machine:?}\n{bound_steps:?}",
                        env!("CARGO_PKG_VERSION")
                    );
                    let mut digest = Sha256::new();
                    digest.update(content);
                    digest.update(said.as_bytes());
                    let key = hex(&digest.finalize());
                    let (trace, policy) = (traces.len(), policy.clone());
                    cells.push(Cell { key, trace, policy, capacity });
                }
            }
            traces.push(file);
        }
        Ok(Plan { traces, cells, machine, bound_steps })
    }
}

/// Digest of a file and of the sidecar beside it.
fn contents(path: &Path) -> anyhow::Result<[u8; 32]> {
    let mut digest = Sha256::new();
    let mut add = |path: &Path| -> anyhow::Result<()> {
        let mut file = File::open(path).with_context(|| path.display().to_string())?;
        io::copy(&mut file, &mut digest).with_context(|| path.display().to_string())?;
        Ok(())
    };
    add(path)?;
    if let Some(sidecar) = crate::sidecar::path_beside(path).filter(|path| path.is_file()) {
        add(&sidecar)?;
    }
    Ok(digest.finalize().into())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
