//! A module per command.

pub mod devices;
