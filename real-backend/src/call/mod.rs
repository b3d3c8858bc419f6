//! The driver's calls as safe functions: one thin function each, results as [`DeviceError`].
//!
//! Every function needs a [`Context`], which exists only where the driver library was found and a device's primary
//! context is held. Handles come from these functions and go back to them once.

use cudarc::driver::{result, sys};
use poolsim_core::{Bytes, DevAddr, DeviceError};
use std::sync::Arc;

/// What a driver call gives.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// Turns a driver's code into an error that names the call. Running out of memory carries no figures here; who
/// asked knows them.
fn check(call: &'static str, code: sys::CUresult) -> Result<()> {
    match code {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            Err(DeviceError::OutOfMemory { asked: 0, free: 0 })
        }
        sys::CUresult::CUDA_ERROR_NOT_SUPPORTED => Err(DeviceError::Unsupported(call.into())),
        code => {
            let message = result::DriverError(code).to_string();
            Err(DeviceError::Driver { call, message })
        }
    }
}

/// Calls the driver. Each use states, where it stands, why the arguments are right.
macro_rules! driver {
    ($name:ident($($arg:expr),* $(,)?)) => {
        check(stringify!($name), sys::$name($($arg),*))
    };
}

mod pools;
mod work;

/// A device's primary context, held until the last user is gone.
#[derive(Debug)]
pub struct Context {
    device: sys::CUdevice,
    raw: sys::CUcontext,
}

// SAFETY: a primary context may be used from any thread that makes it current, which `enter` does.
unsafe impl Send for Context {}
// SAFETY: the driver locks inside; nothing here is changed after `new`.
unsafe impl Sync for Context {}

impl Context {
    /// Holds the primary context of a device and makes it this thread's.
    ///
    /// # Errors
    /// `Unsupported` without a driver library, `Driver` for a device that is not there.
    pub fn new(index: u32) -> Result<Arc<Context>> {
        // SAFETY: loads the vendor's library by its well-known name, as any CUDA program does.
        if !unsafe { sys::is_culib_present() } {
            return Err(DeviceError::Unsupported(
                "the NVIDIA driver library (libcuda.so.1) could not be loaded; `nvidia-smi` shows whether a driver is \
                 installed"
                    .into(),
            ));
        }
        let ordinal = i32::try_from(index)
            .map_err(|_| DeviceError::Illegal(format!("there is no GPU {index}")))?;
        let (mut device, mut raw) = (0, std::ptr::null_mut());
        // SAFETY: the library is there, and the pointers are to live locals.
        unsafe {
            driver!(cuInit(0))?;
            driver!(cuDeviceGet(&mut device, ordinal))?;
            driver!(cuDevicePrimaryCtxRetain(&mut raw, device))?;
        }
        let context = Arc::new(Context { device, raw });
        context.enter()?;
        Ok(context)
    }

    /// Makes the context this thread's.
    pub fn enter(&self) -> Result<()> {
        // SAFETY: the context is held by `self`.
        unsafe { driver!(cuCtxSetCurrent(self.raw)) }
    }

