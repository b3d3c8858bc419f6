//! What a driver call's arguments mean.
//!
//! CUPTI hands over a struct of a call's arguments, and the interposed functions make one alike: on a 64-bit machine each
//! argument stands at a multiple of eight bytes, but for two: the second of two 32-bit arguments in a row. No call here has
//! those in places that are read.

use crate::{caller, device, log};
use poolsim_traces::calls::{Kind, Record};
use std::ffi::c_void;

/// A driver function whose calls are recorded.
#[derive(Clone, Copy)]
pub struct Call {
    /// Its name in the driver library.
    pub name: &'static str,
    /// Its name for `cuGetProcAddress`.
    pub base: &'static str,
    /// Its number in CUPTI's driver callbacks, the same in CUPTI 12 and 13.
    pub cbid: u32,
    /// What is recorded.
    pub kind: Kind,
    /// Its stream 0 is the calling thread's own one.
    pub per_thread: bool,
}

const fn call(name: &'static str, base: &'static str, cbid: u32, kind: Kind) -> Call {
    Call { name, base, cbid, kind, per_thread: false }
}

const fn per_thread(name: &'static str, base: &'static str, cbid: u32, kind: Kind) -> Call {
    Call { name, base, cbid, kind, per_thread: true }
}

/// All of them. [`crate::interpose`] has a function for each, in this order.
pub const CALLS: [Call; 31] = [
    call("cuMemAlloc_v2", "cuMemAlloc", 243, Kind::ALLOC),
    call("cuMemAllocPitch_v2", "cuMemAllocPitch", 244, Kind::ALLOC_PITCH),
    call("cuMemAllocManaged", "cuMemAllocManaged", 371, Kind::ALLOC_MANAGED),
    call("cuMemFree_v2", "cuMemFree", 245, Kind::FREE),
    call("cuMemAllocAsync", "cuMemAllocAsync", 598, Kind::ALLOC_ASYNC),
    per_thread("cuMemAllocAsync_ptsz", "cuMemAllocAsync", 599, Kind::ALLOC_ASYNC),
    call("cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync", 611, Kind::ALLOC_FROM_POOL),
    per_thread(
        "cuMemAllocFromPoolAsync_ptsz",
        "cuMemAllocFromPoolAsync",
        612,
        Kind::ALLOC_FROM_POOL,
    ),
    call("cuMemFreeAsync", "cuMemFreeAsync", 600, Kind::FREE_ASYNC),
    per_thread("cuMemFreeAsync_ptsz", "cuMemFreeAsync", 601, Kind::FREE_ASYNC),
    call("cuMemHostAlloc", "cuMemHostAlloc", 39, Kind::HOST_ALLOC),
    call("cuMemAllocHost_v2", "cuMemAllocHost", 294, Kind::HOST_ALLOC_PLAIN),
    call("cuMemHostRegister_v2", "cuMemHostRegister", 379, Kind::HOST_REGISTER),
    call("cuMemFreeHost", "cuMemFreeHost", 38, Kind::HOST_FREE),
    call("cuMemHostUnregister", "cuMemHostUnregister", 302, Kind::HOST_UNREGISTER),
    call("cuMemPoolCreate", "cuMemPoolCreate", 607, Kind::POOL_CREATE),
    call("cuMemPoolDestroy", "cuMemPoolDestroy", 608, Kind::POOL_DESTROY),
    call("cuMemPoolTrimTo", "cuMemPoolTrimTo", 602, Kind::POOL_TRIM),
    call("cuMemPoolSetAttribute", "cuMemPoolSetAttribute", 603, Kind::POOL_SET),
    call("cuDeviceSetMemPool", "cuDeviceSetMemPool", 609, Kind::POOL_USE),
    call("cuMemAddressReserve", "cuMemAddressReserve", 547, Kind::RESERVE),
    call("cuMemAddressFree", "cuMemAddressFree", 548, Kind::RESERVE_FREE),
    call("cuMemCreate", "cuMemCreate", 549, Kind::CREATE),
    call("cuMemRelease", "cuMemRelease", 550, Kind::RELEASE),
    call("cuMemMap", "cuMemMap", 551, Kind::MAP),
    call("cuMemUnmap", "cuMemUnmap", 552, Kind::UNMAP),
    call("cuMemSetAccess", "cuMemSetAccess", 553, Kind::SET_ACCESS),
    call("cuStreamSynchronize", "cuStreamSynchronize", 126, Kind::SYNC_STREAM),
    per_thread("cuStreamSynchronize_ptsz", "cuStreamSynchronize", 440, Kind::SYNC_STREAM),
    call("cuCtxSynchronize", "cuCtxSynchronize", 17, Kind::SYNC_DEVICE),
    call("cuMemRetainAllocationHandle", "cuMemRetainAllocationHandle", 565, Kind::RETAIN),
];

