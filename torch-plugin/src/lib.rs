//! A shared library for `torch.cuda.memory.CUDAPluggableAllocator`: any registered policy inside a real job.
//!
//! `python/poolsim_torch.py` installs it. Environment variables say what it does, and are read at the first call:
//!
//! | variable | meaning |
//! |---|---|
//! | `POOLSIM_POLICY` | the policy, as `--policy` takes it; `pytorch` if it is not set |
//! | `POOLSIM_MEMORY_FRACTION` | share of each device's memory that the job may take |
//! | `POOLSIM_TRACE` | a `.pst` to write when the process ends: what the job asked for |
//! | `POOLSIM_STATS` | a JSON file to write when the process ends: a run record for each device |
//!
//! Only this crate and `real-backend` may hold `unsafe`: the functions here are called from C++.

mod config;
mod oom;
mod plugin;
mod recorder;
mod results;
mod state;

pub use plugin::Plugin;
pub use state::{Adopt, DeviceState};

use std::ffi::c_void;
use std::process::abort;

/// A panic must not reach C++, and memory that a broken policy hands out must not be used.
fn guarded<T>(what: &str, call: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).unwrap_or_else(|_| {
        eprintln!("poolsim: {what} failed as said above; the process cannot go on");
        abort()
    })
}

/// `alloc_fn` of `CUDAPluggableAllocator`. Throws `std::bad_alloc` if the policy refuses.
///
/// # Safety
/// `stream` is a stream of `device`, or null for its default stream.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poolsim_malloc(
    size: isize,
    device: i32,
    stream: *mut c_void,
) -> *mut c_void {
    let size = u64::try_from(size).unwrap_or(0);
    if size == 0 {
        return std::ptr::null_mut();
    }
    let granted = guarded("an allocation", || Plugin::get().malloc(device, size, stream as u64));
    match granted {
        Some(addr) => addr as *mut c_void,
        None => oom::throw_bad_alloc(),
    }
}

/// `free_fn` of `CUDAPluggableAllocator`.
///
/// # Safety
/// `ptr` came from [`poolsim_malloc`] for `device` and was not freed since, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolsim_free(
    ptr: *mut c_void,
    _size: isize,
    device: i32,
    _stream: *mut c_void,
) {
    if !ptr.is_null() {
        guarded("a free", || Plugin::get().free(device, ptr as u64));
    }
}

/// For `set_record_stream_fn`: the block is used on a further stream.
///
/// # Safety
/// `stream` is a stream of the device that `ptr` belongs to, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolsim_record_stream(ptr: *mut c_void, stream: *mut c_void) {
    guarded("record_stream", || Plugin::get().record_stream(ptr as u64, stream as u64));
}

/// For `set_reset_fn`, which `torch.cuda.empty_cache()` calls.
#[unsafe(no_mangle)]
pub extern "C" fn poolsim_empty_cache() {
    guarded("empty_cache", || Plugin::get().empty_cache());
}

/// Bytes held from the device at present and at their peak; 0 for a device without allocations.
#[unsafe(no_mangle)]
pub extern "C" fn poolsim_reserved(device: i32, peak: bool) -> u64 {
    guarded("a question for reserved bytes", || Plugin::get().reserved(device, peak))
}

/// Writes trace and statistics as they are now; the process's end writes them again.
#[unsafe(no_mangle)]
pub extern "C" fn poolsim_write() {
    guarded("writing the results", || Plugin::get().write());
}
