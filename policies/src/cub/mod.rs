//! CUB's caching device allocator.

mod bins;
mod cache;

use crate::arena::{Arena, TOO_LARGE};
use crate::deferred::DeferredFrees;
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind, Params};
use crate::registry::{BuildEnv, OomRule, PolicyDef, no_version, no_warnings};
use bins::BinSizes;
use cache::Cache;
use poolsim_core::{
    Action, AllocError, AllocRequest, BlockId, Bytes, ConfigError, Device, DeviceError, DeviceOp,
    Grant, HeapVisitor, Policy, PoolId, PoolStats, StreamId,
};

const fn number(key: &'static str, min: u64, max: u64, default: &'static str) -> ParamDef {
    ParamDef {
        key,
        kind: ParamKind::UInt { min, max },
        default: ParamDefault::Is(default),
        unit: "",
        doc: "",
        effect: Effect::Simulated,
    }
}

const GROWTH: ParamDef = ParamDef {
    doc: "Each bin's blocks are this many times as large as those of the bin before it.",
    ..number("bin_growth", 2, 1 << 16, "8")
};

const MIN: ParamDef = ParamDef {
    doc: "The smallest bin has blocks of `bin_growth` to this power bytes.",
    ..number("min_bin", 0, 31, "3")
};

const MAX: ParamDef = ParamDef {
    doc: "The largest bin has blocks of `bin_growth` to this power bytes, below 4 GiB.",
    ..number("max_bin", 0, 31, "7")
};

const CACHED: ParamDef = ParamDef {
    key: "max_cached_bytes",
    kind: ParamKind::Bytes { min: 0, multiple_of: 1 },
    default: ParamDefault::Unset("three blocks of the largest bin, less one byte"),
    unit: "bytes",
    doc: "What may be kept of freed blocks.",
    effect: Effect::Simulated,
};

/// `cub`.
pub static DEF: PolicyDef = PolicyDef {
    name: "cub",
    aliases: &[],
    presets: &[],
    summary: "CUB's CachingDeviceAllocator: whole cudaMallocs kept in bins of growing sizes, up to a cap",
    rules: "A request is rounded up to a power of `bin_growth`, from `min_bin` to `max_bin`. The blocks of a bin all have its size; none is ever split or merged.\n\
            Of the bin's cached blocks, that which was freed first serves it, if it was last used on the request's stream, or if the \
            event that was recorded on its stream when it was freed has passed; else the next one.\n\
            Failing that, a block is taken with cudaMalloc. If the device is full, all cached blocks are given back first.\n\
            A request above the largest bin is a cudaMalloc of its very size, and a cudaFree when it is freed.\n\
            A freed block is kept in its bin if all that is kept stays within `max_cached_bytes`, and else given back.\n\
            empty_cache is FreeAllCached. CUB leaves it to the program to wait for other streams that used a block; here \
            the free waits for them.",
    source: "CUB, cub/util_allocator.cuh (NVIDIA/cccl, 2026)",
    checked_against: "the numbers that CUB's own test of it states (cub/test/test_allocator.cu); no recording",
    params: &[GROWTH, MIN, MAX, CACHED],
    refuses: &[OomRule::CacheReleased, OomRule::NothingFits, OomRule::DeviceLacks],
    version: no_version,
    check: no_warnings,
    build: |p, env| Ok(Box::new(Cub::new(p, env)?)),
};

/// CUB's caching allocator as a policy.
///
/// Every block covers a range of its own. A block, cached or in use, lies in the lane of the stream that it was last
/// asked for.
#[derive(Clone, Debug)]
pub struct Cub {
    arena: Arena,
    deferred: DeferredFrees,
    sizes: BinSizes,
    cache: Cache,
    max_cached: Bytes,
    /// Blocks that the device did not take back.
    refused: Vec<BlockId>,
}

impl Cub {
    /// An empty allocator with the parameters of `cub`; a memory fraction in `env` limits what it holds.
    pub fn new(params: &Params, env: &BuildEnv) -> Result<Self, ConfigError> {
        let exponents = (params.uint(MIN.key), params.uint(MAX.key));
        let sizes = BinSizes::new(params.uint(GROWTH.key), exponents)?;
        let limit = env.memory_fraction.map(|x| (env.caps.total as f64 * x) as Bytes);
        let max_cached = params.bytes_if_set(CACHED.key);
        Ok(Cub {
            arena: Arena::with_limit(limit),
            deferred: DeferredFrees::default(),
            cache: Cache::new(sizes.count()),
            max_cached: max_cached.unwrap_or(sizes.largest() * 3 - 1),
            sizes,
            refused: Vec::new(),
        })
    }

    fn stream_of(&self, block: BlockId) -> StreamId {
        self.arena.lane(self.arena.lane_of(block)).stream
    }

    /// Learns which fences have passed. The device's count of queries is left alone: CUB queries when it looks at a
    /// block, which [`Cub::search`] counts.
    fn poll(&mut self, dev: &mut dyn Device) -> bool {
        dev.set_metered(false);
        let (mut settled, mut others) = (Vec::new(), Vec::new());
        self.deferred.settle_beside(dev, &mut settled, &mut others);
        dev.set_metered(true);
        self.cache.passed(others);
        let any = !settled.is_empty();
        for block in settled {
            let (addr, size) = (self.arena.addr(block), self.arena.requested(block));
            dev.note(Action::FreeCompleted, addr, size, self.stream_of(block));
            self.arena.vacate(block);
            self.put(dev, block);
        }
        any
    }