/// The calling thread's own stream, `CU_STREAM_PER_THREAD`.
const PER_THREAD_STREAM: u64 = 2;

/// Whether the time of this call is that of its begin, see [`Record::at`].
pub fn timed_at_begin(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::FREE
            | Kind::FREE_ASYNC
            | Kind::HOST_FREE
            | Kind::HOST_UNREGISTER
            | Kind::RELEASE
            | Kind::UNMAP
            | Kind::RESERVE_FREE
            | Kind::POOL_DESTROY
    )
}

/// A call's arguments.
#[derive(Clone, Copy)]
struct Arguments(*const u64);

impl Arguments {
    /// Argument `n`, of 64 bits.
    ///
    /// # Safety
    /// The call has more than `n` arguments.
    unsafe fn wide(self, n: usize) -> u64 {
        // SAFETY: as the caller says.
        unsafe { self.0.add(n).read() }
    }

    /// Argument `n`, of 32 bits.
    ///
    /// # Safety
    /// As [`Arguments::wide`].
    unsafe fn narrow(self, n: usize) -> u32 {
        // SAFETY: as the caller says.
        unsafe { self.0.add(n).cast::<u32>().read() }
    }

    /// What argument `n` points to; 0 for null.
    ///
    /// # Safety
    /// As [`Arguments::wide`], and it is null or points to 64 bits that can be read.
    unsafe fn pointed(self, n: usize) -> u64 {
        // SAFETY: as the caller says.
        let to = unsafe { self.wide(n) } as *const u64;
        // SAFETY: not null, as the caller says.
        if to.is_null() { 0 } else { unsafe { to.read_unaligned() } }
    }

    /// The kind of place and the device of the properties that argument `n` points to.
    ///
    /// # Safety
    /// As [`Arguments::wide`], and it is null or points to a `CUmemAllocationProp` or `CUmemPoolProps`: both have the place
    /// behind two numbers of 32 bits.
    unsafe fn place(self, n: usize) -> (u32, u8) {
        // SAFETY: as the caller says.
        let to = unsafe { self.wide(n) } as *const u32;
        if to.is_null() {
            return (0, poolsim_traces::calls::NO_DEVICE);
        }
        // SAFETY: as the caller says.
        let (kind, id) = unsafe { (to.add(2).read(), to.add(3).read()) };
        (kind, u8::try_from(id).unwrap_or(poolsim_traces::calls::NO_DEVICE))
    }
}

/// Records a call of `CALLS[number]` that has ended: `begin` is when it began if [`timed_at_begin`], and `context`
/// the driver's context if the caller knows it.
///
/// # Safety
/// `arguments` are those of this call, which answered `result`.
pub unsafe fn ended(
    number: usize,
    arguments: *const c_void,
    result: u32,
    begin: u64,
    context: *const c_void,
) {
    let call = &CALLS[number];
    if !log::wanted() || arguments.is_null() {
        return;
    }
    let mut record = Record { device: device::of(context), result, ..Record::new(call.kind) };
    // SAFETY: as the caller says; what the driver writes to is read only if it did.
    unsafe { fill(&mut record, Arguments(arguments.cast()), call) };
    if record.a == 0 && call.kind == Kind::FREE {
        // Freeing nothing is no call to the driver's memory; the runtime does it to start itself.
        return;
    }
    let at = if timed_at_begin(call.kind) { begin } else { log::now() };
    record.library = caller::library(number);
    log::add(record, at);
}

