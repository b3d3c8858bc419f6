//! Learns an iteration of the job as it runs, packs it by lifetime, and serves later iterations by the plan.

mod heap;
mod learn;
mod pack;
mod plan;

use crate::arena::TOO_LARGE;
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind};
use crate::registry::{BuildEnv, OomRule, PolicyDef, no_version, no_warnings};
use crate::stage::growth::GROW_UNIT;
use crate::stage::rounding::QUANTUM;
use heap::Heap;
use learn::{Learner, Request};
use plan::{Advice, Plan};
use poolsim_core::{
    AllocError, AllocRequest, BlockId, Bytes, Device, Grant, HeapVisitor, Policy, PoolId, PoolOp,
    PoolStats, StreamId,
};

const fn count(key: &'static str, min: u64, default: &'static str, doc: &'static str) -> ParamDef {
    ParamDef {
        key,
        kind: ParamKind::UInt { min, max: learn::ITERATION_MAX as u64 },
        default: ParamDefault::Is(default),
        unit: "",
        doc,
        effect: Effect::Simulated,
    }
}

const PARAMS: &[ParamDef] = &[
    count("times", 2, "2", "How often an iteration must have come in a row before it is planned."),
    count("least", 1, "32", "Fewest large requests of an iteration."),
    count(
        "window",
        0,
        "16",
        "How many planned requests may be left out at once without losing the plan.",
    ),
    ParamDef {
        key: "large",
        kind: ParamKind::Bytes { min: 0, multiple_of: 1 },
        default: ParamDefault::Is("1MiB"),
        unit: "bytes",
        doc: "Requests below this are neither learned nor planned.",
        effect: Effect::Simulated,
    },
    ParamDef {
        key: "learn",
        kind: ParamKind::Choice(&["cached", "driver"]),
        default: ParamDefault::Is("cached"),
        unit: "",
        doc: "How large requests are served before there is a plan: by best fit, or each by a driver call, which takes time and \
              no more memory than is in use.",
        effect: Effect::Simulated,
    },
    ParamDef { key: "quantum", ..QUANTUM },
    ParamDef { key: "unit", ..GROW_UNIT },
];

/// `planned`.
pub static DEF: PolicyDef = PolicyDef {
    name: "planned",
    aliases: &[],
    presets: &[],
    summary: "Learns an iteration as the job runs, packs it by lifetime, and serves the next ones by that plan",
    rules: "It knows the past only: the requests so far of at least `large` bytes (rounded size, stream, pool), and when each block \
            became free. Smaller ones, which vary most and weigh least, are served by best fit and neither learned nor planned.\n\
            When the last requests repeat those before them `times` times, in order and with as many bytes in use at the end, \
            the longest such stretch (up to 32,768 requests) is the iteration. Before that, and for whatever is not planned, \
            it is `best-fit`.\n\
            The plan: lifetimes as they were in the last pass that is known to its end; blocks that stayed for a whole iteration are \
            left out. Packed offline, each stream and pool by itself, at the lowest offset free for the block's whole life, \
            large blocks first or long-lived first, whichever is lower.\n\
            It takes effect when the job comes to the iteration's leanest moment: idle ranges are given back, then and an \
            iteration later, and one range of the plan's size is taken for each stream and pool.\n\
            A request that is the next of the plan, or one of the `window` after it, gets its planned place if that is free; \
            a block that lives longer than foreseen keeps it. All other requests are unforeseen and served by best fit.\n\
            With `learn:driver`, large requests get ranges of their own until the first plan takes effect or 65,536 of them came, and \
            these go back when freed: learning then takes no more memory than is in use, in whole granules.\n\
            If less than half of an iteration's number of requests were foreseen, the plan is dropped and its ranges serve best fit.\n\
            If the device is full, pending frees are waited for and idle ranges go back; then unforeseen requests may use gaps \
            in the plan's ranges.",
    source: "the idea of STAlloc (Z. Huang et al., STAlloc: Enhancing Memory Efficiency in Large-Scale Model Training with \
             Spatio-Temporal Planning, EuroSys 2026, arXiv:2507.16274), which learns in a run of its own, told where iterations \
             begin; finding them, the packing and the fallback here are the project's own",
    checked_against: "a look at every moment (packing), judges of the heap, and runs whose futures differ (it cannot know them)",
    params: PARAMS,
    refuses: &[OomRule::CacheReleased, OomRule::NothingFits, OomRule::DeviceLacks],
    version: no_version,
    check: no_warnings,
    build: |p, env| {
        let number = |key| p.uint(key) as usize;
        let settings = Settings {
            times: number("times"),
            least: number("least"),
            window: number("window"),
            large: p.bytes("large"),
            learn_by_driver: p.choice("learn") == "driver",
            quantum: p.bytes("quantum"),
            unit: p.bytes("unit"),
        };
        Ok(Box::new(Planned::new(settings, env)))
    },
};

