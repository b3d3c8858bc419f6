//! `poolsim report`: kept runs as a page, tables and figures.

use crate::args::ReportArgs;
use crate::output::{Ending, Usage};
use poolsim_reports::data::RunSet;
use poolsim_reports::report::{Target, render};
use std::fs;
use std::path::PathBuf;

/// Reads the runs and writes every report.
pub fn run(args: &ReportArgs) -> anyhow::Result<Ending> {
    let targets = targets(&args.outputs)?;
    let mut sets = Vec::new();
    for folder in &args.runs {
        let name =
            folder.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        sets.push((name, RunSet::read(folder)?));
    }
    write(&RunSet::merge(sets), &targets)?;
    Ok(Ending::Fine)
}

/// What to write, before any work is done.
///
/// # Errors
/// [`Usage`] for an ending or a figure that does not exist.
pub fn targets(paths: &[PathBuf]) -> anyhow::Result<Vec<Target>> {
    paths.iter().map(|path| Target::new(path).map_err(|words| Usage(words).into())).collect()
}

/// Writes reports of runs.
///
/// # Errors
/// Those of the files and of drawing.
pub fn write(set: &RunSet, targets: &[Target]) -> anyhow::Result<()> {
    for target in targets {
        for (path, bytes) in render(set, target)? {
            let at = |e: std::io::Error| anyhow::anyhow!("{}: {e}", path.display());
            if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                fs::create_dir_all(folder).map_err(at)?;
            }
            fs::write(&path, bytes).map_err(at)?;
        }
    }
    Ok(())
}
