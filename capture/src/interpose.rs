//! Functions that stand before the driver's where CUPTI is missing.
//!
//! The library exports the driver's memory functions under their own names, and `dlsym` and `cuGetProcAddress`, through which
//! both the shared and the static CUDA runtime find the driver. Every function here takes six words and passes them
//! on as they came: no recorded function takes more, and all take whole registers.

use crate::calls::{self, CALLS};
use crate::{THROUGH_CUPTI, log, may, resolve};
use resolve::Address;
use std::ffi::{CStr, c_char};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Arguments as they came.
type Words = [u64; 6];
/// A function that takes up to six words.
type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> u32;

/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: u32 = 500;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;
/// The CUDA version since which `cuGetProcAddress` is its second version.
const SECOND: u64 = 12_000;

/// The driver's functions behind [`CALLS`], as they were found.
static REAL: [AtomicPtr<std::ffi::c_void>; CALLS.len()] =
    [const { AtomicPtr::new(null_mut()) }; CALLS.len()];
/// The driver's `cuGetProcAddress` and `cuGetProcAddress_v2`.
static REAL_LOOKUP: [AtomicPtr<std::ffi::c_void>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];
const LOOKUPS: [&CStr; 2] = [c"cuGetProcAddress", c"cuGetProcAddress_v2"];

/// Whether the loader put this library before the program's own.
pub fn loaded_first() -> bool {
    std::env::var("LD_PRELOAD").is_ok_and(|list| list.contains("poolsim_capture"))
}

/// Whether these functions record.
fn active() -> bool {
    log::wanted() && !THROUGH_CUPTI.load(Ordering::Acquire)
}

fn function(known: &AtomicPtr<std::ffi::c_void>, name: &str) -> Option<Function> {
    let mut found = known.load(Ordering::Acquire);
    if found.is_null() {
        let name = std::ffi::CString::new(name).ok()?;
        found = resolve::driver(&name)?;
        known.store(found, Ordering::Release);
    }
    // SAFETY: a function of the driver, which takes at most six words.
    Some(unsafe { std::mem::transmute::<Address, Function>(found) })
}

/// Passes call `number` on to the driver, and records it.
fn pass(number: usize, words: Words) -> u32 {
    let call = &CALLS[number];
    let Some(real) = function(&REAL[number], call.name) else { return NOT_FOUND };
    let records = active() && may_interpose();
    let begin = if records && calls::timed_at_begin(call.kind) { log::now() } else { 0 };
    let [a, b, c, d, e, f] = words;
    // SAFETY: the words that the program passed to this function.
    let answer = unsafe { real(a, b, c, d, e, f) };
    // CUPTI may have come in while the driver started in this call.
    if records && active() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| log::start("interposed driver functions"));
        // SAFETY: the arguments of this call, which has ended with this answer.
        unsafe { calls::ended(number, words.as_ptr().cast(), answer, begin, std::ptr::null()) };
    }
    answer
}

fn may_interpose() -> bool {
    static MAY: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *MAY.get_or_init(|| may("preload"))
}

macro_rules! interposed {
    ($($number:literal $name:ident)*) => {
        $(
            #[doc = concat!("The driver's `", stringify!($name), "`, recorded.")]
            ///
            /// # Safety
            /// As the driver's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> u32 {
                pass($number, [a, b, c, d, e, f])
            }
        )*
        /// The functions of [`CALLS`], in its order.
        static FUNCTIONS: [Function; CALLS.len()] = [$($name),*];
        /// Their names, to be held against [`CALLS`].
        #[cfg(test)]
        static NAMES: [(usize, &str); CALLS.len()] = [$(($number, stringify!($name))),*];
    };
}

interposed! {
    0 cuMemAlloc_v2
    1 cuMemAllocPitch_v2
    2 cuMemAllocManaged
    3 cuMemFree_v2
    4 cuMemAllocAsync
    5 cuMemAllocAsync_ptsz
    6 cuMemAllocFromPoolAsync
    7 cuMemAllocFromPoolAsync_ptsz
    8 cuMemFreeAsync
    9 cuMemFreeAsync_ptsz
    10 cuMemHostAlloc
    11 cuMemAllocHost_v2
    12 cuMemHostRegister_v2
    13 cuMemFreeHost
    14 cuMemHostUnregister
    15 cuMemPoolCreate
    16 cuMemPoolDestroy
    17 cuMemPoolTrimTo
    18 cuMemPoolSetAttribute
    19 cuDeviceSetMemPool
    20 cuMemAddressReserve
    21 cuMemAddressFree
    22 cuMemCreate
    23 cuMemRelease
    24 cuMemMap
    25 cuMemUnmap
    26 cuMemSetAccess
    27 cuStreamSynchronize
    28 cuStreamSynchronize_ptsz
    29 cuCtxSynchronize
    30 cuMemRetainAllocationHandle
}

