//! The simulated device and the replay engine.
//!
//! * [`device`]: a GPU that is not there, with measured costs and a measured model of where its driver puts memory.
//! * [`engine`]: the only loop that walks a trace's events.
//! * [`observe`]: folds over its steps, from peaks to the full decision log.
//! * [`adapt`]: devices over devices: a cap, failures, a tap, a checker.
//! * [`judge`]: an independent judge of what a policy does.
//! * [`bound`]: how little memory a trace could do with.
//! * [`parity`]: does a policy decide what a recorded allocator decided?
#![forbid(unsafe_code)]

pub mod adapt;
pub mod bound;
pub mod device;
pub mod engine;
pub mod judge;
pub mod observe;
pub mod parity;

pub use device::{DeviceProfile, Placement, SimConfig, SimDevice};
pub use engine::{Observer, Outcome, ReplayOptions, RunEnd, Step, Stop, replay};
