//! Recordings made by the exact allocator itself from random programs: everything that a snapshot hides is known.

use poolsim_core::Policy;
use poolsim_core::event::{Event, EventKind, PoolFlags, PoolInfo, TraceHeader};
use poolsim_core::heap::HeapImage;
use poolsim_core::recording::{Entry, Recording};
use poolsim_core::stack::StackId;
use poolsim_core::trace::Trace;
use poolsim_core::units::{Bytes, GIB, MIB, PoolId, Slot, StreamId};
use poolsim_policies::pytorch::{Config, Pytorch};
use poolsim_sim::engine::{ReplayOptions, replay};
use poolsim_sim::{DeviceProfile, Placement, SimConfig, SimDevice};
use std::sync::Arc;

/// What a random program is like.
#[derive(Clone, Debug)]
pub struct Program {
    pub seed: u64,
    pub steps: usize,
    pub streams: u16,
    /// Properties of private pools.
    pub pools: Vec<PoolFlags>,
    /// How many of 1000 steps call `empty_cache`.
    pub empties: u64,
    /// How many of 100 frees wait for other streams.
    pub later: u64,
    /// Whether pools go before the end.
    pub destroys: bool,
    /// Bytes that the program tries to hold.
    pub target: Bytes,
    /// A limit on the allocator.
    pub limit: Option<Bytes>,
    /// The device's memory, if it is to run out.
    pub capacity: Option<Bytes>,
}

/// A small generator of random numbers (splitmix64), so that a seed means the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn size(r: &mut Random) -> Bytes {
    match r.below(10) {
        0..4 => 1 + r.below(4096),
        4..6 => 1 + r.below(2 * MIB),
        6..8 => MIB + r.below(9 * MIB),
        8 => 10 * MIB + r.below(30 * MIB),
        _ => MIB * (1 + r.below(24)),
    }
}

struct Live {
    slot: u32,
    size: Bytes,
    stream: StreamId,
    pool: PoolId,
}

struct Writer<'a> {
    p: &'a Program,
    r: Random,
    events: Vec<Event>,
    live: Vec<Live>,
    pending: Vec<Live>,
    unused: Vec<u32>,
    slots: u32,
    held: Bytes,
    pool: PoolId,
    /// Steps until the pool changes.
    burst: u64,
    alive: Vec<bool>,
}

impl Writer<'_> {
    fn push(&mut self, kind: EventKind, l: &Live) {
        let at = self.events.len() as u64;
        self.events.push(Event::new(kind, at, Slot(l.slot), l.size, l.stream, l.pool));
    }

    fn plain(&mut self, kind: EventKind, pool: PoolId) {
        let at = self.events.len() as u64;
        self.events.push(Event::new(kind, at, Slot(0), 0, StreamId(0), pool));
    }

    fn step(&mut self) {
        self.settle();
        if self.r.below(1000) < self.p.empties {
            return self.plain(EventKind::EmptyCache, PoolId::DEFAULT);
        }
        if self.p.destroys && self.r.below(400) == 0 {
            return self.destroy();
        }
        let full = self.held > self.p.target;
        if !self.live.is_empty() && (full || self.r.below(100) < 45) {
            self.free();
        } else {
            self.alloc();
        }
    }

    /// Lets the other streams' work on some pending frees be done.
    fn settle(&mut self) {
        while !self.pending.is_empty() && self.r.below(100) < 15 {
            let i = self.r.below(self.pending.len() as u64) as usize;
            let l = self.pending.remove(i);
            self.push(EventKind::FreeDone, &l);
            self.unused.push(l.slot);
        }
    }

    fn destroy(&mut self) {
        let alive: Vec<usize> = (0..self.alive.len()).filter(|&i| self.alive[i]).collect();
        if alive.is_empty() {
            return;
        }
        let i = alive[self.r.below(alive.len() as u64) as usize];
        let pool = PoolId(i as u16 + 1);
        if self.r.below(4) > 0 {
            for j in (0..self.live.len()).rev() {
                if self.live[j].pool == pool {
                    let l = self.live.swap_remove(j);
                    self.done(l);
                }
            }
        }
        self.alive[i] = false;
        if self.pool == pool {
            self.pool = PoolId::DEFAULT;
        }
        let kind = if self.r.below(3) > 0 { EventKind::PoolDestroy } else { EventKind::PoolDrop };
        self.plain(kind, pool);
    }

    fn choose_pool(&mut self) {
        if self.burst > 0 {
            self.burst -= 1;
            return;
        }
        self.burst = self.r.below(30);
        let n = self.p.pools.len() as u64;
        let i = self.r.below(n + 2);
        let usable = i < n && self.alive[i as usize];
        self.pool = if usable { PoolId(i as u16 + 1) } else { PoolId::DEFAULT };
    }

    fn alloc(&mut self) {
        self.choose_pool();
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        let stream = StreamId(self.r.below(u64::from(self.p.streams)) as u16);
        let l = Live { slot, size: size(&mut self.r), stream, pool: self.pool };
        self.push(EventKind::Alloc, &l);
        self.held += l.size;
        self.live.push(l);
    }

    fn free(&mut self) {
        let i = self.r.below(self.live.len() as u64) as usize;
        let l = self.live.swap_remove(i);
        self.done(l);
    }

    fn done(&mut self, l: Live) {
        self.held -= l.size;
        if self.r.below(100) < self.p.later {
            self.push(EventKind::FreeLater, &l);
            self.pending.push(l);
        } else {
            self.push(EventKind::Free, &l);
            self.unused.push(l.slot);
        }
    }
}

