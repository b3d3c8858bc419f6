//! The files of a folder of runs, and their checksums, as `sha256sum` writes and checks them.

use super::DataError;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file of the checksums.
pub(super) const SUMS: &str = "SHA256SUMS";

/// A folder under way.
pub(super) struct Sums {
    folder: PathBuf,
    lines: String,
}

impl Sums {
    /// From here on the folder holds no finished runs.
    pub(super) fn start(folder: &Path) -> Result<Sums, DataError> {
        let path = folder.join(SUMS);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(DataError::Io { path, source: e })
            }
            _ => Ok(Sums { folder: folder.into(), lines: String::new() }),
        }
    }

    /// Writes a file.
    pub(super) fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), DataError> {
        let path = self.folder.join(name);
        std::fs::write(&path, bytes).map_err(|source| DataError::Io { path, source })?;
        self.lines += &format!("{}  {name}\n", sum(bytes));
        Ok(())
    }

    /// Writes the checksums.
    pub(super) fn finish(self) -> Result<(), DataError> {
        let path = self.folder.join(SUMS);
        std::fs::write(&path, self.lines).map_err(|source| DataError::Io { path, source })
    }
}

/// A finished folder.
pub(super) struct Files {
    folder: PathBuf,
    sums: BTreeMap<String, String>,
}

impl Files {
    /// Reads the checksums.
    pub(super) fn open(folder: &Path) -> Result<Files, DataError> {
        let path = folder.join(SUMS);
        let text = std::fs::read_to_string(&path).map_err(|e| {
            let what = format!(
                "no finished runs here ({SUMS}: {e}); `poolsim replay TRACE --out FOLDER` writes them"
            );
            DataError::Table { path: folder.into(), what }
        })?;
        let lines = text.lines().filter_map(|line| line.split_once("  "));
        let sums = lines.map(|(sum, name)| (name.into(), sum.into())).collect();
        Ok(Files { folder: folder.into(), sums })
    }

    /// The bytes of a file as they were written; `None` if it was not.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, DataError> {
        let Some(expected) = self.sums.get(name) else { return Ok(None) };
        let path = self.folder.join(name);
        let bytes =
            std::fs::read(&path).map_err(|source| DataError::Io { path: path.clone(), source })?;
        if sum(&bytes) != *expected {
            let what = format!("damaged: {SUMS} has another checksum; write the runs again");
            return Err(DataError::Table { path, what });
        }
        Ok(Some(bytes))
    }
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
