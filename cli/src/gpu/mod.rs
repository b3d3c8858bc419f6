//! Runs on a real GPU.

pub mod args;
mod calls;
mod interval;
mod pass;
mod run;

pub use args::{GpuArgs, Target};
pub use pass::Kind;
pub use run::{Driver, OnGpu};

use crate::output::Usage;
use anyhow::Context as _;
use poolsim_core::{Bytes, Device, DeviceCaps, DeviceError};
use poolsim_real_backend::driver::{self, Machine};
use poolsim_real_backend::{Context, CudaDevice, Mode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The driver and its GPUs.
///
/// # Errors
/// Says in one sentence what is missing and how to check it.
pub fn machine() -> anyhow::Result<Machine> {
    driver::list_gpus().map_err(missing)
}

/// `error`, with how to check what is missing.
fn missing(error: DeviceError) -> anyhow::Error {
    match error {
        DeviceError::Unsupported(what) => anyhow::anyhow!(
            "no GPU can be used here: {what}; check that `nvidia-smi` lists one (simulating needs none)"
        ),
        other => other.into(),
    }
}

/// A GPU that is held for the time of a command.
pub struct Gpu {
    /// The driver's number of it.
    pub index: u32,
    /// What it is.
    pub caps: DeviceCaps,
    /// The newest CUDA version that the driver supports.
    pub cuda: String,
    context: Arc<Context>,
    stop: Arc<AtomicBool>,
}

impl Gpu {
    /// Takes hold of a GPU. From now on Ctrl-C ends runs instead of the process.
    ///
    /// # Errors
    /// There is no driver or no such GPU: one sentence says what is missing and how to check it.
    pub fn open(args: &GpuArgs) -> anyhow::Result<Gpu> {
        let index = args.gpu.unwrap_or(0);
        let machine = machine()?;
        if usize::try_from(index).is_ok_and(|i| i >= machine.gpus.len()) {
            let text = format!(
                "--gpu {index}: the driver lists {} (`poolsim devices` shows them)",
                machine.gpus.len()
            );
            return Err(Usage(text).into());
        }
        let device = CudaDevice::new(index, Mode::default()).map_err(missing)?;
        let stop = Arc::new(AtomicBool::new(false));
        let on_signal = Arc::clone(&stop);
        ctrlc::set_handler(move || {
            if on_signal.swap(true, Ordering::Relaxed) {
                // Asked twice: the driver takes everything back when the process ends.
                std::process::exit(130);
            }
        })
        .context("Ctrl-C cannot be watched for")?;
        Ok(Gpu {
            index,
            caps: device.caps().clone(),
            cuda: machine.cuda,
            context: Arc::clone(device.context()),
            stop,
        })
    }

    /// Free memory of the device.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn free(&self) -> anyhow::Result<Bytes> {
        Ok(self.context.memory()?.0)
    }
}
