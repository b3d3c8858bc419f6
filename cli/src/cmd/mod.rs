//! A module per command.

pub mod devices;
pub mod policies;
