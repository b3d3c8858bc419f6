//! The one file over the dynamically loaded driver library.

use cudarc::driver::{result, sys};
use poolsim_core::{Bytes, DeviceError};

/// A GPU, as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// The driver's number of the device.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Total memory.
    pub total: Bytes,
    /// Whether `cudaMallocAsync` pools are there.
    pub memory_pools: bool,
    /// Whether address ranges can be reserved and mapped page by page (`cuMemAddressReserve`).
    pub virtual_memory: bool,
}

/// The driver and its GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The newest CUDA version that the driver supports, as in `13.0`.
    pub cuda: String,
    /// The driver's own version, as in `580.159.04`, where the kernel module says it.
    pub version: Option<String>,
    /// The GPUs, in the driver's order.
    pub gpus: Vec<Gpu>,
}

/// Where the kernel module says its version, on Linux.
const MODULE: &str = "/proc/driver/nvidia/version";

/// The version in the module's text: the first word that starts with a digit and has a dot.
fn module_version(text: &str) -> Option<String> {
    let is_version =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    text.lines().next()?.split_whitespace().find(is_version).map(String::from)
}

/// Asks the driver for its GPUs. No context is made and no memory taken.
///
/// # Errors
/// `Unsupported` if there is no driver library or no GPU; `Driver` if a driver call fails.
pub fn list_gpus() -> Result<Machine, DeviceError> {
    // SAFETY: loads a shared library by its well-known name and drops it again; the library's load-time code is
    // the vendor's driver, which any CUDA program runs. Without this check the first call below would panic.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::Unsupported(
            "the NVIDIA driver library (libcuda.so.1) could not be loaded".into(),
        ));
    }
    result::init().map_err(|e| failed("cuInit", e))?;
    let count = result::device::get_count().map_err(|e| failed("cuDeviceGetCount", e))?;
    if count == 0 {
        return Err(DeviceError::Unsupported("the NVIDIA driver reports no GPU".into()));
    }
    let gpus = (0..count).map(describe).collect::<Result<_, _>>()?;
    let version = std::fs::read_to_string(MODULE).ok().as_deref().and_then(module_version);
    Ok(Machine { cuda: cuda_version()?, version, gpus })
}

fn cuda_version() -> Result<String, DeviceError> {
    let mut version = 0;
    // SAFETY: the library is present (checked by the caller) and the pointer is to a live integer.
    unsafe { sys::cuDriverGetVersion(&mut version) }
        .result()
        .map_err(|e| failed("cuDriverGetVersion", e))?;
    Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
}

fn describe(ordinal: i32) -> Result<Gpu, DeviceError> {
    use sys::CUdevice_attribute as Attribute;
    let device = result::device::get(ordinal).map_err(|e| failed("cuDeviceGet", e))?;
    let name = result::device::get_name(device).map_err(|e| failed("cuDeviceGetName", e))?;
    // SAFETY: `device` is a handle that the driver just gave.
    let total =
        unsafe { result::device::total_mem(device) }.map_err(|e| failed("cuDeviceTotalMem", e))?;
    let has = |attribute| {
        // SAFETY: as above.
        unsafe { result::device::get_attribute(device, attribute) }
            .map(|value| value != 0)
            .map_err(|e| failed("cuDeviceGetAttribute", e))
    };
    Ok(Gpu {
        index: ordinal.unsigned_abs(),
        name,
        total: total as Bytes,
        memory_pools: has(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)?,
        virtual_memory: has(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)?,
    })
}

fn failed(call: &'static str, error: result::DriverError) -> DeviceError {
    DeviceError::Driver { call, message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_the_kernel_module() {
        let text =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build";
        assert_eq!(module_version(text), Some("580.159.04".into()));
        assert_eq!(module_version("no version here"), None);
    }

    #[test]
    fn a_machine_without_a_driver_is_told_so_and_one_with_gpus_lists_them() {
        match list_gpus() {
            Ok(machine) => {
                assert!(machine.gpus.iter().all(|gpu| gpu.total > 0 && !gpu.name.is_empty()));
            }
            Err(DeviceError::Unsupported(what)) => {
                eprintln!("SKIPPED: no GPU here, nothing was checked against a driver ({what})");
            }
            Err(other) => panic!("neither GPUs nor a clear refusal: {other}"),
        }
    }
}
