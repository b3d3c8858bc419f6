//! Refusals as PyTorch can take them.

use std::ffi::{c_char, c_void};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Throws `std::bad_alloc`, which Python sees as `MemoryError`. A null pointer would be taken for memory.
///
/// Where the C++ runtime is not loaded, the process ends: nobody there could catch anything.
pub(crate) fn throw_bad_alloc() -> ! {
    // SAFETY: the name ends in NUL; a null handle (RTLD_DEFAULT) searches what the process has loaded.
    let found = unsafe { dlsym(std::ptr::null_mut(), c"_ZSt17__throw_bad_allocv".as_ptr()) };
    if found.is_null() {
        eprintln!("poolsim: out of memory, and no C++ runtime is there to report it to");
        std::process::abort();
    }
    // SAFETY: libstdc++ and libc++ define this function without arguments; it throws, which "C-unwind" lets pass. No
    // frame between here and C++ holds anything to drop.
    unsafe {
        let throw: extern "C-unwind" fn() -> ! = std::mem::transmute(found);
        throw()
    }
}
