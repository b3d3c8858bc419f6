//! Any file to a trace that can be replayed, with what lies beside it.

use crate::args::{MachineArgs, SelectArgs};
use crate::lacks::lacks;
use crate::machine::{Machine, Said};
use crate::sidecar::Sidecar;
use anyhow::Context;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{Action, EventSource, Recording, Trace, TraceError, TraceHeader, TraceReader};
use poolsim_policies::pytorch::Config;
use poolsim_policies::pytorch::infer::{Inferred, infer};
use poolsim_policies::{PolicySpec, Registry};
use poolsim_sim::DeviceProfile;
use poolsim_traces::{DeviceSummary, OpenOptions, PstReader, Source};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file, read.
pub struct Input {
    /// As given.
    pub path: PathBuf,
    /// Name of its format.
    pub format: &'static str,
    /// Its outermost compression.
    pub compression: Option<&'static str>,
    /// The devices that it holds.
    pub devices: Vec<DeviceSummary>,
    /// What it holds of the one that was chosen.
    pub source: Source,
    /// What lies beside it.
    pub sidecar: Option<Sidecar>,
    /// The device to simulate.
    pub machine: Machine,
}

impl Input {
    /// Reads a file and its sidecar.
    ///
    /// # Errors
    /// Names the file, the place in it and what to do.
    pub fn open(
        path: &Path,
        select: &SelectArgs,
        machine: &MachineArgs,
        profile: &DeviceProfile,
    ) -> anyhow::Result<Input> {
        let options = OpenOptions { device: select.device, recover: select.recover };
        let mut opened = poolsim_traces::open(path, &options)?;
        let sidecar = Sidecar::beside(path)?;
        let machine =
            Machine::new(machine, sidecar.as_ref(), header(&opened.source), &profile.caps);
        match &mut opened.source {
            Source::Recording(recording) => {
                complete(&mut recording.header, &machine, sidecar.as_ref())
            }
            Source::Trace(trace) => complete(&mut trace.header, &machine, sidecar.as_ref()),
            // Read from the file as often as it is wanted, and written by ourselves: it has what was known.
            Source::Pst(_) => {}
        }
        Ok(Input {
            path: opened.path,
            format: opened.format,
            compression: opened.compression,
            devices: opened.devices,
            source: opened.source,
            sidecar,
            machine,
        })
    }

    /// What the file says of itself.
    pub fn header(&self) -> &TraceHeader {
        header(&self.source)
    }

    /// The requests; those of a recording are inferred from what the allocator did.
    ///
    /// # Errors
    /// The file holds no history, or its settings cannot be understood.
    pub fn load(self) -> anyhow::Result<Loaded> {
        let events = match self.source {
            Source::Recording(recording) => {
                return from_recording(*recording, self.path, self.machine);
            }
            Source::Trace(trace) => Events::Memory(Arc::new(*trace)),
            Source::Pst(reader) => Events::Stream(reader),
        };
        let digest = events.digest()?;
        let remarks = lacks(events.header()).into_iter().map(String::from).collect();
        Ok(Loaded { path: self.path, machine: self.machine, events, digest, remarks })
    }
}

/// Writes what is known from elsewhere into a header, so that whatever is made of the trace keeps it.
fn complete(header: &mut TraceHeader, machine: &Machine, sidecar: Option<&Sidecar>) {
    if machine.memory_said != Said::Profile {
        header.device_memory = Some(machine.caps.total);
    }
    header.memory_fraction = machine.memory_fraction;
    let Some(sidecar) = sidecar else { return };
    if header.device_name.is_none() {
        header.device_name.clone_from(&sidecar.device_name);
    }
    if header.framework.is_none() {
        header.framework = sidecar.torch.as_ref().map(|version| format!("torch {version}"));
    }
    if header.settings.is_none() {
        header.settings.clone_from(&sidecar.conf);
    }
}

fn header(source: &Source) -> &TraceHeader {
    match source {
        Source::Recording(recording) => &recording.header,
        Source::Trace(trace) => &trace.header,
        Source::Pst(reader) => reader.header(),
    }
}

/// Where events come from, as often as they are wanted.
pub enum Events {
    /// From memory.
    Memory(Arc<Trace>),
    /// From a file, in constant memory.
    Stream(PstReader),
}

