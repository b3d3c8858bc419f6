//! Stitches scattered free pages into one range of addresses, instead of taking new memory.

mod def;
mod large;
mod obtain;
mod pages;
mod small;
mod stitches;

pub use def::DEF;

use crate::arena::{LaneId, TOO_LARGE};
use crate::deferred::DeferredFrees;
use crate::registry::BuildEnv;
use large::{Block, Large};
use poolsim_core::{
    Action, AllocError, AllocRequest, BlockId, BlockState, BlockView, Bytes, Device, Gauge, Grant,
    HeapVisitor, OomCause, Policy, PoolId, PoolOp, PoolStats, RangeView, StreamId,
};
use rustc_hash::FxHashSet;
use small::Small;

/// Small blocks are multiples of this.
const QUANTUM: Bytes = 512;

/// When free pages are stitched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before new memory is taken.
    Always,
    /// When the device has no more.
    Full,
}

/// The parameters of [`Stitch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of a page; a multiple of the device's granule.
    pub page: Bytes,
    /// The smallest stretch of free pages that is stitched.
    pub least: Bytes,
    /// Addresses of stitched ranges that are kept mapped at most.
    pub keep: Bytes,
    /// When free pages are stitched.
    pub when: When,
}

#[derive(Clone, Debug)]
enum Held {
    Small(BlockId),
    Large(Block),
}

/// The allocator that maps free pages together.
#[derive(Clone, Debug)]
pub struct Stitch {
    settings: Settings,
    limit: Option<Bytes>,
    small: Small,
    large: Large,
    held: Vec<Option<Held>>,
    spare: Vec<BlockId>,
    deferred: DeferredFrees,
    /// Private pools whose owner is gone.
    dropped: FxHashSet<PoolId>,
    stats: PoolStats,
}

impl Stitch {
    /// One that holds nothing. A memory fraction in `env` limits what it holds.
    pub fn new(settings: Settings, env: &BuildEnv) -> Self {
        Stitch {
            settings,
            limit: env.memory_fraction.map(|x| (env.caps.total as f64 * x) as Bytes),
            small: Small::default(),
            large: Large::new(settings),
            held: Vec::new(),
            spare: Vec::new(),
            deferred: DeferredFrees::default(),
            dropped: FxHashSet::default(),
            stats: PoolStats::default(),
        }
    }

    fn reserved(&self) -> Bytes {
        self.small.arena.stats().reserved.current + self.large.pages.backed()
    }

    /// Carries the sums of both heaps over into the statistics.
    #[inline]
    fn tally(&mut self) {
        fn set(gauge: &mut Gauge, now: u64) {
            gauge.sub(gauge.current.saturating_sub(now));
            gauge.add(now - gauge.current);
        }
        let (small, large) = (self.small.arena.stats(), &self.large.sums);
        set(&mut self.stats.requested, small.requested.current + large.requested);
        set(&mut self.stats.allocated, small.allocated.current + large.allocated);
        set(&mut self.stats.active, small.active.current + large.active);
        let reserved = self.reserved();
        set(&mut self.stats.reserved, reserved);
    }

    fn within_limit(&self, size: Bytes) -> bool {
        self.limit.is_none_or(|limit| self.reserved().saturating_add(size) <= limit)
    }

    fn add(&mut self, held: Held) -> BlockId {
        if let Some(id) = self.spare.pop() {
            self.held[id.index()] = Some(held);
            return id;
        }
        self.held.push(Some(held));
        BlockId(u32::try_from(self.held.len() - 1).expect("fewer than 2^32 blocks"))
    }

    fn held(&mut self, block: BlockId) -> &mut Held {
        self.held[block.index()].as_mut().expect("a block that was granted")
    }

    fn stream_of(&self, lane: LaneId) -> StreamId {
        self.small.arena.lane(lane).stream
    }

    /// A block is free, for its stream too.
    fn retire(&mut self, block: BlockId) {
        match self.held[block.index()].take().expect("a block that was granted") {
            Held::Small(block) => self.small.put_back(block),
            Held::Large(block) => self.large.put_back(block),
        }
        self.spare.push(block);
    }

    fn settle(&mut self, dev: &mut dyn Device) {
        if self.deferred.is_empty() {
            return;
        }
        let mut settled = Vec::new();
        self.deferred.settle(dev, &mut settled);
        for block in settled {
            let (addr, size, lane) = match self.held(block) {
                Held::Large(b) => (b.addr, b.requested, b.lane),
                Held::Small(b) => {
                    let (b, arena) = (*b, &self.small.arena);
                    (arena.addr(b), arena.requested(b), arena.lane_of(b))
                }
            };
            dev.note(Action::FreeCompleted, addr, size, self.stream_of(lane));
            self.retire(block);
        }
    }

