//! Files to jobs that can be asked what would have saved them.

use crate::args::{MachineArgs, SelectArgs};
use crate::choice::RECORDED;
use crate::load::{Input, recorded_spec};
use crate::machine::{Machine, Said};
use crate::output::Usage;
use poolsim_advice::{Job, Setting, Torch};
use poolsim_core::{Action, Bytes, ConfigError, Recording};
use poolsim_policies::Registry;
use poolsim_sim::DeviceProfile;
use poolsim_traces::Source;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A job with where it came from.
pub struct Asked {
    /// As given.
    pub path: PathBuf,
    /// The job.
    pub job: Job,
    /// Digest of its events.
    pub digest: String,
    /// The machine, in words.
    pub machine: String,
    /// What a reader must know.
    pub remarks: Vec<String>,
    /// Bytes that were taken outside the allocator at the first recorded refusal, where the recording shows one.
    pub outside: Option<Bytes>,
    /// The version of PyTorch that it was recorded with, if it says so.
    pub torch: Option<Torch>,
}

impl Asked {
    /// The same, with refusals in a row counted as the one that they came from.
    pub fn without_further_attempts(self) -> Asked {
        Asked { job: self.job.with_refusals_in_a_row_as_one(), ..self }
    }

    /// The setting to run under: the one asked for, else that of the recording, else PyTorch's defaults.
    ///
    /// # Errors
    /// [`Usage`] for one that does not exist or contradicts itself, or that is not of PyTorch's own allocator.
    pub fn setting(&self, policy: Option<&str>) -> anyhow::Result<Setting> {
        let wrong = |error: ConfigError| Usage(format!("--policy: {error}"));
        let resolved = match (policy, &self.job.recorded) {
            (None | Some(RECORDED), Some(resolved)) => resolved.clone(),
            (None | Some(RECORDED), None) => return Ok(Setting::standard(&self.job)),
            (Some(text), _) => {
                let spec = text.parse().map_err(wrong)?;
                Registry::builtin().resolve(&spec).map_err(wrong)?
            }
        };
        let setting = Setting::of(resolved, &self.job).map_err(wrong)?;
        if !setting.is_native() {
            let text = format!(
                "this is about PyTorch's own allocator, not about `{}`; `poolsim replay` and `waterfall` take any policy",
                setting.resolved.def.name
            );
            return Err(Usage(text).into());
        }
        Ok(setting)
    }
}

/// What all files of a command share.
pub struct Files<'a> {
    /// Which part of a file.
    pub select: &'a SelectArgs,
    /// What flags say of the machine.
    pub machine: &'a MachineArgs,
    /// Bytes that the job can have.
    pub capacity: Option<Bytes>,
    /// What device calls cost.
    pub profile: &'a DeviceProfile,
}

impl Files<'_> {
    /// Reads one file.
    ///
    /// # Errors
    /// As [`Input::open`] and [`Input::load`]; recorded settings that are not legal.
    pub fn read(&self, path: &Path) -> anyhow::Result<Asked> {
        let input = Input::open(path, self.select, self.machine, self.profile)?;
        let outside = match &input.source {
            Source::Recording(recording) => outside(recording, &input.machine),
            _ => None,
        };
        let loaded = input.load()?;
        let header = loaded.events.header();
        let recorded = match recorded_spec(header)? {
            Some(spec) => Some(Registry::builtin().resolve(&spec)?),
            None => None,
        };
        let said = header.attributes.get("capacity").and_then(|text| text.parse().ok());
        let torch = header.framework.as_deref().and_then(Torch::in_text);
        let job = Job {
            caps: loaded.machine.caps.clone(),
            memory_fraction: loaded.machine.memory_fraction,
            capacity: self.capacity.or(said),
            profile: self.profile.clone(),
            recorded,
            trace: Arc::new(loaded.events.into_source().into_trace()?),
        };
        let machine = loaded.machine.words();
        let (digest, remarks) = (loaded.digest, loaded.remarks);
        Ok(Asked { path: loaded.path, job, digest, machine, remarks, outside, torch })
    }

    /// Reads a file, or every trace of a folder in the order of their names.
    ///
    /// # Errors
    /// As [`Files::read`]; a folder without traces.
    pub fn read_all(&self, path: &Path) -> anyhow::Result<Vec<Asked>> {
        if !path.is_dir() {
            return Ok(vec![self.read(path)?]);
        }
        let files = traces_in(path)?;
        anyhow::ensure!(
            !files.is_empty(),
            "{}: the folder holds no trace; give a folder with one snapshot for each rank",
            path.display()
        );
        files.iter().map(|file| self.read(file)).collect()
    }
}

/// What the device lacked at the first recorded refusal beside what the allocator held: CUDA context, libraries, other
/// processes. Unknown where nothing says how large the device is.
fn outside(recording: &Recording, machine: &Machine) -> Option<Bytes> {
    if machine.memory_said == Said::Profile {
        return None;
    }
    let mut held = i128::from(recording.heap.reserved());
    let mut found = None;
    // Backwards from the final heap, as the first one may not have been empty.
    for entry in recording.entries.iter().rev() {
        let size = i128::from(entry.size);
        match entry.action {
            Action::SegmentAlloc | Action::SegmentMap => held -= size,
            Action::SegmentFree | Action::SegmentUnmap => held += size,
            Action::Oom => found = Some((held, entry.addr)),
            _ => {}
        }
    }
    let (held, free) = found?;
    let outside = i128::from(machine.caps.total) - held - i128::from(free);
    Bytes::try_from(outside).ok()
}

/// Endings of the files that are traces, before any compression.
const ENDINGS: [&str; 4] = [".pickle", ".pkl", ".pst", ".jsonl"];

fn traces_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let is_trace = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let plain =
            [".zst", ".gz", ".xz"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        ENDINGS.iter().any(|end| plain.ends_with(end))
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        files.push(entry?.path());
    }
    files.retain(|path| path.is_file() && is_trace(path));
    files.sort_by_key(|path| natural(path));
    Ok(files)
}

/// The parts of a name, numbers as numbers: rank 10 comes after rank 9.
fn natural(path: &Path) -> Vec<(String, u64)> {
    let name = path.display().to_string();
    let mut parts = vec![(String::new(), 0u64)];
    let mut in_number = false;
    for c in name.chars() {
        let last = parts.last_mut().expect("there is a first part");
        match c.to_digit(10) {
            Some(digit) => {
                last.1 = last.1.saturating_mul(10).saturating_add(u64::from(digit));
                in_number = true;
            }
            None if in_number => {
                parts.push((c.to_string(), 0));
                in_number = false;
            }
            None => last.0.push(c),
        }
    }
    parts
}