fn trace(p: &Program) -> Trace {
    let mut w = Writer {
        p,
        r: Random(p.seed),
        events: Vec::new(),
        live: Vec::new(),
        pending: Vec::new(),
        unused: Vec::new(),
        slots: 0,
        held: 0,
        pool: PoolId::DEFAULT,
        burst: 0,
        alive: vec![true; p.pools.len()],
    };
    for _ in 0..p.steps {
        w.step();
    }
    let mut pools = vec![PoolInfo::default()];
    pools.extend(
        p.pools.iter().enumerate().map(|(i, &flags)| PoolInfo { id: (0, i as u64 + 1), flags }),
    );
    let header =
        TraceHeader { streams: (0..u64::from(p.streams)).collect(), pools, ..Default::default() };
    Trace { header, events: w.events, ..Trace::default() }
}

/// Runs a random program and writes down what a snapshot would show of it.
pub fn record(p: &Program, config: &Config) -> Recording {
    let trace = Arc::new(trace(p));
    let mut sim = SimConfig::new(DeviceProfile::h200());
    sim.keep_log = true;
    sim.placement = Placement::Driver;
    sim.capacity = p.capacity;
    let total = sim.caps.total;
    let fraction = p.limit.map(|l| l as f64 / total as f64);
    let mut policy = Pytorch::new(config, &sim.caps, fraction);
    let mut device = SimDevice::new(sim);
    let mut source = poolsim_core::TraceReader::new(trace.clone());
    replay(&mut source, &mut policy, &mut device, &mut (), &ReplayOptions::default())
        .expect("a legal program");
    let entries = device
        .take_log()
        .iter()
        .map(|d| Entry {
            at: d.event,
            addr: d.addr,
            size: d.size,
            stack: StackId::NONE,
            stream: d.stream,
            action: d.action,
        })
        .collect();
    let mut heap = HeapImage::default();
    policy.visit(&mut heap);
    heap.sort();
    let (heap, pools) = forget(heap, &trace.header.pools);
    let header = TraceHeader {
        device_memory: Some(total),
        memory_fraction: fraction,
        streams: trace.header.streams.clone(),
        pools,
        ..Default::default()
    };
    Recording { header, entries, heap, ..Recording::default() }
}

/// Takes out of the final heap what a snapshot does not show, and numbers the pools that it shows.
fn forget(mut heap: HeapImage, pools: &[PoolInfo]) -> (HeapImage, Vec<PoolInfo>) {
    let mut shown = vec![PoolInfo::default()];
    for (range, blocks) in &mut heap.ranges {
        let id = pools[range.pool.index()].id;
        let at = shown.iter().position(|p| p.id == id).unwrap_or_else(|| {
            shown.push(PoolInfo { id, flags: PoolFlags::default() });
            shown.len() - 1
        });
        range.pool = PoolId(at as u16);
        for b in blocks {
            b.slot = None;
        }
    }
    (heap, shown)
}

/// The same recording as a ring buffer would have kept it: without its first `cut` entries.
pub fn cut(rec: &Recording, cut: usize) -> Recording {
    let mut rec = rec.clone();
    rec.entries.drain(..cut.min(rec.entries.len()));
    rec
}

/// Settings to record under, by name.
pub fn settings() -> Vec<(&'static str, Config)> {
    let base = Config::default();
    let split = Some(32 * MIB);
    vec![
        ("default", base.clone()),
        ("expandable", Config { expandable: true, ..base.clone() }),
        ("split", Config { max_split_size: split, ..base.clone() }),
        ("gc", Config { gc_threshold: 0.7, ..base.clone() }),
        ("gc-split", Config { gc_threshold: 0.7, max_split_size: split, ..base.clone() }),
        ("expandable-split", Config { expandable: true, max_split_size: split, ..base.clone() }),
        (
            "seg64",
            Config {
                large_segment_size: 64 * MIB,
                max_non_split_rounding: 64 * MIB,
                ..base.clone()
            },
        ),
        ("rounded", Config { divisions: [4; 16], rounds_to_divisions: true, ..base }),
    ]
}

/// Bytes that a small program holds at most.
pub const TARGET: Bytes = GIB / 2;
