//! The [`Device`](poolsim_core::Device) trait over the CUDA driver. The only crate that may hold `unsafe`.
//!
//! The driver is loaded when it is first asked for, so this builds and runs on machines without CUDA; there
//! every call says [`Unsupported`](poolsim_core::DeviceError::Unsupported). What exists so far is the presence
//! check, [`driver::list_gpus`]. The device itself is not written yet.

pub mod driver;
