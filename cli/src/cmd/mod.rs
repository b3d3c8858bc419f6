//! A module per command.

pub mod advise;
pub mod bench;
pub mod bound;
pub mod calibrate;
pub mod capture;
pub mod check;
pub mod compare;
pub mod convert;
pub mod devices;
pub mod explain;
pub mod frontier;
pub mod info;
pub mod manual;
pub mod new_policy;
pub mod policies;
pub mod replay;
pub mod report;
pub mod sweep;
pub mod synth;
pub mod trace;
pub mod verify;
pub mod waterfall;