/// The driver's `cuGetProcAddress` of CUDA 11, which gives out the functions here.
///
/// # Safety
/// As the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> u32 {
    // SAFETY: as the caller says.
    unsafe { look_up(0, [a, b, c, d, e, f]) }
}

/// The driver's `cuGetProcAddress` since CUDA 12, which gives out the functions here.
///
/// # Safety
/// As the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
) -> u32 {
    // SAFETY: as the caller says.
    unsafe { look_up(1, [a, b, c, d, e, f]) }
}

/// # Safety
/// The arguments of a `cuGetProcAddress`: symbol, place for the function, CUDA version, flags, place for a status.
unsafe fn look_up(which: usize, words: Words) -> u32 {
    let name = if which == 0 { "cuGetProcAddress" } else { "cuGetProcAddress_v2" };
    let Some(real) = function(&REAL_LOOKUP[which], name) else { return NOT_FOUND };
    let [symbol, place, version, flags, e, f] = words;
    // SAFETY: as the caller says.
    let answer = unsafe { real(symbol, place, version, flags, e, f) };
    if answer != 0 || symbol == 0 || place == 0 || !active() {
        return answer;
    }
    // SAFETY: a text that ends in 0, and a place that the driver has just written to.
    let (symbol, place) =
        unsafe { (CStr::from_ptr(symbol as *const c_char), &mut *(place as *mut Address)) };
    // A version is passed in 32 bits.
    let second = usize::from((version & 0xffff_ffff) >= SECOND);
    if place.is_null() {
        return answer;
    }
    if symbol == LOOKUPS[0] {
        let ours: [Function; 2] = [cuGetProcAddress, cuGetProcAddress_v2];
        *place = swap(&REAL_LOOKUP[second], *place, ours[second]);
        return answer;
    }
    let per_thread = flags & PER_THREAD != 0;
    let named = |call: &calls::Call| call.base.as_bytes() == symbol.to_bytes();
    let same = CALLS.iter().filter(|call| named(call)).count() > 1;
    let found =
        CALLS.iter().position(|call| named(call) && (!same || call.per_thread == per_thread));
    if let Some(number) = found {
        *place = swap(&REAL[number], *place, FUNCTIONS[number]);
    }
    answer
}

/// Keeps the driver's function and gives ours.
fn swap(known: &AtomicPtr<std::ffi::c_void>, found: Address, ours: Function) -> Address {
    let ours = ours as Address;
    if found != ours {
        known.store(found, Ordering::Release);
    }
    ours
}

/// What `dlsym` answers: `found`, or what `real`, to which it jumps, finds.
#[repr(C)]
struct Chosen {
    found: Address,
    real: Address,
}

/// Finds nothing, where the C library's `dlsym` is not found.
extern "C" fn nothing(_: Address, _: *const c_char) -> Address {
    null_mut()
}

/// Which function `dlsym` gives for a name.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
unsafe extern "C" fn choose(handle: Address, name: *const c_char) -> Chosen {
    let real = resolve::real_dlsym().map_or(nothing as Address, |real| real as Address);
    let pass_on = Chosen { found: null_mut(), real };
    // SAFETY: `dlsym` takes a text that ends in 0.
    let named_cu =
        !name.is_null() && unsafe { *name == b'c' as c_char && *name.add(1) == b'u' as c_char };
    if !named_cu || handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT || !active() {
        return pass_on;
    }
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(name) };
    let ours: Option<(&AtomicPtr<_>, Function)> = if name == LOOKUPS[0] {
        Some((&REAL_LOOKUP[0], cuGetProcAddress))
    } else if name == LOOKUPS[1] {
        Some((&REAL_LOOKUP[1], cuGetProcAddress_v2))
    } else {
        let at = CALLS.iter().position(|call| call.name.as_bytes() == name.to_bytes());
        at.map(|number| (&REAL[number], FUNCTIONS[number]))
    };
    let Some((known, ours)) = ours else { return pass_on };
    match resolve::symbol(handle, name) {
        Some(found) => Chosen { found: swap(known, found, ours), real },
        None => pass_on,
    }
}

/// The C library's `dlsym`, which finds the functions here in place of the driver's.
///
/// It jumps to the real one rather than call it: what `RTLD_NEXT` means depends on who called.
///
/// # Safety
/// As the C library's.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: Address, name: *const c_char) -> Address {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {choose}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jne 2f",
        "jmp rdx",
        "2:",
        "ret",
        choose = sym choose,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_stands_at_its_call() {
        for (n, call) in CALLS.iter().enumerate() {
            assert_eq!(NAMES[n], (n, call.name));
        }
    }
}
