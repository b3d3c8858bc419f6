//! The process's allocator: every device, and what happens at the end.

use crate::config::Config;
use crate::results;
use crate::state::DeviceState;
use poolsim_core::{Bytes, DevAddr, StreamId};
use poolsim_real_backend::{CudaDevice, Mode};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

unsafe extern "C" {
    fn atexit(callback: extern "C" fn()) -> i32;
}

/// Most devices of a process.
const DEVICES: usize = 64;

/// The allocator of this process.
pub struct Plugin {
    config: Config,
    devices: [OnceLock<Mutex<DeviceState<CudaDevice>>>; DEVICES],
}

fn adopt(device: &CudaDevice, id: StreamId, handle: u64) {
    device.streams().adopt(id, handle);
}

extern "C" fn at_exit() {
    // Nothing can be done about a panic this late; the message is out.
    let _ = std::panic::catch_unwind(|| Plugin::get().write());
}

impl Plugin {
    /// The one allocator, made at the first call.
    ///
    /// # Panics
    /// If the environment asks for what is not there.
    pub fn get() -> &'static Plugin {
        static PLUGIN: OnceLock<Plugin> = OnceLock::new();
        PLUGIN.get_or_init(|| {
            let config = Config::from_env().unwrap_or_else(|e| panic!("poolsim: {e}"));
            // SAFETY: the callback is a function of this library, which stays loaded until the process ends.
            unsafe { atexit(at_exit) };
            Plugin { config, devices: [const { OnceLock::new() }; DEVICES] }
        })
    }

    fn device(&self, index: i32) -> MutexGuard<'_, DeviceState<CudaDevice>> {
        let slot = usize::try_from(index).ok().and_then(|i| self.devices.get(i));
        let Some(slot) = slot else { panic!("poolsim: there is no device {index}") };
        let state = slot.get_or_init(|| {
            let mode = Mode { real_fences: true, keep_log: true, ..Mode::default() };
            let device = CudaDevice::new(index.unsigned_abs(), mode)
                .unwrap_or_else(|e| panic!("poolsim: device {index}: {e}"));
            let Config { policy, memory_fraction, trace, .. } = &self.config;
            let state = DeviceState::new(device, adopt, policy, *memory_fraction, trace.is_some())
                .unwrap_or_else(|e| panic!("poolsim: POOLSIM_POLICY: {e}"));
            Mutex::new(state)
        });
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Devices that something was allocated on.
    fn used(&self) -> impl Iterator<Item = (usize, MutexGuard<'_, DeviceState<CudaDevice>>)> {
        self.devices.iter().enumerate().filter_map(|(i, slot)| {
            Some((i, slot.get()?.lock().unwrap_or_else(PoisonError::into_inner)))
        })
    }

    /// Runs `call` on a device with its context current on this thread, as PyTorch's threads may have another.
    fn on<T>(&self, device: i32, call: impl FnOnce(&mut DeviceState<CudaDevice>) -> T) -> T {
        let mut state = self.device(device);
        let context = state.device.context().clone();
        let _entered = context.scoped().unwrap_or_else(|e| panic!("poolsim: device {device}: {e}"));
        call(&mut state)
    }

    /// Serves a request; `None` if the policy refuses it.
    pub fn malloc(&self, device: i32, size: Bytes, stream: u64) -> Option<DevAddr> {
        self.on(device, |state| state.malloc(size, stream))
    }

    /// Takes a block back.
    pub fn free(&self, device: i32, addr: DevAddr) {
        self.on(device, |state| state.free(addr));
    }

    /// A block is used on a further stream.
    pub fn record_stream(&self, addr: DevAddr, stream: u64) {
        for (index, state) in self.used() {
            drop(state);
            if self.on(index as i32, |state| state.record_stream(addr, stream)) {
                return;
            }
        }
    }

    /// Gives unused memory of every device back.
    pub fn empty_cache(&self) {
        for (index, state) in self.used() {
            drop(state);
            self.on(index as i32, DeviceState::empty_cache);
        }
    }

    /// Bytes held from a device, at present or at their peak.
    pub fn reserved(&self, device: i32, peak: bool) -> Bytes {
        let slot = usize::try_from(device).ok().and_then(|i| self.devices.get(i));
        let Some(state) = slot.and_then(OnceLock::get) else { return 0 };
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let reserved = state.stats().reserved;
        if peak { reserved.peak } else { reserved.current }
    }

    /// Writes trace and statistics, as far as they were asked for. Makes no driver call: at the process's end, the
    /// driver may be gone.
    pub fn write(&self) {
        let mut records = Vec::new();
        for (index, state) in self.used() {
            if let Some(path) = &self.config.trace {
                let path = results::path_of_device(path, index);
                let header = results::header(&state, index, &self.config);
                if let Err(e) = state.recorder.write(&path, header) {
                    eprintln!("poolsim: {e}");
                }
            }
            records.push(results::record(&state, &self.config));
        }
        if let Some(path) = &self.config.stats
            && let Err(e) = results::write(path, &records)
        {
            eprintln!("poolsim: {}: {e}", path.display());
        }
    }
}
