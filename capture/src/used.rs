//! What the whole device holds, as its management library (NVML) says: what `nvidia-smi` shows.
//!
//! A thread asks now and then, so that the calls' sum can be held against it: the rest is contexts, modules and other processes.

use crate::{log, resolve};
use poolsim_traces::calls::{Kind, Record};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

/// How long the thread sleeps between two looks while a program starts, and after that.
const AT_FIRST: Duration = Duration::from_millis(10);
const LATER: Duration = Duration::from_millis(100);
/// Looks that count as the start.
const FIRST: u32 = 100;
/// Most devices that are looked at.
const DEVICES: usize = 16;

/// None before the start and after the end of the process's own code.
static WATCH: Mutex<Option<Watch>> = Mutex::new(None);

struct Watch {
    nvml: Address,
    devices: Vec<Device>,
}

struct Device {
    index: u8,
    handle: usize,
    last: [u64; 3],
}

/// A library's handle as a number, so that it may go from thread to thread.
#[derive(Clone, Copy)]
struct Address(usize);

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlProcessInfo_v2_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    id: c_uint,
    used: u64,
    instance: [c_uint; 2],
}

type Init = unsafe extern "C" fn() -> c_int;
type ByBus = unsafe extern "C" fn(*const c_char, *mut usize) -> c_int;
type MemoryOf = unsafe extern "C" fn(usize, *mut Memory) -> c_int;
type ProcessesOf = unsafe extern "C" fn(usize, *mut c_uint, *mut Process) -> c_int;
type Count = unsafe extern "C" fn(*mut c_int) -> c_int;
type BusOf = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;

impl Address {
    fn find<T: Copy>(self, name: &CStr) -> Option<T> {
        assert_eq!(size_of::<T>(), size_of::<*mut c_void>(), "only for functions");
        let found = resolve::symbol(self.0 as resolve::Address, name)?;
        // SAFETY: a function; its signature is the one in NVML's header, and callers ask for that type.
        Some(unsafe { std::mem::transmute_copy::<resolve::Address, T>(&found) })
    }
}

/// Starts the thread; nothing where there is no NVML.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Ok(nvml) = resolve::open(c"libnvidia-ml.so.1", libc::RTLD_NOW) else { return };
        let nvml = Address(nvml.addr());
        let Some(init) = nvml.find::<Init>(c"nvmlInit_v2") else { return };
        *lock() = Some(Watch { nvml, devices: Vec::new() });
        // Registered after the library was opened, so that it runs before the library's own end.
        // SAFETY: the handler lives as long as the process.
        unsafe { libc::atexit(at_end) };
        let spawned = std::thread::Builder::new().name("poolsim-used".into()).spawn(move || {
            // SAFETY: NVML's function of that name.
            if unsafe { init() } == 0 {
                look_on();
            }
        });
        drop(spawned);
    });
}

fn lock() -> std::sync::MutexGuard<'static, Option<Watch>> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

fn look_on() {
    let own = log::fork();
    for n in 0_u32.. {
        if log::fork() != own || !log::wanted() {
            return;
        }
        match &mut *lock() {
            Some(watch) => watch.look(),
            None => return,
        }
        std::thread::sleep(if n < FIRST { AT_FIRST } else { LATER });
    }
}

/// A last look, and none after it. A child that was forked meanwhile may find the lock held: it looks no more.
extern "C" fn at_end() {
    if log::fork() == 0
        && let Some(mut watch) = lock().take()
        && !watch.devices.is_empty()
    {
        watch.look();
    }
}

impl Watch {
    fn look(&mut self) {
        if self.devices.is_empty() {
            self.devices = self.find().unwrap_or_default();
        }
        let Some(memory_of) = self.nvml.find::<MemoryOf>(c"nvmlDeviceGetMemoryInfo") else {
            return;
        };
        for device in &mut self.devices {
            let mut memory = Memory::default();
            // SAFETY: a handle of NVML's, and a struct of the layout that the function writes.
            if unsafe { memory_of(device.handle, &raw mut memory) } != 0 {
                continue;
            }
            let now = [memory.used, memory.total, own_use(self.nvml, device.handle)];
            if now != device.last {
                device.last = now;
                let [a, b, c] = now;
                let record = Record { device: device.index, a, b, c, ..Record::new(Kind::USED) };
                log::add(record, log::now());
            }
        }
    }

    /// The devices that the program sees, once its driver has started.
    fn find(&self) -> Option<Vec<Device>> {
        let count = resolve::driver(c"cuDeviceGetCount")?;
        let bus_of = resolve::driver(c"cuDeviceGetPCIBusId")?;
        let by_bus = self.nvml.find::<ByBus>(c"nvmlDeviceGetHandleByPciBusId_v2")?;
        // SAFETY: the driver's functions of those names have these signatures.
        let (count, bus_of) = unsafe {
            (
                std::mem::transmute::<resolve::Address, Count>(count),
                std::mem::transmute::<resolve::Address, BusOf>(bus_of),
            )
        };
        let mut devices = 0;
        // SAFETY: a number to write to.
        if unsafe { count(&raw mut devices) } != 0 {
            return None;
        }
        let mut found = Vec::new();
        for index in 0..u8::try_from(devices).ok()?.min(DEVICES as u8) {
            let (mut bus, mut handle) = ([0; 32], 0);
            // SAFETY: a buffer of the length that is said; then a text that ends in 0, and a handle to write to.
            let known = unsafe {
                bus_of(bus.as_mut_ptr(), 32, index.into()) == 0
                    && by_bus(bus.as_ptr(), &raw mut handle) == 0
            };
            if known {
                found.push(Device { index, handle, last: [0; 3] });
            }
        }
        Some(found)
    }
}

/// What NVML counts as this process's on the device; 0 where it does not say, as in many containers.
fn own_use(nvml: Address, handle: usize) -> u64 {
    const MOST: usize = 64;
    let Some(processes_of) = nvml.find::<ProcessesOf>(c"nvmlDeviceGetComputeRunningProcesses_v3")
    else {
        return 0;
    };
    let mut processes = [Process::default(); MOST];
    let mut count = MOST as c_uint;
    // SAFETY: a handle of NVML's, and as many structs as are said.
    if unsafe { processes_of(handle, &raw mut count, processes.as_mut_ptr()) } != 0 {
        return 0;
    }
    let own =
        processes.iter().take(count as usize).find(|process| process.id == std::process::id());
    // The largest number stands for "not available".
    own.map_or(0, |process| if process.used == u64::MAX { 0 } else { process.used })
}