    /// The first cached block of a bin that `stream` may use, out of the cache.
    #[inline]
    fn search(&mut self, dev: &mut dyn Device, bin: usize, stream: StreamId) -> Option<BlockId> {
        let (mut at, mut queries) = (0, 0);
        let found = loop {
            let Some(block) = self.cache.get(bin, at) else { break None };
            if self.stream_of(block) == stream {
                break Some(block);
            }
            if queries == 0 {
                self.poll(dev);
            }
            queries += 1;
            if self.cache.is_ready(block) {
                break Some(block);
            }
            at += 1;
        };
        if queries > 0 {
            dev.charge(DeviceOp::Query, queries, 0);
        }
        let block = found?;
        self.cache.take(bin, at, self.arena.size(block));
        Some(block)
    }

    /// A free block for a request, in no bin.
    fn obtain(&mut self, dev: &mut dyn Device, req: &AllocRequest) -> Result<BlockId, DeviceError> {
        let bin = self.sizes.bin(req.size);
        if let Some(block) = bin.and_then(|bin| self.search(dev, bin, req.stream)) {
            return Ok(block);
        }
        let size = bin.map_or(req.size, |bin| self.sizes.size(bin));
        let lane = self.arena.lane_for(req.stream, PoolId::DEFAULT);
        match self.arena.reserve_exactly(dev, size, lane) {
            Err(DeviceError::OutOfMemory { .. } | DeviceError::OutOfAddresses { .. }) => {
                self.give_cache_back(dev);
                self.arena.reserve_exactly(dev, size, lane)
            }
            answer => answer,
        }
    }

    /// A block that is free from now on is kept, or given back.
    #[inline]
    fn put(&mut self, dev: &mut dyn Device, block: BlockId) {
        let block = self.arena.merge(block, None, None);
        let size = self.arena.size(block);
        match self.sizes.bin_of(size) {
            Some(bin) if self.cache.bytes() + size <= self.max_cached => {
                let stream = self.stream_of(block);
                self.cache.put(dev, bin, block, size, stream);
            }
            _ => self.give_back(dev, block),
        }
    }

    fn give_back(&mut self, dev: &mut dyn Device, block: BlockId) {
        if self.arena.release(dev, self.arena.range_of(block)).is_err() {
            self.refused.push(block);
        }
    }

    /// Gives all cached blocks back.
    #[cold]
    fn give_cache_back(&mut self, dev: &mut dyn Device) {
        let mut blocks = std::mem::take(&mut self.refused);
        blocks.extend(self.cache.clear());
        blocks.into_iter().for_each(|block| self.give_back(dev, block));
    }

    /// Waits for the streams that use blocks freed before. Returns whether any became free.
    #[cold]
    fn wait_for_frees(&mut self, dev: &mut dyn Device) -> bool {
        !self.deferred.is_empty() && self.deferred.synchronize(dev).is_ok() && self.poll(dev)
    }
}

impl Policy for Cub {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        let rounded = self.sizes.bin(req.size).map_or(req.size, |bin| self.sizes.size(bin));
        if req.size >= TOO_LARGE {
            return Err(self.arena.refuse(dev, req.size, rounded, 0));
        }
        if !self.deferred.is_empty() || self.cache.has_many_fences() {
            self.poll(dev);
        }
        let block = loop {
            match self.obtain(dev, &req) {
                Ok(block) => break block,
                Err(DeviceError::OutOfMemory { .. } | DeviceError::OutOfAddresses { .. }) => {
                    if !self.wait_for_frees(dev) {
                        let largest = self.arena.largest_free(PoolId::DEFAULT);
                        return Err(self.arena.refuse(dev, req.size, rounded, largest));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        };
        let lane = self.arena.lane_for(req.stream, PoolId::DEFAULT);
        self.arena.occupy(block, self.arena.size(block), &req);
        self.arena.move_to_lane(block, lane);
        Ok(self.arena.grant(block))
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        if self.arena.is_shared(block) {
            self.arena.suspend(block);
            self.deferred.defer(dev, block);
        } else {
            self.arena.vacate(block);
            self.put(dev, block);
        }
    }

    fn record_stream(&mut self, _: &mut dyn Device, block: BlockId, stream: StreamId) {
        if self.stream_of(block) != stream {
            self.arena.share(block);
            self.deferred.note_use(block, stream);
        }
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        let held = self.stats().reserved.current;
        self.wait_for_frees(dev);
        self.give_cache_back(dev);
        held - self.stats().reserved.current
    }

    fn stats(&self) -> &PoolStats {
        self.arena.stats()
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.arena.visit(visitor);
    }

    fn native_stats(&self) -> Vec<(String, i64)> {
        [
            ("cached_blocks", self.cache.blocks() as u64),
            ("cached_bytes.free", self.cache.bytes()),
            ("cached_bytes.live", self.stats().active.current),
        ]
        .map(|(name, value)| (name.into(), value as i64))
        .to_vec()
    }
}
