//! The bounds that follow from sizes alone.

use super::Lifetimes;
use poolsim_core::Bytes;
use serde::Serialize;

/// Bytes that a trace needs at least, under ever more rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// Highest sum of sizes live at once if every free were complete at once. Nothing can be below it.
    pub live_without_waiting: Bytes,
    /// Highest sum of sizes live at once, frees that wait for other streams included.
    pub live: Bytes,
    /// The same with each size rounded up to the alignment.
    pub rounded: Bytes,
    /// `rounded` in whole granules of the device.
    pub granular: Bytes,
}

impl Bounds {
    /// Those of a trace.
    pub fn of(lifetimes: &Lifetimes, alignment: Bytes, granule: Bytes) -> Bounds {
        let rounded = lifetimes.peak(|item| item.size.next_multiple_of(alignment));
        Bounds {
            live_without_waiting: lifetimes.peak_without_waiting(),
            live: lifetimes.peak(|item| item.size),
            rounded,
            granular: rounded.next_multiple_of(granule),
        }
    }
}