/// The parameters of [`Planned`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How often an iteration must have come in a row; at least 2.
    pub times: usize,
    /// Fewest requests of an iteration; at least 1.
    pub least: usize,
    /// How many planned requests may be left out at once.
    pub window: usize,
    /// Requests below this are neither learned nor planned.
    pub large: Bytes,
    /// Serves large requests by the driver until there is a plan.
    pub learn_by_driver: bool,
    /// Sizes are multiples of this.
    pub quantum: Bytes,
    /// Ranges of unplanned blocks are multiples of this.
    pub unit: Bytes,
}

/// In place of the number of a small request.
const UNSEEN: u64 = u64::MAX;

/// What became of the requests so far that were large enough to plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Plans made.
    pub plans: u64,
    /// Requests that got their planned place.
    pub planned: u64,
    /// Requests that a plan was in force for and that did not.
    pub unplanned: u64,
}

/// The allocator that plans ahead from what it saw.
#[derive(Clone, Debug)]
pub struct Planned {
    settings: Settings,
    heap: Heap,
    learner: Learner,
    plan: Option<Plan>,
    /// The learner's number and size of the request that each block serves.
    numbers: Vec<(u64, Bytes)>,
    /// While an iteration is learned: large requests go to the driver.
    by_driver: bool,
    served: Served,
}

impl Planned {
    /// One that has seen nothing. A memory fraction in `env` limits what it holds.
    pub fn new(settings: Settings, env: &BuildEnv) -> Self {
        Planned {
            settings,
            heap: Heap::new(settings.unit, env),
            learner: Learner::default(),
            plan: None,
            numbers: Vec::new(),
            by_driver: settings.learn_by_driver,
            served: Served::default(),
        }
    }

    /// What became of the requests so far.
    pub fn served(&self) -> Served {
        self.served
    }

    /// What the plan says of a request, after making one if the job has begun to repeat itself.
    #[inline]
    fn advice(&mut self, dev: &mut dyn Device, request: Request) -> Advice {
        if self.plan.is_none() && self.learner.is_due() {
            let Settings { times, least, .. } = self.settings;
            self.plan = self.learner.look(times, least).map(Plan::new);
            self.served.plans += u64::from(self.plan.is_some());
        }
        let Some(plan) = &mut self.plan else { return Advice::default() };
        let advice = plan.follow(request, self.settings.window);
        if plan.is_lost() {
            self.plan = None;
            self.heap.give_up_homes();
            return Advice::default();
        }
        if advice.begins {
            self.by_driver = false;
            self.heap.begin(dev, advice.fresh);
        }
        advice
    }

    /// The planned block of a request, if there is one and its place is free.
    fn planned(
        &mut self,
        dev: &mut dyn Device,
        want: Request,
        req: &AllocRequest,
    ) -> Option<BlockId> {
        let advice = self.advice(dev, want);
        let height = self.plan.as_ref()?.height(want.lane);
        let block = advice.offset.and_then(|at| self.heap.place_at(dev, at, height, want, req));
        self.served.planned += u64::from(block.is_some());
        self.served.unplanned += u64::from(block.is_none());
        block
    }

    #[inline]
    fn granted(&mut self, block: BlockId, number: u64, size: Bytes) -> Grant {
        if block.index() >= self.numbers.len() {
            self.numbers.resize(block.index() + 1, (UNSEEN, 0));
        }
        self.numbers[block.index()] = (number, size);
        self.heap.checked();
        self.heap.arena.grant(block)
    }

