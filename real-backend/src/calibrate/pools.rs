//! The driver's memory pools: hits, and what new, moved and released pages cost.

use super::{Bench, GIB, MIB, State};
use crate::call::Result;
use cudarc::driver::sys::{CUmemPool_attribute as Attribute, CUmemoryPool};
use poolsim_core::{Bytes, DevAddr, Nanos};
use std::time::Instant;

/// Page of a driver pool.
const PAGE: Bytes = 32 * MIB;

const HITS: [Bytes; 7] = [512, 64 << 10, MIB, 2 * MIB, 20 * MIB, 64 * MIB, 256 * MIB];
/// Pages taken, moved and released at once.
const PAGES: [Bytes; 3] = [1, 8, 32];
/// Blocks in the fragmented state.
const BLOCKS: usize = 2000;

impl Bench {
    pub(super) fn pools(&mut self) -> Result<()> {
        for run in [Bench::clean_hits, Bench::fragmented_hits, Bench::page_costs] {
            let pool = self.context.pool(0)?;
            let result =
                self.context.set_pool_bytes(pool, Bytes::MAX).and_then(|()| run(self, pool));
            let _ = self.context.synchronize();
            let _ = self.context.destroy_pool(pool);
            result?;
        }
        Ok(())
    }

    fn hit(&mut self, pool: CUmemoryPool, state: State, bytes: Bytes) -> Result<()> {
        let stream = self.stream;
        let addr =
            self.time("cudaMallocAsync", state, bytes, |c| c.pool_alloc(pool, bytes, stream))?;
        self.time("cudaFreeAsync", state, bytes, |c| c.pool_free(addr, stream))
    }

    fn clean_hits(&mut self, pool: CUmemoryPool) -> Result<()> {
        let warm = self.context.pool_alloc(pool, self.room.min(GIB), self.stream)?;
        self.context.pool_free(warm, self.stream)?;
        for bytes in HITS {
            for _ in 0..200 {
                self.hit(pool, State::Again, bytes)?;
            }
        }
        for bytes in [2 * MIB, 20 * MIB] {
            self.occupy(5_000_000)?;
            for _ in 0..200 {
                self.hit(pool, State::Busy, bytes)?;
            }
            self.context.synchronize()?;
        }
        Ok(())
    }

    /// Requests of mixed sizes among many blocks, in the order of a program that frees what it took some time ago.
    fn fragmented_hits(&mut self, pool: CUmemoryPool) -> Result<()> {
        let stream = self.stream;
        // A fixed sequence of sizes, 512 B to 8 MiB, small ones more often.
        let mut seed: u64 = 1;
        let mut size = move || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            512u64 << ((seed >> 33) % 15) & !511
        };
        let mut held: Vec<DevAddr> = Vec::new();
        for _ in 0..BLOCKS {
            held.push(self.context.pool_alloc(pool, size(), stream)?);
        }
        let mut kept = Vec::new();
        for (i, addr) in held.into_iter().enumerate() {
            if i % 2 == 0 {
                self.context.pool_free(addr, stream)?;
            } else {
                kept.push(addr);
            }
        }
        let mut at = 0;
        for round in 0..20_000 {
            let bytes = size();
            let state = State::Fragmented;
            let counts = round >= 2000;
            let start = Instant::now();
            let addr = self.context.pool_alloc(pool, bytes, stream)?;
            let taken = start.elapsed().as_nanos() as Nanos;
            let old = std::mem::replace(&mut kept[at], addr);
            let start = Instant::now();
            self.context.pool_free(old, stream)?;
            let given = start.elapsed().as_nanos() as Nanos;
            if counts {
                // Hits cost the same at every size, as the clean ones show.
                self.add("cudaMallocAsync", state, 1, taken);
                self.add("cudaFreeAsync", state, 1, given);
            }
            at = (at + 7) % kept.len();
        }
        kept.into_iter().try_for_each(|addr| self.context.pool_free(addr, stream))
    }

    fn page_costs(&mut self, pool: CUmemoryPool) -> Result<()> {
        for pages in PAGES {
            let bytes = pages * PAGE;
            if self.batch(4 * bytes, 1) == 0 {
                return Ok(());
            }
            for round in 0..(200 / pages).clamp(20, 60) {
                self.one_page_round(pool, pages, round > 0)?;
            }
        }
        Ok(())
    }

    /// New pages, moved ones, released ones, as times a page.
    fn one_page_round(&mut self, pool: CUmemoryPool, pages: Bytes, counts: bool) -> Result<()> {
        let (stream, bytes) = (self.stream, pages * PAGE);
        let new = |bench: &Bench, bytes| {
            let start = Instant::now();
            let addr = bench.context.pool_alloc(pool, bytes, stream)?;
            Ok((addr, start.elapsed().as_nanos() as Nanos / (bytes / PAGE)))
        };
        let (first, taken) = new(self, bytes)?;
        let (wall, _) = new(self, PAGE)?;
        // Freed and waited for, its pages are the only free ones, and the next request is one page too long for its
        // place: all of them move behind the wall.
        self.context.pool_free(first, stream)?;
        self.context.synchronize()?;
        let start = Instant::now();
        let moved = self.context.pool_alloc(pool, bytes + 512, stream)?;
        let time = start.elapsed().as_nanos() as Nanos;
        for addr in [wall, moved] {
            self.context.pool_free(addr, stream)?;
        }
        self.context.synchronize()?;
        let held =
            self.context.pool_bytes(pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        let start = Instant::now();
        self.context.trim(pool, 0)?;
        let released = start.elapsed().as_nanos() as Nanos / (held / PAGE).max(1);
        if counts {
            self.add("pool page, new", State::Growing, PAGE, taken);
            // One page of the request was new.
            self.add("pool page, moved", State::Growing, PAGE, time.saturating_sub(taken) / pages);
            self.add("pool page, released", State::Growing, PAGE, released);
        }
        Ok(())
    }
}