    #[cold]
    fn refuse(&mut self, dev: &dyn Device, req: &AllocRequest, rounded: Bytes) -> AllocError {
        self.stats.ooms += 1;
        let lanes: Vec<LaneId> = self.small.arena.lanes_of(req.pool).collect();
        let large = lanes.into_iter().map(|lane| self.large.pages.largest(lane)).max().unwrap_or(0);
        let cause = if req.size >= TOO_LARGE {
            OomCause::TooLarge
        } else if !self.within_limit(rounded.next_multiple_of(dev.caps().granule)) {
            OomCause::Limit
        } else {
            OomCause::DeviceFull
        };
        AllocError::OutOfMemory {
            requested: req.size,
            rounded,
            reserved: self.reserved(),
            largest_free: large.max(self.small.arena.largest_free(req.pool)),
            cause,
        }
    }
}

impl Policy for Stitch {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        let lane = self.small.arena.lane_for(req.stream, req.pool);
        if req.size >= TOO_LARGE {
            return Err(self.refuse(dev, &req, req.size));
        }
        self.settle(dev);
        let is_small = req.size < self.settings.page;
        let unit = if is_small { QUANTUM } else { self.settings.page };
        let size = req.size.next_multiple_of(unit);
        let small = match is_small {
            true => self.small_block(dev, size, lane, &req),
            false => Ok(None),
        };
        let result = match small {
            Ok(Some(block)) => Ok(Some(Held::Small(block))),
            // Without room for a small range, a page that is free in the lane serves.
            Ok(None) => {
                let page = size.next_multiple_of(self.settings.page);
                self.large_block(dev, page, lane, &req).map(|block| block.map(Held::Large))
            }
            Err(error) => Err(error),
        };
        let result = match result {
            Ok(Some(Held::Large(block))) => Ok(Held::Large(self.large.occupy(block, &req))),
            Ok(Some(small)) => Ok(small),
            Ok(None) => Err(self.refuse(dev, &req, size)),
            Err(error) => Err(error.into()),
        };
        self.tally();
        let held = result?;
        let (addr, size) = match &held {
            Held::Small(b) => (self.small.arena.addr(*b), self.small.arena.size(*b)),
            Held::Large(b) => (b.addr, b.size),
        };
        self.large.trim(dev);
        Ok(Grant { block: self.add(held), addr, size })
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        let shared = match self.held(block) {
            Held::Small(b) => {
                let b = *b;
                let shared = self.small.arena.is_shared(b);
                if shared {
                    self.small.arena.suspend(b);
                }
                shared
            }
            Held::Large(b) => {
                let (shared, size) = (b.shared, b.size);
                if shared {
                    b.pending = true;
                    self.large.sums.allocated -= size;
                }
                shared
            }
        };
        if shared {
            self.deferred.defer(dev, block);
        } else {
            self.retire(block);
        }
        self.tally();
    }

    fn record_stream(&mut self, _: &mut dyn Device, block: BlockId, stream: StreamId) {
        let lane = match self.held(block) {
            Held::Large(b) => b.lane,
            Held::Small(b) => {
                let b = *b;
                self.small.arena.lane_of(b)
            }
        };
        if self.stream_of(lane) == stream {
            return;
        }
        match self.held(block) {
            Held::Large(b) => b.shared = true,
            Held::Small(b) => {
                let b = *b;
                self.small.arena.share(b);
            }
        }
        self.deferred.note_use(block, stream);
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        self.wait(dev);
        let given = self.give_back(dev, None, None);
        self.tally();
        given
    }

    fn pool(&mut self, dev: &mut dyn Device, pool: PoolId, op: PoolOp) {
        match op {
            PoolOp::Declare(_) | PoolOp::Close => {}
            PoolOp::Open => {
                self.small.arena.keep_pool(pool, true);
                self.dropped.remove(&pool);
            }
            PoolOp::Drop | PoolOp::Destroy => {
                self.small.arena.keep_pool(pool, false);
                self.dropped.insert(pool);
                if op == PoolOp::Destroy {
                    self.wait(dev);
                    self.give_back(dev, Some(pool), None);
                }
            }
        }
        self.tally();
    }

    fn stats(&self) -> &PoolStats {
        &self.stats
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.small.arena.visit(visitor);
        let blocks = self.held.iter().flatten().filter_map(|held| match held {
            Held::Large(block) => Some((block.lane, block.view())),
            Held::Small(_) => None,
        });
        let free = self.large.pages.all_free().map(|(lane, (addr, size))| {
            let state = BlockState::Free;
            (
                lane,
                BlockView {
                    addr,
                    size,
                    requested: 0,
                    state,
                    slot: None,
                    stack: Default::default(),
                },
            )
        });
        let mut all: Vec<(LaneId, BlockView)> = blocks.chain(free).collect();
        all.sort_unstable_by_key(|(_, block)| block.addr);
        for (lane, block) in all {
            let of = self.small.arena.lane(lane);
            visitor.range(&RangeView {
                addr: block.addr,
                size: block.size,
                stream: of.stream,
                pool: of.pool,
                small: false,
                expandable: true,
                stack: Default::default(),
            });
            visitor.block(&block);
        }
    }
}
