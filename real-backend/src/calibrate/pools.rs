//! The driver's memory pools: hits, and what new, moved and released pages cost.

use super::{Bench, GIB, MIB, State};
use crate::call::Result;
use cudarc::driver::sys::{CUmemPool_attribute as Attribute, CUmemoryPool};
use poolsim_core::{Bytes, DevAddr, Nanos};
use std::time::{Duration, Instant};

/// Page of a driver pool.
const PAGE: Bytes = 32 * MIB;

const HITS: [Bytes; 7] = [512, 64 << 10, MIB, 2 * MIB, 20 * MIB, 64 * MIB, 256 * MIB];
/// Pages taken, moved and released at once.
const PAGES: [Bytes; 3] = [2, 4, 16];
/// Rounds of each, the first of which does not count.
const ROUNDS: usize = 31;
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
            result.and_then(|()| self.look())?;
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
            if round % 1000 == 0 {
                self.look()?;
            }
            let bytes = size();
            let state = State::Fragmented;
            self.counts = round >= 2000;
            // Hits cost the same at every size, as the clean ones show.
            let addr =
                self.time("cudaMallocAsync", state, 1, |c| c.pool_alloc(pool, bytes, stream))?;
            self.look_at(pool)?;
            let old = std::mem::replace(&mut kept[at], addr);
            self.time("cudaFreeAsync", state, 1, |c| c.pool_free(old, stream))?;
            self.look_at(pool)?;
            at = (at + 7) % kept.len();
        }
        kept.into_iter().try_for_each(|addr| self.context.pool_free(addr, stream))
    }

    /// What a program does between two calls, which in a tight loop would cost a fifth less: a replay asks this much.
    fn look_at(&self, pool: CUmemoryPool) -> Result<()> {
        for attribute in [
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
        ] {
            self.context.pool_bytes(pool, attribute)?;
        }
        Ok(())
    }

    fn page_costs(&mut self, pool: CUmemoryPool) -> Result<()> {
        for pages in PAGES {
            if self.batch(4 * pages * PAGE, 1) == 0 {
                return Ok(());
            }
            for round in 0..ROUNDS {
                self.counts = round > 0;
                self.one_page_round(pool, pages)?;
                if round % 5 == 0 {
                    self.look()?;
                }
            }
        }
        Ok(())
    }

    /// New pages, then scattered ones moved, then scattered ones and runs released, as times a page.
    fn one_page_round(&mut self, pool: CUmemoryPool, pages: Bytes) -> Result<()> {
        let stream = self.stream;
        let first = self.new_pages(pool, pages)?;
        let mut blocks = Vec::new();
        for _ in 0..2 * pages {
            blocks.push(self.new_pages(pool, 1)?);
        }
        // Every other block of a page is freed and waited for: the next request finds room for it only behind the last
        // block, and its pages one by one in the holes.
        self.free_each(&blocks, 2, 0)?;
        let start = Instant::now();
        let moved = self.context.pool_alloc(pool, pages * PAGE, stream)?;
        self.add_pages("pool page, moved", start.elapsed(), pages);
        self.context.pool_free(first, stream)?;
        self.context.pool_free(moved, stream)?;
        self.free_each(&blocks, 4, 1)?;
        let before = self.reserved(pool)?;
        let start = Instant::now();
        self.context.trim(pool, 0)?;
        let time = start.elapsed();
        let released = before.saturating_sub(self.reserved(pool)?) / PAGE;
        self.add_pages("pool page, released", time, released);
        self.free_each(&blocks, 4, 3)?;
        self.context.trim(pool, 0)
    }

    /// Frees every `step`th block from `first` on, and waits.
    fn free_each(&self, blocks: &[DevAddr], step: usize, first: usize) -> Result<()> {
        for &addr in blocks.iter().skip(first).step_by(step) {
            self.context.pool_free(addr, self.stream)?;
        }
        self.context.synchronize()
    }

    /// A block of new pages.
    fn new_pages(&mut self, pool: CUmemoryPool, pages: Bytes) -> Result<DevAddr> {
        let start = Instant::now();
        let addr = self.context.pool_alloc(pool, pages * PAGE, self.stream)?;
        self.add_pages("pool page, new", start.elapsed(), pages);
        Ok(addr)
    }

    /// A call that took, moved or gave back so many pages.
    fn add_pages(&mut self, call: &'static str, time: Duration, pages: Bytes) {
        if let Some(each) = (time.as_nanos() as Nanos).checked_div(pages) {
            self.add(call, State::Growing, PAGE, each);
        }
    }

    fn reserved(&self, pool: CUmemoryPool) -> Result<Bytes> {
        self.context.pool_bytes(pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    }
}
