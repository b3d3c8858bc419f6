//! How fast the driver answers at present: the yardstick by which prices of one minute are compared with times of another.

use crate::call::{Context, Result};
use poolsim_core::Bytes;
use std::time::Instant;

const CALLS: usize = 25;
const SIZE: Bytes = 2 << 20;

/// Time of a fixed set of driver calls, in nanoseconds: `cudaMalloc` and `cudaFree` of 2 MiB, and a page of 2 MiB created,
/// mapped, given access to, unmapped and released; medians of 25 calls, added up. Takes about 5 ms.
///
/// # Errors
/// Those of the driver.
pub fn driver_pace(context: &Context) -> Result<f64> {
    let mut held = Vec::new();
    let alloc = median(|_| {
        held.push(context.alloc(SIZE)?);
        Ok(())
    });
    let free = median(|i| held.get(i).map_or(Ok(()), |&addr| context.free(addr)));
    let base = context.reserve(CALLS as Bytes * SIZE)?;
    let at = |i: usize| base + i as Bytes * SIZE;
    let mut pages = Vec::new();
    let map = median(|i| {
        let page = context.create(SIZE)?;
        pages.push(page);
        context.map(at(i), SIZE, page)?;
        context.allow_access(at(i), SIZE)
    });
    let unmap = median(|i| {
        let Some(&page) = pages.get(i) else { return Ok(()) };
        context.unmap(at(i), SIZE).and_then(|()| context.destroy(page))
    });
    context.unreserve(base, CALLS as Bytes * SIZE)?;
    Ok(alloc? + free? + map? + unmap?)
}

/// Median time of the calls.
fn median(mut call: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    let mut times = Vec::with_capacity(CALLS);
    for i in 0..CALLS {
        let start = Instant::now();
        call(i)?;
        times.push(start.elapsed().as_nanos() as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[CALLS / 2])
}
