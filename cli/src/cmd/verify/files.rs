//! Which files to check.

use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};

/// A file to check.
pub struct Candidate {
    /// Where it is.
    pub path: PathBuf,
    /// Found in a folder, not named: that it holds no history is no error then.
    pub found: bool,
}

/// The files named, and those in the folders named, in order.
///
/// # Errors
/// A folder that cannot be read or holds no snapshots.
pub fn expand(named: &[PathBuf]) -> anyhow::Result<Vec<Candidate>> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(Candidate { path: path.clone(), found: false });
            continue;
        }
        let mut found = Vec::new();
        walk(path, &mut found)?;
        anyhow::ensure!(
            !found.is_empty(),
            "{}: no snapshots (*.pickle, also .gz, .zst, .xz) in this folder",
            path.display()
        );
        files.extend(found.into_iter().map(|path| Candidate { path, found: true }));
    }
    Ok(files)
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut entries: Vec<_> = entries.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        // Links to folders are not followed: they may lead in circles.
        if entry.file_type()?.is_dir() {
            walk(&path, found)?;
        } else if is_snapshot(&path) {
            found.push(path);
        }
    }
    Ok(())
}

fn is_snapshot(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|n| n.to_str()) else { return false };
    let plain =
        [".zst", ".gz", ".xz"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    plain.ends_with(".pickle") || plain.ends_with(".pkl")
}
