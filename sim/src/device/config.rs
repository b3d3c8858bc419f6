//! What a simulated device is to be.

use super::{DeviceProfile, Placement};
use poolsim_core::{Bytes, DeviceCaps};

/// What a [`SimDevice`](super::SimDevice) is to be.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// What it says of itself.
    pub caps: DeviceCaps,
    /// What its calls cost.
    pub profile: DeviceProfile,
    /// Physical memory that calls may take together; `None` for all that `caps` has.
    pub capacity: Option<Bytes>,
    /// Where new ranges go.
    pub placement: Placement,
    /// Whether to keep what policies and engine note.
    pub keep_log: bool,
}

impl SimConfig {
    /// A device as the profile's, with all its memory, placed by the driver model, without a log.
    pub fn new(profile: DeviceProfile) -> Self {
        SimConfig {
            caps: profile.caps.clone(),
            profile,
            capacity: None,
            placement: Placement::Driver,
            keep_log: false,
        }
    }
}
