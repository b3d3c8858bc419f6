//! The simulated device and the replay engine.
#![forbid(unsafe_code)]
