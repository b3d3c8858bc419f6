//! Device profiles from files.

use anyhow::Context;
use poolsim_sim::DeviceProfile;
use std::path::Path;

/// Reads a profile that `calibrate` wrote.
///
/// # Errors
/// Names the file and what is wrong with it.
pub fn read(path: &Path) -> anyhow::Result<DeviceProfile> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    DeviceProfile::parse(&text).with_context(|| path.display().to_string())
}
