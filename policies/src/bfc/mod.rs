//! The BFC allocator of TensorFlow and of XLA, which JAX uses.

mod crossings;

use crate::arena::LaneId;
use crate::ordered::{Ordered, Refusal, Serves, malloc};
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind, Params};
use crate::regions::{ALIGN, Growth, Rules, share};
use crate::registry::{BuildEnv, OomRule, PolicyDef, Preset, no_warnings};
use crate::stage::Placement;
use crate::stage::placement::BestFit;
use crossings::Crossings;
use poolsim_core::units::MIB;
use poolsim_core::{
    AllocError, AllocRequest, BlockId, Bytes, Device, Grant, HeapVisitor, Policy, PoolId,
    PoolStats, StreamId,
};
use std::ops::Bound;

/// The first region, where not all memory is taken at once.
const FIRST: Bytes = 2 * MIB;

/// How much longer than the request a chunk may stay, where no fraction says otherwise.
const MAX_WASTE: Bytes = 128 * MIB;

const LIMIT: ParamDef = ParamDef {
    key: "memory_limit",
    kind: ParamKind::Bytes { min: 2 * MIB, multiple_of: ALIGN },
    default: ParamDefault::Unset("memory_fraction of the device's memory"),
    unit: "bytes",
    doc: "What the allocator may hold at most.",
    effect: Effect::Simulated,
};

const FRACTION: ParamDef = ParamDef {
    key: "memory_fraction",
    kind: ParamKind::Float { min: Bound::Excluded(0.0), max: Bound::Included(1.0) },
    default: ParamDefault::Is("0.75"),
    unit: "",
    doc: "The share of the device's memory, up to a multiple of its granule, that the allocator may hold \
          (XLA_PYTHON_CLIENT_MEM_FRACTION).",
    effect: Effect::Simulated,
};

const PREALLOCATE: ParamDef = ParamDef {
    key: "preallocate",
    kind: ParamKind::Bool,
    default: ParamDefault::Is("False"),
    unit: "",
    doc: "Whether the first request takes all memory up to the limit at once (XLA_PYTHON_CLIENT_PREALLOCATE, which JAX \
          sets by itself).",
    effect: Effect::Simulated,
};

const COLLECT: ParamDef = ParamDef {
    key: "garbage_collection",
    kind: ParamKind::Bool,
    default: ParamDefault::Is("False"),
    unit: "",
    doc: "Whether free regions are given back before a request is refused (TF_ENABLE_GPU_GARBAGE_COLLECTION).",
    effect: Effect::Simulated,
};

const FRAGMENTATION: ParamDef = ParamDef {
    key: "fragmentation_fraction",
    kind: ParamKind::Float { min: Bound::Included(0.0), max: Bound::Included(1.0) },
    default: ParamDefault::Is("0"),
    unit: "",
    doc: "The share of the limit by which a chunk may exceed its request unsplit; 0 stands for 128 MiB.",
    effect: Effect::Simulated,
};

