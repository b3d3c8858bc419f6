//! The folder into which the processes of a job write, and the files that are made of it.

use crate::args::{MachineArgs, SelectArgs};
use crate::load::Input;
use crate::sidecar::path_beside;
use anyhow::Context;
use poolsim_reports::quantity::show_plural;
use poolsim_sim::DeviceProfile;
use poolsim_traces::export::{self, OutputOptions};
use poolsim_traces::{OpenOptions, Source, open};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder of snapshots, one for each process: the last one that was complete.
pub struct Spool {
    folder: PathBuf,
}

/// One process's snapshot.
struct Captured {
    snapshot: PathBuf,
    facts: Value,
    pid: String,
}

impl Spool {
    /// Makes the folder.
    ///
    /// # Errors
    /// It is there already, or cannot be made.
    pub fn create(folder: &Path) -> anyhow::Result<Spool> {
        fs::create_dir(folder).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => anyhow::anyhow!(
                "{}: is there already; another capture writes to the same output, or one was cut short (then --finish \
                 makes its files)",
                folder.display()
            ),
            _ => anyhow::anyhow!("{}: {error}", folder.display()),
        })?;
        Spool::open(folder)
    }

    /// Takes a folder that is there.
    ///
    /// # Errors
    /// It is not there.
    pub fn open(folder: &Path) -> anyhow::Result<Spool> {
        let folder = fs::canonicalize(folder).with_context(|| folder.display().to_string())?;
        Ok(Spool { folder })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes it away, with all that is in it.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(&self.folder);
    }

    /// Why no process wrote a snapshot, in one line.
    pub fn why_nothing(&self) -> &'static str {
        if self.folder.join("seen").exists() {
            "nothing was captured: no process used CUDA through PyTorch, or all were killed before their first snapshot \
             (--every writes some on the way)"
        } else {
            "nothing was captured: the command started no Python that takes PYTHONPATH (python -I, -E and -S do not)"
        }
    }

    /// Makes a file for each process, with what its snapshot does not hold beside it. Returns how many.
    ///
    /// # Errors
    /// Those of reading and writing, with the file.
    pub fn finish(&self, output: &Path) -> anyhow::Result<usize> {
        let all = self.captured()?;
        let names = names(output, &all);
        for (one, path) in all.iter().zip(&names) {
            let what = write(one, path).with_context(|| path.display().to_string())?;
            let killed = one.facts["written_at"] == "running";
            let why = if killed { "before it was killed".into() } else { ending(&one.facts) };
            eprintln!("poolsim capture: {}: {what}, written {why}", path.display());
        }
        Ok(all.len())
    }

    fn captured(&self) -> anyhow::Result<Vec<Captured>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let snapshot = entry?.path();
            let Some(pid) = snapshot.file_name().and_then(|n| n.to_str()?.strip_suffix(".pickle"))
            else {
                continue;
            };
            let pid = pid.to_string();
            let text = fs::read(self.folder.join(format!("{pid}.json"))).unwrap_or_default();
            let facts = serde_json::from_slice(&text).unwrap_or(Value::Null);
            all.push(Captured { snapshot, facts, pid });
        }
        let rank = |one: &Captured| one.facts["rank"].as_str().and_then(|r| r.parse::<u64>().ok());
        all.sort_by_key(|one| (rank(one), one.pid.len(), one.pid.clone()));
        Ok(all)
    }
}

fn ending(facts: &Value) -> String {
    match facts["written_at"].as_str() {
        Some("exit") => "at its end".into(),
        Some("time") => "while it ran".into(),
        Some(other) => format!("at {other}"),
        None => "at an unknown moment".into(),
    }
}

/// The output's name for one process; with its rank, or its number, for several.
fn names(output: &Path, all: &[Captured]) -> Vec<PathBuf> {
    if let [_] = all {
        return vec![output.to_path_buf()];
    }
    let mut ranks: BTreeMap<&str, usize> = BTreeMap::new();
    for rank in all.iter().filter_map(|one| one.facts["rank"].as_str()) {
        *ranks.entry(rank).or_default() += 1;
    }
    let named = |one: &Captured| {
        let rank = one.facts["rank"].as_str();
        let mark = match rank {
            Some(rank) if ranks[rank] == 1 => format!("rank{rank}"),
            Some(rank) => format!("rank{rank}.pid{}", one.pid),
            None => format!("pid{}", one.pid),
        };
        let name = output.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (stem, ending) = name.split_once('.').unwrap_or((&name, "pickle"));
        output.with_file_name(format!("{stem}.{mark}.{ending}"))
    };
    all.iter().map(named).collect()
}

/// Writes one process's file, and its facts beside it. Returns what it holds.
fn write(one: &Captured, path: &Path) -> anyhow::Result<String> {
    let opened = open(&one.snapshot, &OpenOptions::default())
        .map_err(|error| error.in_file(&one.snapshot))?;
    let Source::Recording(recording) = &opened.source else {
        anyhow::bail!("{}: is no snapshot", one.snapshot.display());
    };
    let what = show_plural(recording.entries.len() as u64, "history entry");
    let is_snapshot = path.extension().is_some_and(|ending| ending == "pickle" || ending == "pkl");
    if is_snapshot {
        // As PyTorch wrote it, byte for byte.
        fs::copy(&one.snapshot, path)?;
    } else {
        convert(&one.snapshot, path)?;
    }
    if let Some(beside) = path_beside(path).filter(|_| is_snapshot && !one.facts.is_null()) {
        fs::write(beside, serde_json::to_vec_pretty(&one.facts)?)?;
    }
    Ok(what)
}

/// The snapshot as requests, in the format that the name asks for. The facts lie beside it and are found there.
fn convert(snapshot: &Path, path: &Path) -> anyhow::Result<()> {
    let exporter = export::find(None, path)?;
    let select = SelectArgs { device: None, recover: false };
    let machine = MachineArgs { device_memory: None, memory_fraction: None };
    let loaded = Input::open(snapshot, &select, &machine, &DeviceProfile::h200())?.load()?;
    let source = loaded.events.into_source();
    export::write_file(&source, exporter, path, OutputOptions { overwrite: true })?;
    Ok(())
}