    /// Makes the context this thread's until the guard is dropped, which brings back the one that was.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn scoped(&self) -> Result<Entered> {
        let mut before = std::ptr::null_mut();
        // SAFETY: pointer to a live local.
        unsafe { driver!(cuCtxGetCurrent(&mut before))? };
        if before == self.raw {
            return Ok(Entered { before: None });
        }
        self.enter()?;
        Ok(Entered { before: Some(before) })
    }

    /// The driver's number of the device.
    pub fn ordinal(&self) -> i32 {
        self.device
    }

    /// Free and total memory, as `cudaMemGetInfo` says.
    pub fn memory(&self) -> Result<(Bytes, Bytes)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: pointers to live locals; the context is current on this thread.
        unsafe { driver!(cuMemGetInfo_v2(&mut free, &mut total))? };
        Ok((free as Bytes, total as Bytes))
    }

    /// `cuMemAlloc`.
    pub(crate) fn alloc(&self, size: Bytes) -> Result<DevAddr> {
        let mut addr = 0;
        // SAFETY: pointer to a live local.
        unsafe { driver!(cuMemAlloc_v2(&mut addr, size as usize))? };
        Ok(addr)
    }

    /// `cuMemFree` of what `alloc` gave.
    pub(crate) fn free(&self, addr: DevAddr) -> Result<()> {
        // SAFETY: the caller's table holds the address exactly until this call.
        unsafe { driver!(cuMemFree_v2(addr)) }
    }

    /// `cuMemAddressReserve`, address and alignment chosen by the driver.
    pub(crate) fn reserve(&self, size: Bytes) -> Result<DevAddr> {
        let mut addr = 0;
        // SAFETY: pointer to a live local.
        unsafe { driver!(cuMemAddressReserve(&mut addr, size as usize, 0, 0, 0))? };
        Ok(addr)
    }

    /// `cuMemAddressFree` of a whole reservation with nothing mapped in it.
    pub(crate) fn unreserve(&self, addr: DevAddr, size: Bytes) -> Result<()> {
        // SAFETY: the caller's table holds the reservation exactly until this call.
        unsafe { driver!(cuMemAddressFree(addr, size as usize)) }
    }

    fn physical(&self) -> sys::CUmemAllocationProp {
        // SAFETY: all-zero is a valid value of this plain C struct: no handle types, no compression.
        let mut prop: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
        prop.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        prop.location = self.location();
        prop
    }

    fn location(&self) -> sys::CUmemLocation {
        sys::CUmemLocation {
            type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: self.device,
        }
    }

    /// Smallest page of physical memory.
    pub(crate) fn granularity(&self) -> Result<Bytes> {
        let mut granule = 0;
        let option = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        // SAFETY: pointers to live locals.
        unsafe {
            driver!(cuMemGetAllocationGranularity(&mut granule, &self.physical(), option))?;
        }
        Ok(granule as Bytes)
    }

    /// `cuMemCreate` of one page.
    pub(crate) fn create(&self, size: Bytes) -> Result<u64> {
        let mut handle = 0;
        // SAFETY: pointers to live locals.
        unsafe { driver!(cuMemCreate(&mut handle, size as usize, &self.physical(), 0))? };
        Ok(handle)
    }

    /// `cuMemRelease` of what `create` gave.
    pub(crate) fn destroy(&self, handle: u64) -> Result<()> {
        // SAFETY: the caller's table holds the handle exactly until this call.
        unsafe { driver!(cuMemRelease(handle)) }
    }

    /// `cuMemMap` of a whole page into a reservation.
    pub(crate) fn map(&self, addr: DevAddr, size: Bytes, handle: u64) -> Result<()> {
        // SAFETY: the caller checked that the range lies in a reservation of its own and is unmapped.
        unsafe { driver!(cuMemMap(addr, size as usize, 0, handle, 0)) }
    }

    /// `cuMemSetAccess`: this device may read and write the mapped range.
    pub(crate) fn allow_access(&self, addr: DevAddr, size: Bytes) -> Result<()> {
        let desc = sys::CUmemAccessDesc {
            location: self.location(),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: pointer to one live descriptor, and the count says one.
        unsafe { driver!(cuMemSetAccess(addr, size as usize, &desc, 1)) }
    }

    /// `cuMemUnmap` of whole mappings.
    pub(crate) fn unmap(&self, addr: DevAddr, size: Bytes) -> Result<()> {
        // SAFETY: the caller's table says that the range is made of whole mappings of its own.
        unsafe { driver!(cuMemUnmap(addr, size as usize)) }
    }

    /// Waits for all work of the context.
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: no arguments; the context is current on this thread.
        unsafe { driver!(cuCtxSynchronize()) }
    }

    /// A stream that does not wait for the legacy default stream.
    pub(crate) fn stream(&self) -> Result<sys::CUstream> {
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: pointer to a live local.
        unsafe { driver!(cuStreamCreate(&mut stream, flags))? };
        Ok(stream)
    }

    /// Destroys what `stream` gave.
    pub(crate) fn destroy_stream(&self, stream: sys::CUstream) -> Result<()> {
        // SAFETY: the caller's table holds the stream exactly until this call.
        unsafe { driver!(cuStreamDestroy_v2(stream)) }
    }

    /// Waits for a stream.
    pub(crate) fn synchronize_stream(&self, stream: sys::CUstream) -> Result<()> {
        // SAFETY: the stream is alive in the caller's table.
        unsafe { driver!(cuStreamSynchronize(stream)) }
    }

    /// An event without timing.
    pub(crate) fn event(&self) -> Result<sys::CUevent> {
        let mut event = std::ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: pointer to a live local.
        unsafe { driver!(cuEventCreate(&mut event, flags))? };
        Ok(event)
    }

    /// Destroys what `event` gave.
    pub(crate) fn destroy_event(&self, event: sys::CUevent) -> Result<()> {
        // SAFETY: the caller's table holds the event exactly until this call.
        unsafe { driver!(cuEventDestroy_v2(event)) }
    }

    /// Marks the end of a stream's work.
    pub(crate) fn record(&self, event: sys::CUevent, stream: sys::CUstream) -> Result<()> {
        // SAFETY: both handles are alive in the caller's tables.
        unsafe { driver!(cuEventRecord(event, stream)) }
    }

    /// Whether the work before an event is done.
    pub(crate) fn is_done(&self, event: sys::CUevent) -> Result<bool> {
        // SAFETY: the event is alive in the caller's table.
        match unsafe { sys::cuEventQuery(event) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits for an event.
    pub(crate) fn synchronize_event(&self, event: sys::CUevent) -> Result<()> {
        // SAFETY: the event is alive in the caller's table.
        unsafe { driver!(cuEventSynchronize(event)) }
    }

    /// Lets a stream wait for an event.
    pub(crate) fn wait(&self, stream: sys::CUstream, event: sys::CUevent) -> Result<()> {
        // SAFETY: both handles are alive in the caller's tables.
        unsafe { driver!(cuStreamWaitEvent(stream, event, 0)) }
    }
}

/// A context is current on this thread while this lives.
#[derive(Debug)]
pub struct Entered {
    /// What was current, if it was another one.
    before: Option<sys::CUcontext>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: the context was current here a moment ago (null means none), and its owner has not ended.
            let _ = unsafe { sys::cuCtxSetCurrent(before) };
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `new`, released once here. An error would mean that the driver is gone, and with it
        // everything that could be given back.
        unsafe {
            let _ = sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}
