//! The driver's memory pools.

use super::{Context, Result, check};
use cudarc::driver::sys;
use poolsim_core::{Bytes, DevAddr};

impl Context {
    /// A memory pool of its own on this device; `max` of 0 means no limit.
    pub(crate) fn pool(&self, max: Bytes) -> Result<sys::CUmemoryPool> {
        // SAFETY: all-zero is a valid value of this plain C struct.
        let mut props: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        props.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        props.location = self.location();
        props.maxSize = max as usize;
        let mut pool = std::ptr::null_mut();
        // SAFETY: pointers to live locals.
        unsafe { driver!(cuMemPoolCreate(&mut pool, &props))? };
        Ok(pool)
    }

    /// The device's default memory pool.
    pub(crate) fn default_pool(&self) -> Result<sys::CUmemoryPool> {
        let mut pool = std::ptr::null_mut();
        // SAFETY: pointer to a live local.
        unsafe { driver!(cuDeviceGetDefaultMemPool(&mut pool, self.device))? };
        Ok(pool)
    }

    /// Destroys what `pool` gave.
    pub(crate) fn destroy_pool(&self, pool: sys::CUmemoryPool) -> Result<()> {
        // SAFETY: the caller holds the pool exactly until this call, and it is not the default pool.
        unsafe { driver!(cuMemPoolDestroy(pool)) }
    }

    /// Sets an attribute that holds 64 bits (`release threshold`).
    pub(crate) fn set_pool_bytes(&self, pool: sys::CUmemoryPool, value: Bytes) -> Result<()> {
        let mut value = value;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the attribute holds a 64-bit number, and the pointer is to one.
        unsafe { driver!(cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast())) }
    }

    /// Sets one of the attributes that say when memory is used again.
    pub(crate) fn set_pool_switch(
        &self,
        pool: sys::CUmemoryPool,
        attribute: sys::CUmemPool_attribute,
        on: bool,
    ) -> Result<()> {
        let mut value = i32::from(on);
        // SAFETY: the reuse attributes hold an int, and the pointer is to one.
        unsafe { driver!(cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast())) }
    }

    /// A 64-bit attribute (`reserved` and `used`, current and highest).
    pub(crate) fn pool_bytes(
        &self,
        pool: sys::CUmemoryPool,
        attribute: sys::CUmemPool_attribute,
    ) -> Result<Bytes> {
        let mut value: u64 = 0;
        // SAFETY: the attribute holds a 64-bit number, and the pointer is to one.
        unsafe {
            driver!(cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()))?;
        }
        Ok(value)
    }

    /// Gives free memory of a pool back, down to `keep`.
    pub(crate) fn trim(&self, pool: sys::CUmemoryPool, keep: Bytes) -> Result<()> {
        // SAFETY: the pool is alive with the caller.
        unsafe { driver!(cuMemPoolTrimTo(pool, keep as usize)) }
    }

    /// `cudaMallocFromPoolAsync`.
    pub(crate) fn pool_alloc(
        &self,
        pool: sys::CUmemoryPool,
        size: Bytes,
        stream: sys::CUstream,
    ) -> Result<DevAddr> {
        let mut addr = 0;
        // SAFETY: pointer to a live local; pool and stream are alive with the caller.
        unsafe { driver!(cuMemAllocFromPoolAsync(&mut addr, size as usize, pool, stream))? };
        Ok(addr)
    }

    /// `cudaFreeAsync` of what `pool_alloc` gave.
    pub(crate) fn pool_free(&self, addr: DevAddr, stream: sys::CUstream) -> Result<()> {
        // SAFETY: the caller's table holds the address exactly until this call.
        unsafe { driver!(cuMemFreeAsync(addr, stream)) }
    }
}