/// # Safety
/// As [`ended`].
unsafe fn fill(record: &mut Record, of: Arguments, call: &Call) {
    let done = record.result == 0;
    // SAFETY: each arm reads the arguments that the driver's header gives its function, as the caller says they are.
    unsafe {
        let made = || if done { of.pointed(0) } else { 0 };
        match call.kind {
            Kind::ALLOC | Kind::HOST_ALLOC_PLAIN | Kind::RESERVE => {
                (record.a, record.b) = (made(), of.wide(1))
            }
            Kind::ALLOC_PITCH => {
                let pitch = if done { of.pointed(1) } else { of.wide(2) };
                (record.a, record.b) = (made(), pitch.saturating_mul(of.wide(3)));
            }
            Kind::ALLOC_MANAGED | Kind::HOST_ALLOC => {
                (record.a, record.b, record.e) = (made(), of.wide(1), of.narrow(2).into());
            }
            Kind::ALLOC_ASYNC => (record.a, record.b, record.c) = (made(), of.wide(1), of.wide(2)),
            Kind::ALLOC_FROM_POOL => {
                (record.a, record.b, record.d, record.c) =
                    (made(), of.wide(1), of.wide(2), of.wide(3));
            }
            Kind::FREE | Kind::HOST_FREE | Kind::HOST_UNREGISTER | Kind::RELEASE => {
                record.a = of.wide(0)
            }
            Kind::FREE_ASYNC => (record.a, record.c) = (of.wide(0), of.wide(1)),
            Kind::HOST_REGISTER => {
                (record.a, record.b, record.e) = (of.wide(0), of.wide(1), of.narrow(2).into());
            }
            Kind::POOL_CREATE => {
                let (kind, device) = of.place(1);
                (record.d, record.e, record.device) = (made(), kind.into(), device);
            }
            Kind::POOL_DESTROY => record.d = of.wide(0),
            Kind::POOL_TRIM => (record.d, record.b) = (of.wide(0), of.wide(1)),
            Kind::POOL_SET => {
                (record.d, record.e) = (of.wide(0), of.narrow(1).into());
                let value = of.wide(2) as *const u32;
                if !value.is_null() {
                    // The first three attributes are switches of 32 bits, the others sizes.
                    let switch = record.e <= 3;
                    record.b = if switch { value.read().into() } else { of.pointed(2) };
                }
            }
            Kind::POOL_USE => {
                record.device = u8::try_from(of.narrow(0)).unwrap_or(record.device);
                record.d = of.wide(1);
            }
            Kind::CREATE => {
                let (kind, device) = of.place(2);
                (record.a, record.b, record.e, record.device) =
                    (made(), of.wide(1), kind.into(), device);
            }
            Kind::RETAIN => (record.a, record.b) = (made(), of.wide(1)),
            Kind::MAP => {
                (record.a, record.b, record.c, record.d) =
                    (of.wide(0), of.wide(1), of.wide(2), of.wide(3));
            }
            Kind::RESERVE_FREE | Kind::UNMAP | Kind::SET_ACCESS => {
                (record.a, record.b) = (of.wide(0), of.wide(1));
            }
            Kind::SYNC_STREAM => record.c = of.wide(0),
            _ => {}
        }
    }
    if call.per_thread && record.c == 0 {
        record.c = PER_THREAD_STREAM;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_a_number_and_a_name_of_its_own() {
        for (n, call) in CALLS.iter().enumerate() {
            assert!(call.name.starts_with(call.base), "{}", call.name);
            assert!(call.kind.name().is_some(), "{}", call.name);
            for other in &CALLS[..n] {
                assert!(call.cbid != other.cbid && call.name != other.name, "{}", call.name);
            }
        }
    }
}
