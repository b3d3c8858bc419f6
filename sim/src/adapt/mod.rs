//! Devices over another device.
//!
//! Each adaptor forwards what it does not care about through `delegate_device!` and `delegate_target!`.

mod checked;
mod faulty;
mod limited;
mod tap;

pub use checked::Checked;
pub use faulty::Faulty;
pub use limited::Limited;
pub use tap::{Call, Tap};

/// Inside an `impl Device for …`: forwards the named methods to the field `inner`. A method that is neither
/// named nor written out is a compile error, but for `idle` and `set_metered`, which have defaults: name them.
#[macro_export]
macro_rules! delegate_device {
    ($inner:ident: $($method:ident)*) => { $($crate::delegate_device!(@ $inner $method);)* };
    (@ $inner:ident caps) => {
        fn caps(&self) -> &poolsim_core::DeviceCaps { self.$inner.caps() }
    };
    (@ $inner:ident now) => {
        fn now(&self) -> poolsim_core::Nanos { self.$inner.now() }
    };
    (@ $inner:ident cost) => {
        fn cost(&self, op: poolsim_core::DeviceOp, bytes: poolsim_core::Bytes) -> poolsim_core::Nanos {
            self.$inner.cost(op, bytes)
        }
    };
    (@ $inner:ident free_bytes) => {
        fn free_bytes(&self) -> poolsim_core::Bytes { self.$inner.free_bytes() }
    };
    (@ $inner:ident reserve) => {
        fn reserve(&mut self, size: poolsim_core::Bytes, backing: poolsim_core::Backing)
            -> Result<poolsim_core::Range, poolsim_core::DeviceError> { self.$inner.reserve(size, backing) }
    };
    (@ $inner:ident release) => {
        fn release(&mut self, range: poolsim_core::RangeId) -> Result<(), poolsim_core::DeviceError> {
            self.$inner.release(range)
        }
    };
    (@ $inner:ident create) => {
        fn create(&mut self, size: poolsim_core::Bytes)
            -> Result<poolsim_core::PageId, poolsim_core::DeviceError> { self.$inner.create(size) }
    };
    (@ $inner:ident destroy) => {
        fn destroy(&mut self, page: poolsim_core::PageId) -> Result<(), poolsim_core::DeviceError> {
            self.$inner.destroy(page)
        }
    };
    (@ $inner:ident map) => {
        fn map(&mut self, range: poolsim_core::RangeId, at: poolsim_core::Bytes, page: poolsim_core::PageId)
            -> Result<(), poolsim_core::DeviceError> { self.$inner.map(range, at, page) }
    };
    (@ $inner:ident unmap) => {
        fn unmap(&mut self, range: poolsim_core::RangeId, at: poolsim_core::Bytes, len: poolsim_core::Bytes)
            -> Result<(), poolsim_core::DeviceError> { self.$inner.unmap(range, at, len) }
    };
    (@ $inner:ident populate) => {
        fn populate(&mut self, range: poolsim_core::RangeId, at: poolsim_core::Bytes, len: poolsim_core::Bytes,
            page: poolsim_core::Bytes) -> Result<(), poolsim_core::DeviceError> {
            self.$inner.populate(range, at, len, page)
        }
    };
    (@ $inner:ident depopulate) => {
        fn depopulate(&mut self, range: poolsim_core::RangeId, at: poolsim_core::Bytes, len: poolsim_core::Bytes)
            -> Result<(), poolsim_core::DeviceError> { self.$inner.depopulate(range, at, len) }
    };
    (@ $inner:ident record) => {
        fn record(&mut self, stream: poolsim_core::StreamId)
            -> Result<poolsim_core::FenceId, poolsim_core::DeviceError> { self.$inner.record(stream) }
    };
    (@ $inner:ident poll) => {
        fn poll(&mut self, passed: &mut Vec<poolsim_core::FenceId>) { self.$inner.poll(passed) }
    };
    (@ $inner:ident wait) => {
        fn wait(&mut self, stream: poolsim_core::StreamId, fence: poolsim_core::FenceId)
            -> Result<(), poolsim_core::DeviceError> { self.$inner.wait(stream, fence) }
    };
    (@ $inner:ident synchronize) => {
        fn synchronize(&mut self, scope: poolsim_core::SyncScope)
            -> Result<(), poolsim_core::DeviceError> { self.$inner.synchronize(scope) }
    };
    (@ $inner:ident idle) => {
        fn idle(&mut self, stream: poolsim_core::StreamId) -> bool { self.$inner.idle(stream) }
    };
    (@ $inner:ident set_metered) => {
        fn set_metered(&mut self, on: bool) { self.$inner.set_metered(on) }
    };
    (@ $inner:ident charge) => {
        fn charge(&mut self, op: poolsim_core::DeviceOp, calls: u64, bytes: poolsim_core::Bytes) {
            self.$inner.charge(op, calls, bytes)
        }
    };
    (@ $inner:ident note) => {
        fn note(&mut self, action: poolsim_core::Action, addr: poolsim_core::DevAddr,
            size: poolsim_core::Bytes, stream: poolsim_core::StreamId) {
            self.$inner.note(action, addr, size, stream)
        }
    };
}

/// Inside an `impl ReplayTarget for …`: forwards everything to the field `inner`.
#[macro_export]
macro_rules! delegate_target {
    ($inner:ident) => {
        fn advance_to(&mut self, at: poolsim_core::Nanos) {
            self.$inner.advance_to(at)
        }
        fn hold(&mut self, slot: poolsim_core::Slot) {
            self.$inner.hold(slot)
        }
        fn end_hold(&mut self) {
            self.$inner.end_hold()
        }
        fn complete(&mut self, slot: poolsim_core::Slot) {
            self.$inner.complete(slot)
        }
        fn ledger(&self) -> &poolsim_core::Ledger {
            self.$inner.ledger()
        }
        fn used_bytes(&self) -> poolsim_core::Bytes {
            self.$inner.used_bytes()
        }
        fn keeps_log(&self) -> bool {
            self.$inner.keeps_log()
        }
        fn set_event(&mut self, event: u64) {
            self.$inner.set_event(event)
        }
        fn log(&self) -> &[poolsim_core::record::Decision] {
            self.$inner.log()
        }
        fn clear_log(&mut self) {
            self.$inner.clear_log()
        }
        fn backed(&self, addr: poolsim_core::DevAddr, len: poolsim_core::Bytes) -> Option<bool> {
            self.$inner.backed(addr, len)
        }
    };
}
