//! `poolsim capture --driver`: the memory calls of any CUDA program.

use super::job::Job;
use crate::args::{CaptureArgs, Via};
use crate::output::{Ending, Usage};
use anyhow::{Context, anyhow};
use poolsim_core::error::TraceErrorKind;
use poolsim_core::units::ShowBytes;
use poolsim_reports::quantity::show_plural;
use poolsim_traces::export::{self, Exporter, OutputOptions};
use poolsim_traces::{OpenOptions, Source, open};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The capture library's file name.
const LIBRARY: &str = "libpoolsim_capture.so";

/// Runs the command under the capture library, and ends as it does.
///
/// # Errors
/// No library, a place that cannot be written, a command that cannot be started.
pub fn run(args: &CaptureArgs) -> anyhow::Result<Ending> {
    let exporter = export::find(None, &args.output).map_err(|e| Usage(e.to_string()))?;
    let logs = Logs::beside(&args.output)?;
    let environment = environment(args, &logs)?;
    let (program, arguments) = args.command.split_first().expect("the command line has one");
    let job = Job { program, arguments, environment };
    let code = job.run().with_context(|| program.to_string_lossy().into_owned())?;
    if let Err(error) = logs.convert(args, exporter) {
        eprintln!("poolsim capture: {error:#}");
    }
    Ok(Ending::Job(code))
}

fn environment(args: &CaptureArgs, logs: &Logs) -> anyhow::Result<Vec<(&'static str, OsString)>> {
    let library = library()?;
    let mut variables = vec![("POOLSIM_CALLS", logs.prefix.clone().into_os_string())];
    if args.via != Via::Preload {
        let other = env::var_os("CUDA_INJECTION64_PATH").filter(|path| !path.is_empty());
        if let Some(other) = other {
            return Err(Usage(format!(
                "CUDA_INJECTION64_PATH is set to {}: another tool wants to be loaded into the program, and CUDA loads one; \
                 unset it, or give --via preload",
                other.to_string_lossy()
            ))
            .into());
        }
        variables.push(("CUDA_INJECTION64_PATH", library.clone().into_os_string()));
    }
    let only = match args.via {
        Via::Auto => "",
        Via::Cupti => "cupti",
        Via::Preload => "preload",
    };
    variables.push(("POOLSIM_CAPTURE_VIA", only.into()));
    if args.via != Via::Cupti {
        let mut list = library.into_os_string();
        if let Some(before) = env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
            list.push(":");
            list.push(before);
        }
        variables.push(("LD_PRELOAD", list));
    }
    Ok(variables)
}

/// The capture library: what `POOLSIM_CAPTURE_LIBRARY` names, or the one beside this program.
fn library() -> anyhow::Result<PathBuf> {
    let named = env::var_os("POOLSIM_CAPTURE_LIBRARY").filter(|name| !name.is_empty());
    let path = match &named {
        Some(named) => PathBuf::from(named),
        None => env::current_exe().context("this program's own place")?.with_file_name(LIBRARY),
    };
    fs::canonicalize(&path).map_err(|e| {
        anyhow!(
            "{}: the capture library is not there ({e}); build it with `cargo build --release -p poolsim-capture`, and keep \
             {LIBRARY} beside poolsim or name it with POOLSIM_CAPTURE_LIBRARY",
            path.display()
        )
    })
}

/// The logs of one capture: `prefix.N.calls` is that of process N.
struct Logs {
    prefix: PathBuf,
}

