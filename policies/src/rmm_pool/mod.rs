//! RMM's `pool_memory_resource`.

pub mod lists;
pub mod pool;

use crate::ordered::{Ordered, Refusal, Serves, malloc};
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind, Params};
use crate::registry::{BuildEnv, OomRule, PolicyDef, no_warnings};
use pool::{ALIGN, Pool, Settings};
use poolsim_core::{
    AllocError, AllocRequest, BlockId, Bytes, ConfigError, Device, Grant, HeapVisitor, Policy,
    PoolStats, StreamId,
};

/// The RMM release that the policies named `rmm-…` were checked against.
pub const VERSION: &str = "RAPIDS RMM 26.10";

/// `initial_pool_size`.
pub const INITIAL: ParamDef = ParamDef {
    key: "initial_pool_size",
    kind: ParamKind::Bytes { min: 0, multiple_of: ALIGN },
    default: ParamDefault::Is("0"),
    unit: "bytes",
    doc: "What the pool takes from the device at the first request.",
    effect: Effect::Simulated,
};

/// `maximum_pool_size`.
pub const MAXIMUM: ParamDef = ParamDef {
    key: "maximum_pool_size",
    kind: ParamKind::Bytes { min: ALIGN, multiple_of: ALIGN },
    default: ParamDefault::Unset("unlimited"),
    unit: "bytes",
    doc: "What the pool may hold at most.",
    effect: Effect::Simulated,
};

/// `default_stream`.
pub const DEFAULT_STREAM: ParamDef = ParamDef {
    key: "default_stream",
    kind: ParamKind::Bool,
    default: ParamDefault::Is("False"),
    unit: "",
    doc: "Whether the trace's first stream is CUDA's default stream, to which RMM gives what it takes before any request.",
    effect: Effect::Simulated,
};

/// `rmm-pool`.
pub static DEF: PolicyDef = PolicyDef {
    name: "rmm-pool",
    aliases: &[],
    presets: &[],
    summary: "RAPIDS RMM's pool: best fit over a pool that doubles and never shrinks",
    rules: "A request is rounded up to a multiple of 256 bytes and served by the smallest free block in its stream's list \
            that is large enough, the lowest address among equals; the rest of the block goes back to its list.\n\
            Failing that, the other streams' lists are tried in the order in which the streams came up; the stream waits \
            for what the other stream has done. Failing that, the other lists are joined to its own until a block fits.\n\
            Failing that, the pool takes a range from the device: as much again as it holds, at least the request; \
            under `maximum_pool_size` half of what that leaves. If the device refuses, half of it, down to the request.\n\
            A freed block goes into the list of the stream that it was asked for and merges with its neighbours there, not \
            across ranges. One that other streams used waits for them first.\n\
            What the pool takes before the first request (`initial_pool_size`) is in the list of CUDA's default stream.\n\
            Nothing goes back to the device, as RMM has no call for it. empty_cache stands for destroying the pool, and does \
            nothing while the program holds a block.",
    source: "RAPIDS RMM, cpp/include/rmm/mr/detail: stream_ordered_memory_resource.hpp, coalescing_free_list.hpp, and \
             cpp/src/mr/detail/pool_memory_resource_impl.cpp",
    checked_against: "recordings of RMM 26.10 on an H200: every pointer and every byte held, on one stream; its own unit tests",
    params: &[INITIAL, MAXIMUM, DEFAULT_STREAM],
    refuses: &[OomRule::NothingFits, OomRule::DeviceLacks],
    version: |_| VERSION.into(),
    check: no_warnings,
    build: |p, env| Ok(Box::new(RmmPool { pool: build_pool(p, env)? })),
};

/// The pool that [`INITIAL`] and [`MAXIMUM`] describe.
pub fn build_pool(params: &Params, env: &BuildEnv) -> Result<Pool, ConfigError> {
    let (initial, maximum) = (params.bytes(INITIAL.key), params.bytes_if_set(MAXIMUM.key));
    if maximum.is_some_and(|maximum| initial > maximum) {
        return Err(ConfigError(format!(
            "`{}` is larger than `{}`; lower the one or raise the other",
            INITIAL.key, MAXIMUM.key
        )));
    }
    let default_stream =
        if params.bool(DEFAULT_STREAM.key) { StreamId(0) } else { lists::NO_STREAM };
    Ok(Pool::new(Settings { initial, maximum, default_stream }, env))
}

/// RMM's pool as a policy.
#[derive(Clone, Debug)]
pub struct RmmPool {
    pool: Pool,
}

impl Serves for RmmPool {
    #[inline]
    fn heap(&mut self) -> &mut Ordered {
        &mut self.pool.heap
    }

    #[inline]
    fn rounded(&self, asked: Bytes) -> Bytes {
        asked.next_multiple_of(ALIGN)
    }

    #[inline]
    fn serve(
        &mut self,
        dev: &mut dyn Device,
        req: &AllocRequest,
        size: Bytes,
    ) -> Result<BlockId, Refusal> {
        let pool = &mut self.pool;
        let lane = pool.lane(req.stream);
        let block = pool.take(dev, size, lane)?;
        if let Some(rest) = pool.heap.arena.occupy(block, size, req) {
            pool.put(rest);
        }
        pool.heap.arena.move_to_lane(block, lane);
        Ok(block)
    }

    fn complete(&mut self, block: BlockId) {
        self.pool.complete(block);
    }
}

impl Policy for RmmPool {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        malloc(self, dev, &req)
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        self.pool.free(dev, block);
    }

    fn record_stream(&mut self, _: &mut dyn Device, block: BlockId, stream: StreamId) {
        self.pool.heap.record_stream(block, stream);
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        for block in self.pool.heap.last_frees(dev) {
            self.pool.complete(block);
        }
        if self.pool.heap.is_unused() { self.pool.destroy(dev) } else { 0 }
    }

    fn stats(&self) -> &PoolStats {
        self.pool.heap.arena.stats()
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.pool.heap.arena.visit(visitor);
    }

    fn native_stats(&self) -> Vec<(String, i64)> {
        vec![("pool_size".into(), self.stats().reserved.current as i64)]
    }
}
