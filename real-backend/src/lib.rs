//! The [`Device`](poolsim_core::Device) trait over the CUDA driver. The only crate that may hold `unsafe`.
//!
//! The driver is loaded when it is first asked for, so this builds and runs on machines without CUDA; there
//! every call says [`Unsupported`](poolsim_core::DeviceError::Unsupported).
//!
//! * [`CudaDevice`] is a GPU for any policy: the same code that ran in simulation takes real memory.
//! * [`DriverPool`] is a real `cudaMallocAsync` pool behind the policies' trait, [`DriverMalloc`] bare `cudaMalloc`.
//! * [`calibrate()`] measures what memory calls cost, by size and state.
//! * [`Timed`] measures what a policy's calls cost, and [`CudaDevice`] what the driver calls under them cost.

mod calibrate;
mod call;
mod calls;
pub mod device;
pub mod driver;
mod fences;
mod gates;
mod kernels;
pub mod latency;
mod live;
mod metered;
mod pace;
pub mod plain;
pub mod pool;
mod streams;
pub mod timed;
pub mod work;

pub use calibrate::{Calibration, Sample, State, calibrate};
pub use call::{Context, Entered};
pub use calls::{CallLog, TimedCall};
pub use device::{CudaDevice, Mode};
pub use gates::Gates;
pub use latency::{Latency, timer_cost};
pub use metered::Metered;
pub use pace::driver_pace;
pub use plain::DriverMalloc;
pub use pool::{DriverPool, PoolOptions};
pub use streams::StreamTable;
pub use timed::Timed;
pub use work::{Busy, WorkOptions, Worked};