impl Events {
    /// A source at the first event.
    pub fn source(&self) -> Box<dyn EventSource> {
        match self {
            Events::Memory(trace) => Box::new(TraceReader::new(Arc::clone(trace))),
            Events::Stream(reader) => Box::new(reader.reopen()),
        }
    }

    /// What the trace says of itself.
    pub fn header(&self) -> &TraceHeader {
        match self {
            Events::Memory(trace) => &trace.header,
            Events::Stream(reader) => reader.header(),
        }
    }

    /// The same as what a file holds.
    pub fn into_source(self) -> Source {
        match self {
            Events::Memory(trace) => Source::Trace(Box::new(Arc::unwrap_or_clone(trace))),
            Events::Stream(reader) => Source::Pst(reader),
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        match self {
            Events::Memory(trace) => trace.events.len() as u64,
            Events::Stream(reader) => reader.trailer().events,
        }
    }

    fn digest(&self) -> Result<String, TraceError> {
        Ok(match self {
            Events::Memory(_) => poolsim_traces::digest(&mut *self.source())?.to_string(),
            Events::Stream(reader) => reader.digest().to_string(),
        })
    }
}

/// A trace that can be replayed.
pub struct Loaded {
    /// Where it came from.
    pub path: PathBuf,
    /// The device to simulate.
    pub machine: Machine,
    /// Its events.
    pub events: Events,
    /// Digest of the events.
    pub digest: String,
    /// What a reader must know: how the requests were found out, and what their source could not see.
    pub remarks: Vec<String>,
}

/// The settings that a recording or trace says were in force.
pub fn recorded_spec(header: &TraceHeader) -> anyhow::Result<Option<PolicySpec>> {
    let Some(settings) = &header.settings else { return Ok(None) };
    let spec = settings.parse().with_context(|| {
        format!("the settings in the trace are {settings:?}; name a --policy instead")
    })?;
    Ok(Some(spec))
}

/// The settings of a recording as PyTorch's allocator takes them.
///
/// # Errors
/// They are not PyTorch's, or contradict each other.
pub fn recorded_config(header: &TraceHeader) -> anyhow::Result<Config> {
    let Some(spec) = recorded_spec(header)? else { return Ok(Config::default()) };
    let resolved = Registry::builtin().resolve(&spec)?;
    anyhow::ensure!(
        resolved.def.name == "pytorch",
        "the trace was recorded under `{}`, whose recordings do not show requests",
        resolved.def.name
    );
    Ok(Config::from_params(&resolved.params)?)
}

/// Whether a recording holds more than a state.
pub fn has_history(recording: &Recording) -> bool {
    recording.entries.iter().any(|entry| entry.action != Action::Snapshot)
}

/// Infers the requests of a recording.
///
/// # Errors
/// As [`Input::load`].
pub fn infer_requests(recording: &Recording) -> anyhow::Result<Inferred> {
    if !has_history(recording) {
        let what = "holds a state but no history, so there is nothing to replay (`poolsim info` describes the \
                    state, and `poolsim trace merge STATE TRACE` starts a trace from it); record a history from the \
                    start of the program (docs/formats.md says how)";
        return Err(TraceError::new(TraceErrorKind::NoEvents, Place::Whole, what).into());
    }
    let config = recorded_config(&recording.header)?;
    Ok(infer(recording, &config))
}

/// `error` with the file's name, which it may have already.
pub fn in_file(error: anyhow::Error, path: &Path) -> anyhow::Error {
    match error.downcast::<TraceError>() {
        Ok(error) => error.in_file(path).into(),
        Err(error) => error.context(path.display().to_string()),
    }
}

fn from_recording(
    recording: Recording,
    path: PathBuf,
    mut machine: Machine,
) -> anyhow::Result<Loaded> {
    let inferred = infer_requests(&recording).map_err(|e| in_file(e, &path))?;
    machine.adopt(&inferred.trace.header);
    drop(recording);
    let events = Events::Memory(Arc::new(inferred.trace));
    let digest = events.digest()?;
    let mut remarks = inferred.notes;
    remarks.extend(lacks(events.header()).into_iter().map(String::from));
    Ok(Loaded { path, machine, events, digest, remarks })
}
