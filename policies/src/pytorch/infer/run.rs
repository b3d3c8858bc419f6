//! A run of the allocator along a recording, group by group, with checkpoints to go back to.

use super::super::Pytorch;
use super::facts::{Facts, NO_SLOT};
use super::groups::Conflict;
use super::labels::Labels;
use super::oracle::{Got, Mismatch, Oracle};
use super::regions::Step;
use super::shape::{Shape, group_at};
use super::start;
use poolsim_core::device::DeviceCaps;
use poolsim_core::error::AllocError;
use poolsim_core::event::{Event, EventKind};
use poolsim_core::policy::{AllocRequest, Policy, PoolOp};
use poolsim_core::recording::{Action, DriverAnswer};
use poolsim_core::stack::StackId;
use poolsim_core::units::{BlockId, Bytes, Nanos, PoolId, Slot, StreamId};
use std::collections::{BTreeMap, BTreeSet};

/// What the search decided beside labels.
#[derive(Clone, Debug, Default)]
pub(super) struct Choices {
    /// Pool of refused requests that are not for the default pool, by entry.
    pub refused: BTreeMap<u32, PoolId>,
    /// Requests for the default pool that were served from a pool that lends on OOM, by entry.
    pub lent: BTreeSet<u32>,
    /// Frees that look complete at once but were completed by the wait of the request that follows, by entry.
    pub waited: BTreeSet<u32>,
    /// By how much blocks of the start are longer than they seemed, by their place in the list.
    pub slack: BTreeMap<usize, Bytes>,
    /// Regions that the request behind them had no need of.
    pub not_own: BTreeSet<u32>,
}

/// Everything that changes while a run advances.
#[derive(Clone)]
pub(super) struct State<'a> {
    /// The next entry.
    pub at: usize,
    pub policy: Pytorch,
    pub dev: Oracle<'a>,
    /// The policy's block by slot.
    pub blocks: Vec<BlockId>,
    /// Pools whose owners are gone.
    pub gone: BTreeSet<PoolId>,
    events: usize,
    answers: usize,
}

/// A run.
pub(super) struct Run<'a> {
    pub facts: &'a Facts<'a>,
    pub labels: Labels,
    pub choices: Choices,
    pub state: State<'a>,
    pub events: Vec<Event>,
    pub stacks: Vec<StackId>,
    pub answers: Vec<DriverAnswer>,
    checkpoints: Vec<State<'a>>,
    interval: usize,
    /// Whether the heap that was there at the start could be restored.
    started: bool,
    next_checkpoint: usize,
}

/// Entries between checkpoints at first; doubled whenever there are too many.
const INTERVAL: usize = 1024;
const MOST_CHECKPOINTS: usize = 48;