impl Logs {
    /// Beside the trace, under a name that no other capture has.
    fn beside(output: &Path) -> anyhow::Result<Logs> {
        let folder = match output.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        // The command may change its folder.
        let folder = fs::canonicalize(folder).with_context(|| folder.display().to_string())?;
        let mut name = output.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}", std::process::id()));
        Ok(Logs { prefix: folder.join(name) })
    }

    /// The logs with the numbers of their processes, in order of the numbers.
    fn found(&self) -> anyhow::Result<Vec<(u32, PathBuf)>> {
        let folder = self.prefix.parent().expect("made with one");
        let start = format!("{}.", self.prefix.file_name().unwrap_or_default().to_string_lossy());
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let number = name.strip_prefix(&start).and_then(|rest| rest.strip_suffix(".calls"));
            if let Some(process) = number.and_then(|number| number.parse().ok()) {
                found.push((process, path));
            }
        }
        found.sort();
        Ok(found)
    }

    /// Makes traces of them.
    fn convert(&self, args: &CaptureArgs, exporter: &Exporter) -> anyhow::Result<()> {
        let mut traces = Vec::new();
        let logs = self.found()?;
        for (process, path) in &logs {
            match traces_of(path) {
                Ok(of_process) => {
                    traces.extend(of_process.into_iter().map(|(d, s)| (*process, d, s)))
                }
                Err(Unread::Nothing) => {}
                Err(Unread::Failed(error)) => {
                    return Err(error.context(format!("the log stays at {}", path.display())));
                }
            }
        }
        if traces.is_empty() {
            eprintln!(
                "poolsim capture: nothing to write: {}",
                match logs.len() {
                    0 => "no process started CUDA, or none could be recorded (see above)".into(),
                    n => format!(
                        "{} used CUDA, but asked for no device memory",
                        show_plural(n as u64, "process")
                    ),
                }
            );
        }
        let several = traces.len() > 1;
        for (process, device, source) in &traces {
            let path = if several {
                numbered(&args.output, *process, *device)
            } else {
                args.output.clone()
            };
            export::write_file(source, exporter, &path, OutputOptions { overwrite: true })?;
            let Source::Trace(trace) = source else { unreachable!("a log is read into memory") };
            let via = trace.header.attributes.get("captured through").map_or("", String::as_str);
            eprintln!(
                "poolsim capture: {}: process {process}, device {device}, {}, {}, through {via}",
                path.display(),
                show_plural(trace.events.len() as u64, "event"),
                ShowBytes(fs::metadata(&path)?.len()),
            );
        }
        if several {
            eprintln!(
                "poolsim capture: as one trace: poolsim trace merge TRACE… -o {}",
                args.output.display()
            );
        }
        if !args.keep_calls {
            for (_, path) in &logs {
                fs::remove_file(path).with_context(|| path.display().to_string())?;
            }
        }
        Ok(())
    }
}

/// Why a log gives no trace.
enum Unread {
    /// It holds no request.
    Nothing,
    Failed(anyhow::Error),
}

/// The traces of a log, one for each device that has requests.
fn traces_of(path: &Path) -> Result<Vec<(u32, Source)>, Unread> {
    let read = |device| match open(path, &OpenOptions { device, ..OpenOptions::default() }) {
        Ok(opened) => Ok(Some(opened)),
        Err(e) if e.kind == TraceErrorKind::NoEvents => Ok(None),
        Err(e) => Err(Unread::Failed(e.into())),
    };
    let Some(busiest) = read(None)? else { return Err(Unread::Nothing) };
    let mut traces = Vec::new();
    let chosen = match &busiest.source {
        Source::Trace(trace) => trace.header.device,
        _ => 0,
    };
    for device in busiest.devices.iter().map(|device| device.index).filter(|d| *d != chosen) {
        if let Some(opened) = read(Some(device))? {
            traces.push((device, opened.source));
        }
    }
    traces.insert(0, (chosen, busiest.source));
    Ok(traces)
}

/// `job.pst` of process 12 as `job.pid12.pst`; of its device 1 as `job.pid12.gpu1.pst`.
fn numbered(output: &Path, process: u32, device: u32) -> PathBuf {
    let name = output.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (stem, ending) = name.split_once('.').unwrap_or((&name, "pst"));
    let gpu = if device == 0 { String::new() } else { format!(".gpu{device}") };
    output.with_file_name(format!("{stem}.pid{process}{gpu}.{ending}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_several_processes() {
        let named = |device| numbered(Path::new("runs/job.pst.zst"), 12, device);
        assert_eq!(named(0), Path::new("runs/job.pid12.pst.zst"));
        assert_eq!(named(1), Path::new("runs/job.pid12.gpu1.pst.zst"));
    }
}
