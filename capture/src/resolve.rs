//! The driver's functions by name, past this library's own.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// A function of unknown signature; null if there is none.
pub type Address = *mut c_void;

type Dlsym = unsafe extern "C" fn(Address, *const c_char) -> Address;

/// The C library's own `dlsym`: this library exports one, too.
pub fn real_dlsym() -> Option<Dlsym> {
    static REAL: OnceLock<Option<Dlsym>> = OnceLock::new();
    *REAL.get_or_init(|| {
        // glibc's versions of it: since 2.34 on all machines, before on x86-64 and on aarch64.
        [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"].into_iter().find_map(|version| {
            // SAFETY: texts that end in 0; a function of that name and version has that signature.
            unsafe {
                let found = libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr());
                (!found.is_null()).then(|| std::mem::transmute::<Address, Dlsym>(found))
            }
        })
    })
}

/// What `handle` has under this name.
pub fn symbol(handle: Address, name: &CStr) -> Option<Address> {
    let dlsym = real_dlsym()?;
    // SAFETY: an open handle and a text that ends in 0.
    let found = unsafe { dlsym(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Opens a shared library by name or path.
pub fn open(name: &CStr, flags: c_int) -> Result<Address, String> {
    // SAFETY: a text that ends in 0.
    let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: the text lives until the thread's next call of the loader.
    let error = unsafe {
        let text = libc::dlerror();
        if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy() }
    };
    Err(error.into_owned())
}

/// A function of the driver, once the driver is loaded.
pub fn driver(name: &CStr) -> Option<Address> {
    static HANDLE: OnceLock<usize> = OnceLock::new();
    let mut handle = HANDLE.get().copied();
    if handle.is_none() {
        let opened = open(c"libcuda.so.1", libc::RTLD_LAZY | libc::RTLD_NOLOAD).ok()?;
        handle = Some(*HANDLE.get_or_init(|| opened.addr()));
    }
    symbol(handle? as Address, name)
}