impl<'a> Run<'a> {
    /// A run at the first entry.
    pub fn new(facts: &'a Facts<'a>, caps: &DeviceCaps, labels: Labels) -> Run<'a> {
        let rec = facts.rec;
        let policy = Pytorch::new(facts.config, caps, facts.fraction);
        let dev = Oracle::new(caps.clone(), &rec.entries, &facts.slot);
        let state = State {
            at: 0,
            policy,
            dev,
            blocks: vec![BlockId(u32::MAX); facts.slot_count as usize + 1],
            gone: BTreeSet::new(),
            events: 0,
            answers: 0,
        };
        let mut run = Run {
            facts,
            labels,
            choices: Choices::default(),
            checkpoints: vec![state.clone()],
            state,
            events: Vec::with_capacity(rec.entries.len() * 2 / 3),
            stacks: Vec::new(),
            answers: Vec::new(),
            interval: INTERVAL,
            started: false,
            next_checkpoint: 0,
        };
        run.begin();
        run
    }

    /// Declares pools and restores the heap that was there at the start.
    fn begin(&mut self) {
        self.declare();
        self.started = start::restore(self);
        self.next_checkpoint = self.interval;
    }

    fn declare(&mut self) {
        for (i, &flags) in self.labels.flags.iter().enumerate().skip(1) {
            let op = PoolOp::Declare(flags);
            self.state.policy.pool(&mut self.state.dev, PoolId(i as u16), op);
        }
    }

    /// Goes back to the last checkpoint at or before an entry, with new labels.
    pub fn go_back(&mut self, entry: usize, labels: Option<Labels>) {
        if let Some(labels) = labels {
            self.labels = labels;
        }
        while self.checkpoints.len() > 1 && self.checkpoints.last().is_some_and(|c| c.at > entry) {
            self.checkpoints.pop();
        }
        let last = self.checkpoints.last().expect("the first one stays").clone();
        self.restore(last);
        if self.checkpoints.len() == 1 {
            self.begin();
        } else {
            self.declare();
            self.next_checkpoint = self.state.at + self.interval;
        }
    }

    /// Takes a state back that was saved before.
    pub fn restore(&mut self, state: State<'a>) {
        self.events.truncate(state.events);
        self.stacks.truncate(state.events);
        self.answers.truncate(state.answers);
        self.state = state;
    }

    /// The present state, to be restored.
    pub fn save(&mut self) -> State<'a> {
        self.settle();
        self.state.clone()
    }

    /// Moves the driver's answers to the run's own list, so that states stay small.
    fn settle(&mut self) {
        self.answers.append(&mut self.state.dev.answers);
        self.state.events = self.events.len();
        self.state.answers = self.answers.len();
    }

    fn checkpoint(&mut self) {
        if self.checkpoints.len() >= MOST_CHECKPOINTS {
            let mut i = 0;
            self.checkpoints.retain(|_| {
                i += 1;
                i % 2 == 1
            });
            self.interval *= 2;
        }
        let state = self.save();
        self.checkpoints.push(state);
        self.next_checkpoint = self.state.at + self.interval;
    }

    /// Runs until the end or the first group that cannot be explained.
    pub fn advance(&mut self) -> Result<(), Conflict> {
        if !self.started {
            return Err(Conflict::at_start());
        }
        let entries = &self.facts.rec.entries;
        while self.state.at < entries.len() {
            if self.state.at >= self.next_checkpoint {
                self.checkpoint();
            }
            let at = self.state.at;
            let (mut shape, mut end) = group_at(entries, at);
            if shape == Shape::Free && self.choices.waited.contains(&(at as u32)) {
                (shape, end) = (Shape::FreeLater, at + 1);
            }
            if at == 0 && self.facts.starts_in_free() {
                (shape, end) = (Shape::Free, 1);
            }
            match shape {
                Shape::Free => self.free(at, false),
                Shape::FreeLater => self.free(at, true),
                Shape::Request | Shape::Loose => self.group(at, end, shape)?,
                Shape::Nothing => {}
            }
            self.state.at = end;
        }
        self.settle();
        Ok(())
    }

    /// Adds an event.
    #[inline]
    pub fn emit(&mut self, kind: EventKind, entry: usize, slot: u32, pool: PoolId) {
        let e = &self.facts.rec.entries[entry];
        let (size, stream) = match kind {
            EventKind::EmptyCache | EventKind::PoolDrop | EventKind::PoolDestroy => {
                (0, StreamId::default())
            }
            _ => (e.size, e.stream),
        };
        let slot = if slot == NO_SLOT { 0 } else { slot };
        // A completion inside a request stands before the request's end, and its event behind the request's.
        let at = self.events.last().map_or(e.at, |last| last.at.max(e.at));
        self.push(Event::new(kind, at, Slot(slot), size, stream, pool), e.stack);
    }

    /// Adds an event that stands before the first entry.
    pub fn push(&mut self, event: Event, stack: StackId) {
        self.events.push(event);
        self.stacks.push(stack);
    }

    /// The pool that an entry's block belongs to.
    #[inline]
    pub fn pool_of(&self, entry: usize) -> PoolId {
        self.labels.pool.get(self.facts.lot[entry] as usize).copied().unwrap_or_default()
    }

    #[inline]
    fn free(&mut self, at: usize, later: bool) {
        let slot = self.facts.slot[at];
        let State { policy, dev, blocks, .. } = &mut self.state;
        let block = blocks[slot as usize];
        if later {
            policy.record_stream(dev, block, StreamId::FOREIGN);
            dev.hold(Slot(slot));
        }
        policy.free(dev, block);
        let kind = if later { EventKind::FreeLater } else { EventKind::Free };
        self.emit(kind, at, slot, self.pool_of(at));
    }

    /// The work that a pending free waits for is done; the policy learns of it in a later call.
    pub fn complete(&mut self, entry: usize) {
        let slot = self.facts.slot[entry];
        self.state.dev.complete(Slot(slot));
        self.emit(EventKind::FreeDone, entry, slot, self.pool_of(entry));
    }

    /// Carries out a step; the entries that it must make are `[begin, end)`.
    pub fn step(&mut self, step: Step, begin: usize, end: usize) -> Result<(), Mismatch> {
        let State { policy, dev, gone, .. } = &mut self.state;
        dev.expect(begin, end);
        let kind = match step {
            Step::Empty => {
                policy.empty_cache(dev);
                EventKind::EmptyCache
            }
            Step::Destroy(pool) => {
                gone.insert(pool);
                policy.pool(dev, pool, PoolOp::Destroy);
                EventKind::PoolDestroy
            }
            Step::Drop(pool) => {
                gone.insert(pool);
                policy.pool(dev, pool, PoolOp::Drop);
                EventKind::PoolDrop
            }
        };
        let outcome = dev.outcome();
        let pool = match step {
            Step::Empty => PoolId::DEFAULT,
            Step::Destroy(pool) | Step::Drop(pool) => pool,
        };
        let at = begin.min(self.facts.rec.entries.len() - 1);
        self.emit(kind, at, NO_SLOT, pool);
        outcome
    }

    /// Makes the request that ends at entry `last` to `pool`; `[begin, last]` is what must come of it.
    #[inline]
    pub fn request(&mut self, begin: usize, last: usize, pool: PoolId) -> Result<(), Mismatch> {
        let e = &self.facts.rec.entries[last];
        let refused = e.action == Action::Oom;
        let slot = if refused { self.state.blocks.len() as u32 - 1 } else { self.facts.slot[last] };
        let State { policy, dev, blocks, .. } = &mut self.state;
        dev.expect(begin, last + 1);
        let req = AllocRequest { size: e.size, stream: e.stream, pool, slot: Slot(slot) };
        let met = match policy.malloc(dev, req) {
            Ok(grant) => {
                blocks[slot as usize] = grant.block;
                Got { action: Action::Alloc, addr: grant.addr, size: e.size, stream: e.stream }
            }
            Err(AllocError::OutOfMemory { rounded, .. }) => {
                Got { action: Action::Oom, addr: 0, size: rounded, stream: e.stream }
            }
            Err(e) => panic!("the oracle fails for want of memory only: {e}"),
        };
        dev.met(met);
        let outcome = dev.outcome();
        let kind = if refused { EventKind::AllocRefused } else { EventKind::Alloc };
        self.emit(kind, last, slot, pool);
        outcome
    }

    /// Time of the first entry.
    pub fn start_time(&self) -> Nanos {
        self.facts.rec.entries.first().map_or(0, |e| e.at)
    }
}
