//! The simulated device and the replay engine.
//!
//! * [`device`]: a GPU that is not there, with measured costs and a measured model of where its driver puts memory.
//! * [`engine`]: the only loop that walks a trace's events.
#![forbid(unsafe_code)]

pub mod device;
pub mod engine;

pub use device::{DeviceProfile, Placement, SimConfig, SimDevice};
pub use engine::{Observer, Outcome, ReplayOptions, RunEnd, Step, Stop, replay};