/// `bfc`.
pub static DEF: PolicyDef = PolicyDef {
    name: "bfc",
    aliases: &[],
    presets: &[Preset {
        name: "jax",
        items: "preallocate:True",
        summary: "JAX as it comes: three quarters of the device, taken at once",
    }],
    summary: "TensorFlow's and JAX's BFC allocator: best fit with coalescing over regions that double",
    rules: "A request is rounded up to a multiple of 256 bytes and served by the smallest free chunk that is large enough, \
            the lowest address among equals.\n\
            The chunk is split if it is at least twice as large or if 128 MiB or more (`fragmentation_fraction`) would be left \
            over; else the request gets all of it.\n\
            If no chunk serves, a region is taken from the device: 2 MiB at first, each region twice the one before it, \
            doubled on until the request fits, never past the limit. If the device refuses, nine tenths of it, and so on down \
            to the request.\n\
            If the limit leaves too little, free regions are given back first under `garbage_collection`. Nothing else goes \
            back: empty_cache stands for the end of the process, and does nothing while the program holds a chunk.\n\
            A freed chunk merges with its free neighbours of the same region, whatever the stream. A stream that gets memory \
            last used on others waits for what they have done, as XLA's streams do for the compute stream; one chunk that other \
            streams still use when it is freed waits for them.",
    source: "XLA, xla/tsl/framework/bfc_allocator.cc (openxla/xla, 2026)",
    checked_against: "JAX 0.11.2's own logs of two programs on an H200: every pointer, region and refusal of the device's and of \
                      the pinned host's allocator. The logs name frees by size only; there is a reading of them under which all \
                      is exact (policies/tests/bfc_recorded.rs finds it)",
    params: &[LIMIT, FRACTION, PREALLOCATE, COLLECT, FRAGMENTATION],
    // The last tenth less may jump over a size that the device has.
    refuses: &[OomRule::NothingFits],
    version: |_| "JAX 0.11.2".into(),
    check: no_warnings,
    build: |p, env| Ok(Box::new(Bfc::new(p, env))),
};

/// The BFC allocator as a policy.
///
/// Free chunks of all streams lie in one lane; a chunk in use lies in its stream's.
#[derive(Clone, Debug)]
pub struct Bfc {
    heap: Ordered,
    free: BestFit,
    lane: LaneId,
    growth: Growth,
    crossings: Crossings,
    max_waste: Bytes,
    collect: bool,
    allocs: u64,
    largest: Bytes,
}

impl Bfc {
    /// An empty allocator with the parameters of `bfc`.
    pub fn new(params: &Params, env: &BuildEnv) -> Self {
        let total = env.caps.total;
        let share = (total as f64 * params.float(FRACTION.key)) as Bytes;
        let own = params.bytes_if_set(LIMIT.key);
        let own = own.unwrap_or_else(|| share.next_multiple_of(env.caps.granule));
        let allowed = env.memory_fraction.map_or(Bytes::MAX, |x| (total as f64 * x) as Bytes);
        let limit = own.min(allowed);
        let first = if params.bool(PREALLOCATE.key) { limit } else { limit.min(FIRST) };
        let fraction = params.float(FRAGMENTATION.key);
        let mut heap = Ordered::new(env);
        let lane = heap.arena.lane_for(StreamId(0), PoolId::DEFAULT);
        Bfc {
            heap,
            free: BestFit::default(),
            lane,
            growth: Growth::new(Rules {
                limit,
                first: first.next_multiple_of(ALIGN),
                doubles_to: Bytes::MAX,
                doubles_when_refused: false,
                exact: false,
                least_retry: 0,
            }),
            crossings: Crossings::default(),
            max_waste: if fraction > 0.0 { (fraction * limit as f64) as Bytes } else { MAX_WASTE },
            collect: params.bool(COLLECT.key),
            allocs: 0,
            largest: 0,
        }
    }

    /// A free chunk of at least `size` bytes, out of the index.
    fn find(&mut self, dev: &mut dyn Device, size: Bytes) -> Result<BlockId, Refusal> {
        if let Some(chunk) = self.free.take(&self.heap.arena, size, self.lane) {
            return Ok(chunk);
        }
        match self.extend(dev, size) {
            Err(_) if self.collect && self.give_back_regions(dev, size) => self.extend(dev, size),
            answer => answer,
        }
    }

    #[cold]
    fn extend(&mut self, dev: &mut dyn Device, size: Bytes) -> Result<BlockId, Refusal> {
        let chunk = self.growth.extend(&mut self.heap.arena, dev, size, self.lane)?;
        self.crossings.clear(chunk);
        Ok(chunk)
    }

