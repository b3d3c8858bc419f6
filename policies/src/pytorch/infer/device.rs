//! How large the recorded device was, where the recording does not say it.
//!
//! An expandable reservation is nine eighths of the device's memory long, and the driver lays reservations side by side.
//! So the distance between two of them tells the memory, to within a page.

use super::super::config::Config;
use poolsim_core::device::DeviceCaps;
use poolsim_core::recording::Recording;
use poolsim_core::units::{Bytes, DevAddr, GIB, MIB};
use std::collections::BTreeMap;

/// Total memory of the device of a recording that gives no hint of it: an H200's.
pub const UNKNOWN_DEVICE_TOTAL: Bytes = 150_109_880_320;

/// The driver aligns reservations to this.
const RESERVE_ALIGN: Bytes = 32 * MIB;
/// No device has less memory than this.
const LEAST: Bytes = GIB;

/// The device's total memory: as the recording says, else as the distance of reservations tells; `None` without hint.
pub(super) fn total(rec: &Recording, config: &Config) -> Option<Bytes> {
    rec.header.device_memory.or_else(|| {
        let apart = closest(rec)?;
        // The last page of a reservation may reach past nine eighths.
        let total = apart.checked_sub(config.large_segment_size)? / 9 * 8;
        (total >= LEAST).then_some(total)
    })
}

/// The smallest distance between the first addresses of two reservations that the final heap tells apart.
fn closest(rec: &Recording) -> Option<Bytes> {
    let mut bases: BTreeMap<_, DevAddr> = BTreeMap::new();
    for (r, _) in rec.heap.ranges.iter().filter(|(r, _)| r.expandable) {
        let base = bases.entry((r.pool, r.stream, r.small)).or_insert(r.addr);
        *base = (*base).min(r.addr);
    }
    let mut bases: Vec<DevAddr> = bases.into_values().collect();
    bases.sort_unstable();
    let apart = bases.windows(2).map(|w| (w[1] - w[0]) / RESERVE_ALIGN * RESERVE_ALIGN);
    apart.min()
}

/// What the allocator sees of a device of this size.
pub(super) fn caps(rec: &Recording, total: Option<Bytes>) -> DeviceCaps {
    DeviceCaps {
        name: rec.header.device_name.clone().unwrap_or_default(),
        total: total.unwrap_or(UNKNOWN_DEVICE_TOTAL),
        granule: 2 * MIB,
        range_align: 2 * MIB,
        paged: true,
    }
}
