//! Device profiles from files.

use anyhow::Context;
use poolsim_sim::DeviceProfile;
use std::path::Path;

/// The profile that `calibrate` wrote to `path`, or the built-in one.
///
/// # Errors
/// Names the file and what is wrong with it.
pub fn read(path: Option<&Path>) -> anyhow::Result<DeviceProfile> {
    let Some(path) = path else { return Ok(DeviceProfile::h200()) };
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    DeviceProfile::parse(&text).with_context(|| path.display().to_string())
}
