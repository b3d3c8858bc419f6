//! A cap on physical memory.

use poolsim_core::{Backing, Bytes, Device, DeviceError, PageId, Range, RangeId, ReplayTarget};

/// Lets the calls on `inner` take at most `cap` bytes together.
#[derive(Clone, Debug)]
pub struct Limited<D> {
    /// The device below.
    pub inner: D,
    cap: Bytes,
}

impl<D: ReplayTarget> Limited<D> {
    /// Caps what `inner` gives, counting what it gave already.
    pub fn new(inner: D, cap: Bytes) -> Self {
        Limited { inner, cap }
    }

    fn check(&self, asked: Bytes) -> Result<(), DeviceError> {
        let free = self.free_bytes();
        if asked > free {
            return Err(DeviceError::OutOfMemory { asked, free });
        }
        Ok(())
    }
}

impl<D: ReplayTarget> Device for Limited<D> {
    crate::delegate_device!(inner: caps now cost release destroy map unmap depopulate record poll wait
        synchronize idle set_metered charge note);

    fn free_bytes(&self) -> Bytes {
        self.inner.free_bytes().min(self.cap.saturating_sub(self.inner.used_bytes()))
    }

    fn reserve(&mut self, size: Bytes, backing: Backing) -> Result<Range, DeviceError> {
        if backing == Backing::Whole {
            self.check(size)?;
        }
        self.inner.reserve(size, backing)
    }

    fn create(&mut self, size: Bytes) -> Result<PageId, DeviceError> {
        self.check(size)?;
        self.inner.create(size)
    }

    fn populate(
        &mut self,
        range: RangeId,
        at: Bytes,
        len: Bytes,
        page: Bytes,
    ) -> Result<(), DeviceError> {
        self.check(len)?;
        self.inner.populate(range, at, len, page)
    }
}

impl<D: ReplayTarget> ReplayTarget for Limited<D> {
    crate::delegate_target!(inner);
}
