//! A shared library that CUDA or the loader puts into any program, and that records the program's memory calls.
//!
//! There are two ways in, and `poolsim capture --driver` prepares both:
//!
//! - **CUPTI** (`cupti.rs`): the driver loads the library that `CUDA_INJECTION64_PATH` names and calls
//!   [`InitializeInjection`]; CUPTI then calls back before and after each memory call, however the program reached the driver.
//! - **Interposition** (`interpose.rs`): where there is no CUPTI, the library, preloaded through `LD_PRELOAD`, stands
//!   before the driver's functions: by their names, in what `dlsym` finds and in what `cuGetProcAddress` gives out.
//!
//! Either way `calls.rs` turns a call's arguments into a [`poolsim_traces::calls::Record`], and `log.rs` puts that into a file
//! through shared memory. The program never waits for a disk, and what was recorded outlives it however it ends.
//!
//! | variable | meaning |
//! |---|---|
//! | `POOLSIM_CALLS` | where the logs go: process N writes `POOLSIM_CALLS.N.calls`. Without it nothing is recorded |
//! | `POOLSIM_CUPTI` | the CUPTI library to load, before all other places |
//! | `POOLSIM_CAPTURE_VIA` | `cupti` or `preload`: only this way in; else the first that works |
//!
//! Whatever fails here says so in one line on standard error, and the program runs on. Only this crate, `real-backend` and
//! `torch-plugin` may hold `unsafe`: it is called by, and calls, C.

mod caller;
mod calls;
mod cupti;
mod device;
mod interpose;
mod log;
mod resolve;
mod used;

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether CUPTI reports the calls; the interposed functions then only pass them on.
static THROUGH_CUPTI: AtomicBool = AtomicBool::new(false);

/// One line on standard error.
fn say(what: &str) {
    eprintln!("poolsim capture (process {}): {what}", std::process::id());
}

/// Which ways in are allowed.
fn may(via: &str) -> bool {
    std::env::var("POOLSIM_CAPTURE_VIA").map_or(true, |asked| asked.is_empty() || asked == via)
}

/// What the CUDA driver calls when it starts, in the library that `CUDA_INJECTION64_PATH` names. 1: all is well; the driver
/// ignores the library otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> std::ffi::c_int {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A panic must not reach the driver.
        let started = std::panic::catch_unwind(start_cupti);
        if started.is_err() {
            say("the start through CUPTI failed as said above; the program runs on without it");
        }
    });
    1
}

fn start_cupti() {
    if !log::wanted() || !may("cupti") {
        return;
    }
    match cupti::subscribe() {
        Ok(version) => {
            THROUGH_CUPTI.store(true, Ordering::Release);
            log::start(&format!("CUPTI, API version {version}"));
        }
        Err(what) if interpose::loaded_first() && may("preload") => {
            say(&format!("no CUPTI ({what}); the driver's functions are interposed instead"));
        }
        Err(what) => say(&format!(
            "nothing is recorded: no CUPTI ({what}), and the library is not preloaded"
        )),
    }
}
