//! Work on streams: fills, kernels, and words in host memory that streams wait for.

use super::{Context, Result, check};
use cudarc::driver::sys;
use poolsim_core::{Bytes, DevAddr};
use std::ffi::CStr;

impl Context {
    /// Zeroed host memory that the device can read; its address is the same on both sides.
    pub(crate) fn host_alloc(&self, size: Bytes) -> Result<*mut u32> {
        let mut addr = std::ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: pointer to a live local; the driver gives page-aligned memory of `size` bytes, which is zeroed before
        // anybody sees it.
        unsafe {
            driver!(cuMemHostAlloc(&mut addr, size as usize, flags))?;
            std::ptr::write_bytes(addr.cast::<u8>(), 0, size as usize);
        }
        Ok(addr.cast())
    }

    /// Gives back what `host_alloc` gave.
    pub(crate) fn host_free(&self, addr: *mut u32) -> Result<()> {
        // SAFETY: the caller holds the memory exactly until this call.
        unsafe { driver!(cuMemFreeHost(addr.cast())) }
    }

    /// Lets a stream wait until a word of `host_alloc` is at least `value` (numbers wrap around).
    pub(crate) fn wait_word(
        &self,
        stream: sys::CUstream,
        word: *const u32,
        value: u32,
    ) -> Result<()> {
        let flags = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
        // SAFETY: the word lies in mapped host memory that the caller holds, and the stream is alive.
        unsafe { driver!(cuStreamWaitValue32_v2(stream, word as sys::CUdeviceptr, value, flags)) }
    }

    /// Fills memory with a 32-bit pattern, in stream order. `words` is the number of 32-bit words.
    pub(crate) fn fill(
        &self,
        addr: DevAddr,
        word: u32,
        words: u64,
        stream: sys::CUstream,
    ) -> Result<()> {
        // SAFETY: the caller's block is at least `words` words long and its stream is alive.
        unsafe { driver!(cuMemsetD32Async(addr, word, words as usize, stream)) }
    }

    /// Copies one 64-bit word from the device, waiting for the copy.
    pub(crate) fn read_word(&self, addr: DevAddr) -> Result<u64> {
        let mut word: u64 = 0;
        // SAFETY: eight bytes from the caller's live device memory to a live local.
        unsafe { driver!(cuMemcpyDtoH_v2((&raw mut word).cast(), addr, 8))? };
        Ok(word)
    }

    /// Compiles and loads a PTX module.
    pub(crate) fn load(&self, ptx: &CStr) -> Result<sys::CUmodule> {
        let mut module = std::ptr::null_mut();
        // SAFETY: the image is PTX text that ends in NUL.
        unsafe { driver!(cuModuleLoadData(&mut module, ptx.as_ptr().cast()))? };
        Ok(module)
    }

    /// Unloads what `load` gave.
    pub(crate) fn unload(&self, module: sys::CUmodule) -> Result<()> {
        // SAFETY: the caller holds the module exactly until this call.
        unsafe { driver!(cuModuleUnload(module)) }
    }

    /// A kernel of a module.
    pub(crate) fn function(&self, module: sys::CUmodule, name: &CStr) -> Result<sys::CUfunction> {
        let mut function = std::ptr::null_mut();
        // SAFETY: pointer to a live local; the module is alive with the caller.
        unsafe { driver!(cuModuleGetFunction(&mut function, module, name.as_ptr()))? };
        Ok(function)
    }

    /// Starts a kernel whose parameters are 64-bit words.
    pub(crate) fn launch(
        &self,
        function: sys::CUfunction,
        blocks: u32,
        threads: u32,
        stream: sys::CUstream,
        params: &mut [u64],
    ) -> Result<()> {
        let mut pointers: Vec<*mut std::ffi::c_void> =
            params.iter_mut().map(|p| (p as *mut u64).cast()).collect();
        // SAFETY: the kernels of this crate take 64-bit parameters only, in this number and order; the driver copies
        // them before it returns.
        unsafe {
            driver!(cuLaunchKernel(
                function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream,
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            ))
        }
    }
}
