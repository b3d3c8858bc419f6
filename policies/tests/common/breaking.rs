//! A device of which one call fails that has nothing to do with being full.

use poolsim_core::{Device, DeviceError, FenceId, RangeId, ReplayTarget, StreamId, SyncScope};

/// Fails the `first`-th call, counted from 0, of those that record a fence, and where `all` is set of those that wait or give
/// back, as a driver in trouble does.
pub struct Breaking<D> {
    pub inner: D,
    pub first: u64,
    pub all: bool,
    pub calls: u64,
}

impl<D> Breaking<D> {
    fn turn(&mut self, call: &'static str) -> Result<(), DeviceError> {
        let number = self.calls;
        self.calls += 1;
        match number == self.first {
            true => Err(DeviceError::Driver { call, message: "broken on purpose".into() }),
            false => Ok(()),
        }
    }
}

impl<D: Device> Device for Breaking<D> {
    poolsim_sim::delegate_device!(inner: caps now cost free_bytes reserve create destroy map unmap populate depopulate poll wait
        charge note);

    fn release(&mut self, range: RangeId) -> Result<(), DeviceError> {
        if self.all {
            self.turn("release")?;
        }
        self.inner.release(range)
    }

    fn record(&mut self, stream: StreamId) -> Result<FenceId, DeviceError> {
        self.turn("record")?;
        self.inner.record(stream)
    }

    fn synchronize(&mut self, scope: SyncScope) -> Result<(), DeviceError> {
        if self.all {
            self.turn("synchronize")?;
        }
        self.inner.synchronize(scope)
    }
}

impl<D: ReplayTarget> ReplayTarget for Breaking<D> {
    poolsim_sim::delegate_target!(inner);
}