    /// Gives all free regions back, if that can help a request. Returns whether any went.
    #[cold]
    fn give_back_regions(&mut self, dev: &mut dyn Device, size: Bytes) -> bool {
        let idle = self.heap.arena.idle_bytes();
        let held = self.heap.arena.stats().reserved.current;
        if idle == 0 || size > self.growth.limit().saturating_sub(held) + idle {
            return false;
        }
        let mut given = false;
        for region in self.heap.arena.idle_ranges().collect::<Vec<_>>() {
            let chunk = self.heap.arena.first_block(region);
            self.free.remove(&self.heap.arena, chunk);
            match self.heap.arena.release(dev, region) {
                Ok(_) => given = true,
                Err(_) => self.free.insert(&self.heap.arena, chunk),
            }
        }
        given
    }

    /// A free chunk that `stream` may use at once.
    fn obtain(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        stream: StreamId,
    ) -> Result<BlockId, Refusal> {
        let chunk = self.find(dev, size)?;
        if let Err(error) = self.crossings.cross(&mut self.heap, dev, chunk, stream) {
            self.free.insert(&self.heap.arena, chunk);
            return Err(Refusal::Device(error));
        }
        Ok(chunk)
    }

    /// A free chunk merges with its neighbours.
    #[inline]
    fn put(&mut self, chunk: BlockId) {
        let arena = &mut self.heap.arena;
        self.crossings.used_on(chunk, arena.lane_of(chunk));
        arena.move_to_lane(chunk, self.lane);
        let (prev, next) = arena.free_neighbours(chunk);
        for neighbour in [prev, next].into_iter().flatten() {
            self.free.remove(arena, neighbour);
            self.crossings.join(chunk, neighbour);
        }
        let whole = arena.merge(chunk, prev, next);
        self.crossings.copy(chunk, whole);
        self.free.insert(arena, whole);
    }
}

impl Serves for Bfc {
    #[inline]
    fn heap(&mut self) -> &mut Ordered {
        &mut self.heap
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
        let chunk = self.obtain(dev, size, req.stream)?;
        let arena = &mut self.heap.arena;
        let share = share(arena.size(chunk), size, self.max_waste);
        if let Some(rest) = arena.occupy(chunk, share, req) {
            self.crossings.copy(chunk, rest);
            self.free.insert(arena, rest);
        }
        let lane = arena.lane_for(req.stream, PoolId::DEFAULT);
        arena.move_to_lane(chunk, lane);
        self.allocs += 1;
        self.largest = self.largest.max(share);
        Ok(chunk)
    }

    fn complete(&mut self, chunk: BlockId) {
        self.heap.arena.vacate(chunk);
        self.put(chunk);
    }
}

impl Policy for Bfc {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        malloc(self, dev, &req)
    }

    fn free(&mut self, dev: &mut dyn Device, chunk: BlockId) {
        if self.heap.retire(dev, chunk) {
            self.put(chunk);
        }
    }

    fn record_stream(&mut self, _: &mut dyn Device, chunk: BlockId, stream: StreamId) {
        self.heap.record_stream(chunk, stream);
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        for chunk in self.heap.last_frees(dev) {
            self.complete(chunk);
        }
        if !self.heap.is_unused() {
            return 0;
        }
        let (given, left) = self.heap.give_all_back(dev);
        self.free = BestFit::default();
        self.growth.restart();
        left.into_iter().for_each(|chunk| self.free.insert(&self.heap.arena, chunk));
        given
    }

    fn stats(&self) -> &PoolStats {
        self.heap.arena.stats()
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.heap.arena.visit(visitor);
    }

    fn native_stats(&self) -> Vec<(String, i64)> {
        let stats = self.stats();
        [
            ("num_allocs", self.allocs),
            ("bytes_in_use", stats.active.current),
            ("peak_bytes_in_use", stats.active.peak),
            ("largest_alloc_size", self.largest),
            ("bytes_limit", self.growth.limit()),
            ("pool_bytes", stats.reserved.current),
            ("peak_pool_bytes", stats.reserved.peak),
            ("next_region_bytes", self.growth.next_region()),
        ]
        .map(|(name, value)| (name.into(), value as i64))
        .to_vec()
    }
}
