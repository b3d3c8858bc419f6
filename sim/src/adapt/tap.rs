//! A log of every device call, for comparing two devices call by call.

use poolsim_core::{
    Backing, Bytes, Device, DeviceError, FenceId, PageId, Range, RangeId, ReplayTarget, StreamId,
    SyncScope,
};

/// One call that changed the device. Addresses are left out: they are the one thing in which two right devices
/// differ. `ok` is false if it was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are the arguments of the call of the same name
pub enum Call {
    Reserve { size: Bytes, backing: Backing, range: Option<RangeId> },
    Release { range: RangeId, ok: bool },
    Create { size: Bytes, page: Option<PageId> },
    Destroy { page: PageId, ok: bool },
    Map { range: RangeId, at: Bytes, page: PageId, ok: bool },
    Unmap { range: RangeId, at: Bytes, len: Bytes, ok: bool },
    Populate { range: RangeId, at: Bytes, len: Bytes, page: Bytes, ok: bool },
    Depopulate { range: RangeId, at: Bytes, len: Bytes, ok: bool },
    Record { stream: StreamId, fence: Option<FenceId> },
    Wait { stream: StreamId, fence: FenceId, ok: bool },
    Synchronize { scope: SyncScope, ok: bool },
}

/// Writes down every call that changes `inner`.
#[derive(Clone, Debug)]
pub struct Tap<D> {
    /// The device below.
    pub inner: D,
    calls: Vec<Call>,
}

impl<D> Tap<D> {
    /// Starts with an empty log.
    pub fn new(inner: D) -> Self {
        Tap { inner, calls: Vec::new() }
    }

    /// The calls so far.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    fn keep<R>(
        &mut self,
        result: Result<R, DeviceError>,
        call: impl Fn(Option<&R>) -> Call,
    ) -> Result<R, DeviceError> {
        self.calls.push(call(result.as_ref().ok()));
        result
    }
}

impl<D: Device> Device for Tap<D> {
    crate::delegate_device!(inner: caps now cost free_bytes poll idle set_metered charge note);

    fn reserve(&mut self, size: Bytes, backing: Backing) -> Result<Range, DeviceError> {
        let result = self.inner.reserve(size, backing);
        self.keep(result, |r| Call::Reserve { size, backing, range: r.map(|r| r.id) })
    }

    fn release(&mut self, range: RangeId) -> Result<(), DeviceError> {
        let result = self.inner.release(range);
        self.keep(result, |r| Call::Release { range, ok: r.is_some() })
    }

    fn create(&mut self, size: Bytes) -> Result<PageId, DeviceError> {
        let result = self.inner.create(size);
        self.keep(result, |r| Call::Create { size, page: r.copied() })
    }

    fn destroy(&mut self, page: PageId) -> Result<(), DeviceError> {
        let result = self.inner.destroy(page);
        self.keep(result, |r| Call::Destroy { page, ok: r.is_some() })
    }

    fn map(&mut self, range: RangeId, at: Bytes, page: PageId) -> Result<(), DeviceError> {
        let result = self.inner.map(range, at, page);
        self.keep(result, |r| Call::Map { range, at, page, ok: r.is_some() })
    }

    fn unmap(&mut self, range: RangeId, at: Bytes, len: Bytes) -> Result<(), DeviceError> {
        let result = self.inner.unmap(range, at, len);
        self.keep(result, |r| Call::Unmap { range, at, len, ok: r.is_some() })
    }

    fn populate(
        &mut self,
        range: RangeId,
        at: Bytes,
        len: Bytes,
        page: Bytes,
    ) -> Result<(), DeviceError> {
        let result = self.inner.populate(range, at, len, page);
        self.keep(result, |r| Call::Populate { range, at, len, page, ok: r.is_some() })
    }

    fn depopulate(&mut self, range: RangeId, at: Bytes, len: Bytes) -> Result<(), DeviceError> {
        let result = self.inner.depopulate(range, at, len);
        self.keep(result, |r| Call::Depopulate { range, at, len, ok: r.is_some() })
    }

    fn record(&mut self, stream: StreamId) -> Result<FenceId, DeviceError> {
        let result = self.inner.record(stream);
        self.keep(result, |r| Call::Record { stream, fence: r.copied() })
    }

    fn wait(&mut self, stream: StreamId, fence: FenceId) -> Result<(), DeviceError> {
        let result = self.inner.wait(stream, fence);
        self.keep(result, |r| Call::Wait { stream, fence, ok: r.is_some() })
    }

    fn synchronize(&mut self, scope: SyncScope) -> Result<(), DeviceError> {
        let result = self.inner.synchronize(scope);
        self.keep(result, |r| Call::Synchronize { scope, ok: r.is_some() })
    }
}

impl<D: ReplayTarget> ReplayTarget for Tap<D> {
    crate::delegate_target!(inner);
}
