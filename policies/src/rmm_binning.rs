//! RMM's `binning_memory_resource` over a pool.

use crate::ordered::{Ordered, Refusal, Serves, malloc};
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind};
use crate::registry::{PolicyDef, no_warnings};
use crate::rmm_pool::lists::{Equal, StreamLists};
use crate::rmm_pool::pool::{ALIGN, Pool};
use crate::rmm_pool::{DEFAULT_STREAM, INITIAL, MAXIMUM, VERSION, build_pool};
use poolsim_core::{
    AllocError, AllocRequest, BlockId, Bytes, ConfigError, Device, DeviceOp, Grant, HeapVisitor,
    Policy, PoolId, PoolStats, StreamId,
};

/// Blocks that a bin takes from the pool at a time.
const CHUNK_BLOCKS: Bytes = 128;

const fn exponent(key: &'static str, default: &'static str, doc: &'static str) -> ParamDef {
    ParamDef {
        key,
        kind: ParamKind::UInt { min: 8, max: 30 },
        default: ParamDefault::Is(default),
        unit: "",
        doc,
        effect: Effect::Simulated,
    }
}

const MIN: ParamDef =
    exponent("min_size_exponent", "12", "The smallest bin has blocks of 2 to this power bytes.");
const MAX: ParamDef =
    exponent("max_size_exponent", "22", "The largest bin has blocks of 2 to this power bytes.");

/// `rmm-binning`.
pub static DEF: PolicyDef = PolicyDef {
    name: "rmm-binning",
    aliases: &[],
    presets: &[],
    summary: "RAPIDS RMM's bins of fixed-size blocks over its pool",
    rules: "There is a bin for each power of two from `min_size_exponent` to `max_size_exponent`. A request goes to the \
            smallest bin whose blocks suffice, a larger one to the pool, which is `rmm-pool`.\n\
            A bin hands out the block that came first into its stream's list; failing that, one from another stream's list, \
            or from all lists joined, as the pool does. Failing that, it takes 128 blocks from the pool.\n\
            Each bin takes its first 128 blocks before the first request is served, for CUDA's default stream, and no bin ever gives memory back to the \
            pool.\n\
            empty_cache stands for destroying bins and pool, and does nothing while the program holds a block.",
    source: "RAPIDS RMM, cpp/src/mr/detail: binning_memory_resource_impl.cpp and fixed_size_memory_resource_impl.cpp",
    checked_against: "recordings of RMM 26.10 on an H200: every pointer and every byte taken from the pool, on one stream",
    params: &[MIN, MAX, INITIAL, MAXIMUM, DEFAULT_STREAM],
    // Before the bins have their first blocks every request is refused, however small.
    refuses: &[],
    version: |_| VERSION.into(),
    check: no_warnings,
    build: |p, env| {
        let (min, max) = (p.uint(MIN.key), p.uint(MAX.key));
        if min > max {
            let (min, max) = (MIN.key, MAX.key);
            return Err(ConfigError(format!("`{min}` is larger than `{max}`; swap them")));
        }
        Ok(Box::new(RmmBinning::new(min, max, build_pool(p, env)?)))
    },
};

#[derive(Clone, Debug)]
struct Bin {
    size: Bytes,
    free: StreamLists<Equal>,
}

/// RMM's bins over its pool as a policy.
///
/// A bin's blocks are free blocks of the pool's arena in lanes of their own, which the pool does not merge: bin
/// `i` on a stream is the lane of the pool `i + 1` on that stream.
#[derive(Clone, Debug)]
pub struct RmmBinning {
    pool: Pool,
    bins: Vec<Bin>,
    /// Bytes that bins and large requests asked of the pool and did not give back.
    upstream: Bytes,
    started: bool,
}

impl RmmBinning {
    fn new(min: u64, max: u64, pool: Pool) -> Self {
        let bin = |exponent| Bin { size: 1u64 << exponent, free: StreamLists::default() };
        RmmBinning { pool, bins: (min..=max).map(bin).collect(), upstream: 0, started: false }
    }

    /// Gives every bin its first blocks. If the pool refuses any, RMM's constructor fails and all memory goes back.
    #[cold]
    fn start(&mut self, dev: &mut dyn Device) -> Result<(), Refusal> {
        for bin in 0..self.bins.len() {
            if let Err(refusal) = self.fill(dev, bin, self.pool.default_stream()) {
                self.destroy(dev);
                return Err(refusal);
            }
        }
        self.started = true;
        Ok(())
    }

