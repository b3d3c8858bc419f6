//! The file of `--calls`: every driver call, beside its modelled price.

use anyhow::Context;
use poolsim_real_backend::TimedCall;
use poolsim_sim::DeviceProfile;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Rows of driver calls.
pub struct CallRows {
    path: PathBuf,
    rows: csv::Writer<File>,
}

impl CallRows {
    /// Makes the file, with its header.
    ///
    /// # Errors
    /// Names the file.
    pub fn create(path: &Path) -> anyhow::Result<CallRows> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        let mut rows = CallRows { path: path.to_path_buf(), rows: csv::Writer::from_writer(file) };
        let header = ["policy", "repeat", "event", "call", "bytes", "measured_ns", "modelled_ns"];
        rows.write(&header)?;
        Ok(rows)
    }

    /// Adds the calls of one run. A pool's call counts as one that finds memory: pages that it took are not told apart.
    ///
    /// # Errors
    /// Names the file.
    pub fn add(
        &mut self,
        policy: &str,
        repeat: u32,
        calls: &[TimedCall],
        profile: &DeviceProfile,
    ) -> anyhow::Result<()> {
        for call in calls {
            let row = [
                policy,
                &repeat.to_string(),
                &call.event.to_string(),
                call.op.name(),
                &call.bytes.to_string(),
                &call.time.to_string(),
                &profile.cost(call.op, call.bytes).to_string(),
            ];
            self.write(&row)?;
        }
        self.rows.flush().with_context(|| self.path.display().to_string())
    }

    fn write(&mut self, row: &[&str]) -> anyhow::Result<()> {
        self.rows.write_record(row).with_context(|| self.path.display().to_string())
    }
}
