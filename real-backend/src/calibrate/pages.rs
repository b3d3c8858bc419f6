//! Reserving, creating, mapping and their opposites.

use super::{Bench, GIB, MIB, State};
use crate::call::Result;
use poolsim_core::{Bytes, DevAddr};

const SIZES: [Bytes; 7] = [2 * MIB, 20 * MIB, 64 * MIB, 256 * MIB, GIB, 4 * GIB, 16 * GIB];

/// Lengths to which access is given in one call, in pages of 20 MiB, as growing expandable segments do.
const RUNS: [Bytes; 5] = [1, 4, 16, 64, 256];
const PAGE: Bytes = 20 * MIB;
/// How much is mapped in one go, in at most so many runs, and how often.
const GROWN: Bytes = 10 * GIB;
const MOST_RUNS: Bytes = 100;
const ROUNDS: usize = 3;

/// Other mappings in the crowded state.
const CROWD: Bytes = 1000;

impl Bench {
    pub(super) fn pages(&mut self) -> Result<()> {
        for bytes in SIZES {
            self.counts = false;
            self.single_pages(bytes, State::Growing, 2)?;
            self.counts = true;
            self.single_pages(bytes, State::Growing, self.samples(bytes))?;
        }
        self.growing_range()?;
        if self.batch(CROWD * 2 * MIB, 1) == 0 {
            return Ok(());
        }
        let crowd = self.context.reserve(CROWD * 2 * MIB)?;
        let mut handles = Vec::new();
        let mut result = (0..CROWD).try_for_each(|i| {
            let handle = self.context.create(2 * MIB)?;
            self.context.map(crowd + i * 2 * MIB, 2 * MIB, handle)?;
            handles.push(handle);
            Ok(())
        });
        for bytes in [2 * MIB, 20 * MIB, 256 * MIB] {
            result = result.and_then(|()| self.single_pages(bytes, State::Crowded, 50));
        }
        for (i, handle) in (0..).zip(handles) {
            let _ = self.context.unmap(crowd + i * 2 * MIB, 2 * MIB);
            let _ = self.context.destroy(handle);
        }
        let _ = self.context.unreserve(crowd, CROWD * 2 * MIB);
        result
    }

    /// Maps `n` pages one after another into a range of their own each, and takes them away in the same order.
    fn single_pages(&mut self, bytes: Bytes, state: State, n: usize) -> Result<()> {
        let mut left = n;
        while left > 0 {
            let batch = self.batch(bytes, left);
            if batch == 0 {
                return Ok(());
            }
            let mut held = Vec::with_capacity(batch);
            for _ in 0..batch {
                held.push(self.map_page(bytes, state)?);
            }
            for (addr, handle) in held {
                self.unmap_page(addr, handle, bytes, state)?;
            }
            self.rest(batch as Bytes * bytes)?;
            left -= batch;
        }
        Ok(())
    }

    fn map_page(&mut self, bytes: Bytes, state: State) -> Result<(DevAddr, u64)> {
        let addr = self.time("cuMemAddressReserve", state, bytes, |c| c.reserve(bytes))?;
        let handle = self.time("cuMemCreate", state, bytes, |c| c.create(bytes))?;
        self.time("cuMemMap", state, bytes, |c| c.map(addr, bytes, handle))?;
        self.time("cuMemSetAccess", state, bytes, |c| c.allow_access(addr, bytes))?;
        Ok((addr, handle))
    }

    fn unmap_page(&mut self, addr: DevAddr, handle: u64, bytes: Bytes, state: State) -> Result<()> {
        self.time("cuMemUnmap", state, bytes, |c| c.unmap(addr, bytes))?;
        self.time("cuMemRelease", state, bytes, |c| c.destroy(handle))?;
        self.time("cuMemAddressFree", state, bytes, |c| c.unreserve(addr, bytes))
    }

    /// Addresses for an eighth more than the device has, as PyTorch's expandable segments reserve them, in which runs of
    /// pages are appended until a part of the memory is mapped, and taken away from the front.
    fn growing_range(&mut self) -> Result<()> {
        let total = self.context.memory()?.1;
        let len = (total + total / 8).next_multiple_of(PAGE);
        for _ in 0..20 {
            let base = self.time("cuMemAddressReserve", State::Growing, len, |c| c.reserve(len))?;
            self.time("cuMemAddressFree", State::Growing, len, |c| c.unreserve(base, len))?;
        }
        let base = self.context.reserve(len)?;
        let mut result = Ok(());
        for run in RUNS {
            for _ in 0..ROUNDS {
                result = result.and_then(|()| self.runs_of_pages(base, run));
            }
        }
        result.and_then(|()| self.context.unreserve(base, len))
    }

    /// Appends runs of so many pages until some GiB are mapped, then takes all away.
    fn runs_of_pages(&mut self, base: DevAddr, pages: Bytes) -> Result<()> {
        let runs = (GROWN / PAGE / pages).clamp(1, MOST_RUNS);
        let mut handles = Vec::new();
        for run in 0..self.batch(runs * pages * PAGE, 1) as Bytes * runs {
            for _ in 0..pages {
                handles
                    .push(self.time("cuMemCreate.run", State::Growing, PAGE, |c| c.create(PAGE))?);
            }
            let start = run * pages;
            for i in start..start + pages {
                let (addr, handle) = (base + i * PAGE, handles[i as usize]);
                self.time("cuMemMap.run", State::Growing, PAGE, |c| c.map(addr, PAGE, handle))?;
            }
            let (addr, len) = (base + start * PAGE, pages * PAGE);
            self.time("cuMemSetAccess.run", State::Growing, len, |c| c.allow_access(addr, len))?;
        }
        for (i, &handle) in (0..).zip(&handles) {
            let addr = base + i * PAGE;
            self.time("cuMemUnmap.run", State::Growing, PAGE, |c| c.unmap(addr, PAGE))?;
            self.time("cuMemRelease.run", State::Growing, PAGE, |c| c.destroy(handle))?;
        }
        self.rest(handles.len() as Bytes * PAGE)
    }
}
