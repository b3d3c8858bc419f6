//! Which device a context is of.

use crate::resolve;
use poolsim_traces::calls::NO_DEVICE;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

/// The contexts met first, as `context << 8 | device`: CUDA's contexts are pointers below 2^56.
static KNOWN: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// The index of a context's device, or of the current context if it is null.
///
/// The current context is the context of every call that is recorded, so it is asked for its device once.
pub fn of(context: *const c_void) -> u8 {
    let key = context.addr() as u64;
    if key != 0 {
        for slot in &KNOWN {
            let known = slot.load(Ordering::Relaxed);
            if known >> 8 == key {
                return known as u8;
            }
            if known == 0 {
                break;
            }
        }
    }
    let device = current();
    if key != 0 && device != NO_DEVICE {
        let entry = key << 8 | u64::from(device);
        let _ = KNOWN.iter().find(|slot| {
            slot.compare_exchange(0, entry, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        });
    }
    device
}

fn current() -> u8 {
    let Some(found) = resolve::driver(c"cuCtxGetDevice") else { return NO_DEVICE };
    // SAFETY: the driver's function of that name has this signature and writes one number.
    let (answer, device) = unsafe {
        let get: unsafe extern "C" fn(*mut c_int) -> c_int = std::mem::transmute(found);
        let mut device: c_int = -1;
        (get(&raw mut device), device)
    };
    if answer == 0 { u8::try_from(device).unwrap_or(NO_DEVICE) } else { NO_DEVICE }
}
