//! Failures on demand.

use poolsim_core::{Backing, Bytes, Device, DeviceError, PageId, Range, RangeId, ReplayTarget};

/// Fails chosen ones of the calls that may run out of memory: `reserve`, `create` and `populate`.
#[derive(Clone, Debug)]
pub struct Faulty<D> {
    /// The device below.
    pub inner: D,
    /// The next of these calls to fail, counted from 0, and how many from there on.
    first: u64,
    count: u64,
    calls: u64,
}

impl<D> Faulty<D> {
    /// Fails the calls number `first`, counted from 0, to `first + count - 1`.
    pub fn new(inner: D, first: u64, count: u64) -> Self {
        Faulty { inner, first, count, calls: 0 }
    }

    /// How many calls could have been made to fail so far. A search over failures is over when a run makes fewer
    /// than the next number.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    fn turn(&mut self, asked: Bytes, free: Bytes) -> Result<(), DeviceError> {
        let number = self.calls;
        self.calls += 1;
        if number >= self.first && number - self.first < self.count {
            return Err(DeviceError::OutOfMemory { asked, free });
        }
        Ok(())
    }
}

impl<D: Device> Device for Faulty<D> {
    crate::delegate_device!(inner: caps now cost free_bytes release destroy map unmap depopulate record poll
        wait synchronize idle set_metered charge note);

    fn reserve(&mut self, size: Bytes, backing: Backing) -> Result<Range, DeviceError> {
        self.turn(size, self.inner.free_bytes())?;
        self.inner.reserve(size, backing)
    }

    fn create(&mut self, size: Bytes) -> Result<PageId, DeviceError> {
        self.turn(size, self.inner.free_bytes())?;
        self.inner.create(size)
    }

    fn populate(
        &mut self,
        range: RangeId,
        at: Bytes,
        len: Bytes,
        page: Bytes,
    ) -> Result<(), DeviceError> {
        self.turn(len, self.inner.free_bytes())?;
        self.inner.populate(range, at, len, page)
    }
}

impl<D: ReplayTarget> ReplayTarget for Faulty<D> {
    crate::delegate_target!(inner);
}
