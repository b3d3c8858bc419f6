//! `poolsim capture`: records a PyTorch job, or any CUDA program, from outside, with nothing changed in it.

mod driver;
mod job;
mod spool;

use crate::args::{CaptureArgs, Every};
use crate::output::{Ending, Usage};
use anyhow::Context;
use spool::Spool;
use std::fs;
use std::path::{Path, PathBuf};

/// What Python imports at its start.
const HOOK: &str = include_str!("capture/hook.py");

/// Runs the job and makes its files. Ends as the job does: a capture that fails is said and changes nothing.
pub fn run(args: &CaptureArgs) -> anyhow::Result<Ending> {
    if args.driver {
        return driver::run(args);
    }
    if let Some(folder) = &args.finish {
        let spool = Spool::open(folder)?;
        let made = spool.finish(&args.output)?;
        anyhow::ensure!(made > 0, "{}: no process wrote a snapshot there", folder.display());
        return Ok(Ending::Fine);
    }
    let (program, arguments) = args.command.split_first().expect("the command line has one");
    let spool = match Spool::create(&folder_for(&args.output)) {
        Ok(spool) => spool,
        // Nothing was started yet: better to stop here than to run a job for days without a trace of it.
        Err(error) => return Err(Usage(format!("{error:#}")).into()),
    };
    let hooked = hook(&spool).with_context(|| spool.folder().display().to_string())?;
    let job = job::Job { program, arguments, environment: environment(args, &spool, &hooked) };
    let code = job.run();
    let code = match code {
        Ok(code) => code,
        Err(error) => {
            spool.remove();
            return Err(error).with_context(|| program.to_string_lossy().into_owned());
        }
    };
    fs::remove_dir_all(&hooked).unwrap_or_default();
    match spool.finish(&args.output) {
        Ok(0) => {
            eprintln!("poolsim capture: {}", spool.why_nothing());
            spool.remove();
        }
        Ok(_) => spool.remove(),
        Err(error) => eprintln!(
            "poolsim capture: {error:#}; what was captured lies in {}: `poolsim capture --finish` makes the files of it",
            spool.folder().display()
        ),
    }
    Ok(Ending::Job(code))
}

/// Where the processes of the job put their snapshots: beside the output, so on the disk that was chosen for it.
fn folder_for(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".capture");
    name.into()
}

/// Writes the module that Python imports at its start, in a folder of its own.
fn hook(spool: &Spool) -> anyhow::Result<PathBuf> {
    let folder = spool.folder().join("python");
    fs::create_dir(&folder)?;
    fs::write(folder.join("sitecustomize.py"), HOOK)?;
    Ok(fs::canonicalize(folder)?)
}

fn environment(
    args: &CaptureArgs,
    spool: &Spool,
    hooked: &Path,
) -> Vec<(&'static str, std::ffi::OsString)> {
    let mut path = hooked.as_os_str().to_owned();
    if let Some(before) = std::env::var_os("PYTHONPATH").filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    let (seconds, steps) = match args.every {
        None => (0, 0),
        Some(Every::Time(time)) => (time.as_secs(), 0),
        Some(Every::Steps(steps)) => (0, steps),
    };
    vec![
        ("PYTHONPATH", path),
        ("POOLSIM_CAPTURE_SPOOL", spool.folder().into()),
        ("POOLSIM_CAPTURE_STACKS", if args.stacks { "1" } else { "0" }.into()),
        ("POOLSIM_CAPTURE_ENTRIES", args.max_entries.to_string().into()),
        ("POOLSIM_CAPTURE_EVERY", seconds.to_string().into()),
        ("POOLSIM_CAPTURE_EVERY_STEPS", steps.to_string().into()),
    ]
}