    #[cold]
    fn fill(&mut self, dev: &mut dyn Device, bin: usize, stream: StreamId) -> Result<(), Refusal> {
        let (pool, Bin { size, free }) = (&mut self.pool, &mut self.bins[bin]);
        let (size, chunk) = (*size, *size * CHUNK_BLOCKS);
        let lane = pool.lane(stream);
        let mut block = pool.take(dev, chunk, lane)?;
        self.upstream += chunk;
        let lane = pool.heap.arena.lane_for(stream, PoolId(bin as u16 + 1));
        let over =
            (pool.heap.arena.size(block) > chunk).then(|| pool.heap.arena.split(block, chunk));
        // Out of the pool's lane first: the pool would merge the rest with it.
        pool.heap.arena.move_to_lane(block, lane);
        if let Some(over) = over {
            pool.put(over);
        }
        for _ in 1..CHUNK_BLOCKS {
            let rest = pool.heap.arena.split(block, size);
            free.put(&mut pool.heap.arena, block);
            block = rest;
        }
        free.put(&mut pool.heap.arena, block);
        Ok(())
    }

    /// The smallest bin whose blocks suffice.
    #[inline]
    fn bin_for(&self, size: Bytes) -> Option<usize> {
        let smallest = self.bins[0].size.trailing_zeros();
        let bin = size.next_power_of_two().trailing_zeros().saturating_sub(smallest) as usize;
        (bin < self.bins.len()).then_some(bin)
    }

    fn take_from_bin(
        &mut self,
        dev: &mut dyn Device,
        bin: usize,
        req: &AllocRequest,
    ) -> Result<BlockId, Refusal> {
        let lane = self.pool.heap.arena.lane_for(req.stream, PoolId(bin as u16 + 1));
        let block = loop {
            let Bin { size, free } = &mut self.bins[bin];
            if let Some(block) = free.take(&mut self.pool.heap, dev, *size, lane) {
                break block;
            }
            self.fill(dev, bin, req.stream)?;
        };
        let arena = &mut self.pool.heap.arena;
        arena.occupy(block, arena.size(block), req);
        arena.move_to_lane(block, lane);
        Ok(block)
    }

    fn take_from_pool(
        &mut self,
        dev: &mut dyn Device,
        req: &AllocRequest,
        size: Bytes,
    ) -> Result<BlockId, Refusal> {
        let lane = self.pool.lane(req.stream);
        let block = self.pool.take(dev, size, lane)?;
        if let Some(rest) = self.pool.heap.arena.occupy(block, size, req) {
            self.pool.put(rest);
        }
        self.pool.heap.arena.move_to_lane(block, lane);
        self.upstream += req.size;
        Ok(block)
    }

    /// Puts a free block back to where it came from.
    fn put(&mut self, block: BlockId) {
        let arena = &mut self.pool.heap.arena;
        match arena.lane(arena.lane_of(block)).pool {
            PoolId::DEFAULT => {
                self.upstream -= arena.requested(block);
                self.pool.put(block);
            }
            bin => self.bins[bin.index() - 1].free.put(arena, block),
        }
    }

    fn destroy(&mut self, dev: &mut dyn Device) -> Bytes {
        for bin in &mut self.bins {
            bin.free = StreamLists::default();
        }
        (self.upstream, self.started) = (0, false);
        self.pool.destroy(dev)
    }
}

impl Serves for RmmBinning {
    #[inline]
    fn heap(&mut self) -> &mut Ordered {
        &mut self.pool.heap
    }

    #[inline]
    fn rounded(&self, asked: Bytes) -> Bytes {
        let bin = self.bin_for(asked).map(|bin| self.bins[bin].size);
        bin.unwrap_or_else(|| asked.next_multiple_of(ALIGN))
    }

    #[inline]
    fn serve(
        &mut self,
        dev: &mut dyn Device,
        req: &AllocRequest,
        size: Bytes,
    ) -> Result<BlockId, Refusal> {
        if !self.started {
            self.start(dev)?;
        }
        match self.bin_for(req.size) {
            Some(bin) => self.take_from_bin(dev, bin, req),
            None => self.take_from_pool(dev, req, size),
        }
    }

    fn complete(&mut self, block: BlockId) {
        self.pool.heap.arena.vacate(block);
        self.put(block);
    }
}

impl Policy for RmmBinning {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        malloc(self, dev, &req)
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        dev.charge(DeviceOp::Record, 1, 0);
        if self.pool.heap.retire(dev, block) {
            self.put(block);
        }
    }

    fn record_stream(&mut self, _: &mut dyn Device, block: BlockId, stream: StreamId) {
        self.pool.heap.record_stream(block, stream);
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        for block in self.pool.heap.last_frees(dev) {
            self.complete(block);
        }
        if self.pool.heap.is_unused() { self.destroy(dev) } else { 0 }
    }

    fn stats(&self) -> &PoolStats {
        self.pool.heap.arena.stats()
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.pool.heap.arena.visit(visitor);
    }

    fn native_stats(&self) -> Vec<(String, i64)> {
        vec![
            ("upstream_bytes".into(), self.upstream as i64),
            ("pool_size".into(), self.stats().reserved.current as i64),
        ]
    }
}
