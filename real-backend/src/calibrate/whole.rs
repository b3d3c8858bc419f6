//! `cudaMalloc` and `cudaFree`.

use super::{Bench, GIB, MIB, State};
use crate::call::Result;
use poolsim_core::{Bytes, DevAddr};

const SIZES: [Bytes; 11] =
    [512, 64 << 10, MIB, 2 * MIB, 20 * MIB, 64 * MIB, 256 * MIB, GIB, 4 * GIB, 16 * GIB, 64 * GIB];

/// Other allocations in the crowded state.
const CROWD: usize = 1000;
/// How long the other stream works in the busy state; `cudaFree` waits for it, `cudaMalloc` need not.
const WORK: u64 = 200_000;

impl Bench {
    pub(super) fn whole(&mut self) -> Result<()> {
        for bytes in SIZES {
            // A round that does not count: the driver sets things up at the first call of a size.
            self.counts = false;
            self.grow_whole(bytes, State::Growing, 2)?;
            self.counts = true;
            self.grow_whole(bytes, State::Growing, self.samples(bytes))?;
            self.again_whole(bytes)?;
        }
        for bytes in [2 * MIB, 20 * MIB, 256 * MIB] {
            self.busy_whole(bytes)?;
        }
        self.crowded_whole()
    }

    fn grow_whole(&mut self, bytes: Bytes, state: State, n: usize) -> Result<()> {
        let mut left = n;
        while left > 0 {
            let batch = self.batch(bytes, left);
            if batch == 0 {
                return Ok(());
            }
            let mut held: Vec<DevAddr> = Vec::with_capacity(batch);
            for _ in 0..batch {
                match self.time("cudaMalloc", state, bytes, |c| c.alloc(bytes)) {
                    Ok(addr) => held.push(addr),
                    Err(e) => {
                        held.iter().for_each(|&addr| drop(self.context.free(addr)));
                        return Err(e);
                    }
                }
            }
            for addr in held {
                self.time("cudaFree", state, bytes, |c| c.free(addr))?;
            }
            self.rest(batch as Bytes * bytes)?;
            left -= batch;
        }
        Ok(())
    }

    fn again_whole(&mut self, bytes: Bytes) -> Result<()> {
        if self.batch(bytes, 1) == 0 {
            return Ok(());
        }
        for _ in 0..self.samples(bytes).min(50) {
            let addr = self.time("cudaMalloc", State::Again, bytes, |c| c.alloc(bytes))?;
            self.time("cudaFree", State::Again, bytes, |c| c.free(addr))?;
        }
        self.look()
    }

    fn busy_whole(&mut self, bytes: Bytes) -> Result<()> {
        for _ in 0..30 {
            self.occupy(WORK)?;
            let addr = self.time("cudaMalloc", State::Busy, bytes, |c| c.alloc(bytes))?;
            self.context.synchronize()?;
            self.occupy(WORK)?;
            self.time("cudaFree", State::Busy, bytes, |c| c.free(addr))?;
            self.context.synchronize()?;
        }
        self.look()
    }

    fn crowded_whole(&mut self) -> Result<()> {
        let crowd = self.batch(4 * MIB, CROWD);
        let held: Vec<DevAddr> =
            (0..crowd).map_while(|_| self.context.alloc(4 * MIB).ok()).collect();
        let mut result = Ok(());
        for bytes in [2 * MIB, 20 * MIB, 256 * MIB] {
            result = result.and_then(|()| self.grow_whole(bytes, State::Crowded, 50));
        }
        held.iter().for_each(|&addr| drop(self.context.free(addr)));
        result
    }
}