    fn settle(&mut self, dev: &mut dyn Device) {
        for block in self.heap.settled(dev) {
            self.retire(dev, block);
        }
    }

    fn wait(&mut self, dev: &mut dyn Device) {
        for block in self.heap.waited(dev) {
            self.retire(dev, block);
        }
    }

    #[inline]
    fn retire(&mut self, dev: &mut dyn Device, block: BlockId) {
        let (number, size) = self.numbers[block.index()];
        if number != UNSEEN {
            self.learner.note_free(number, size);
        }
        let range = self.heap.arena.range_of(block);
        self.heap.put_back(block);
        if self.by_driver && number != UNSEEN {
            self.heap.release_if_idle(dev, range);
        }
    }

    /// A block for a request that no plan places.
    fn unplanned(
        &mut self,
        dev: &mut dyn Device,
        want: Request,
        req: &AllocRequest,
    ) -> Result<BlockId, AllocError> {
        let own = self.by_driver && req.size >= self.settings.large;
        if !own && let Some(block) = self.heap.place(want, req) {
            return Ok(block);
        }
        loop {
            let grown = match own {
                true => self.heap.grow_own(dev, want, req),
                false => self.heap.grow(dev, want, req),
            };
            match grown {
                Ok(Some(block)) => return Ok(block),
                Ok(None) => {}
                Err(error) => return Err(error.into()),
            }
            let before = self.heap.arena.stats().reserved.current;
            self.wait(dev);
            if let Some(block) = self.heap.place(want, req) {
                return Ok(block);
            }
            self.heap.give_back_idle(dev, None);
            // While the driver serves, what was waited for went back as well.
            if self.heap.arena.stats().reserved.current == before {
                break;
            }
            self.heap.arena.stats_mut().retries += 1;
        }
        self.heap.fill_gap(want, req).ok_or_else(|| self.heap.refuse(dev, want, req.size))
    }
}

impl Policy for Planned {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        let lane = self.heap.arena.lane_for(req.stream, req.pool);
        if req.size >= TOO_LARGE {
            return Err(self.heap.refuse(dev, Request { size: req.size, lane }, req.size));
        }
        self.settle(dev);
        let want = Request { size: req.size.next_multiple_of(self.settings.quantum), lane };
        if req.size < self.settings.large {
            let block = self.unplanned(dev, want, &req)?;
            return Ok(self.granted(block, UNSEEN, want.size));
        }
        let planned = self.planned(dev, want, &req);
        let number = self.learner.note_request(want);
        self.by_driver &= number < 2 * learn::ITERATION_MAX as u64;
        match planned.map_or_else(|| self.unplanned(dev, want, &req), Ok) {
            Ok(block) => Ok(self.granted(block, number, want.size)),
            Err(error) => {
                self.learner.note_free(number, want.size);
                Err(error)
            }
        }
    }

    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        if self.heap.arena.is_shared(block) {
            self.heap.defer(dev, block);
        } else {
            self.retire(dev, block);
        }
        self.heap.checked();
    }

    fn record_stream(&mut self, _: &mut dyn Device, block: BlockId, stream: StreamId) {
        self.heap.record_stream(block, stream);
    }

    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        let before = self.heap.arena.stats().reserved.current;
        self.wait(dev);
        self.heap.give_back_idle(dev, None);
        before - self.heap.arena.stats().reserved.current
    }

    fn pool(&mut self, dev: &mut dyn Device, pool: PoolId, op: PoolOp) {
        match op {
            PoolOp::Declare(_) | PoolOp::Close => {}
            PoolOp::Open => self.heap.arena.keep_pool(pool, true),
            PoolOp::Drop => self.heap.arena.keep_pool(pool, false),
            PoolOp::Destroy => {
                self.heap.arena.keep_pool(pool, false);
                self.wait(dev);
                self.heap.give_back_idle(dev, Some(pool));
            }
        }
        self.heap.checked();
    }

    fn stats(&self) -> &PoolStats {
        self.heap.arena.stats()
    }

    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        self.heap.arena.visit(visitor);
    }
}
