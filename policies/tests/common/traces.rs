//! Legal traces from any list of operations: an operation that makes no sense where it stands is left out. So
//! random lists and shrunk lists are traces too.

use poolsim_core::event::PoolInfo;
use poolsim_core::units::{KIB, MIB};
use poolsim_core::{Bytes, Event, EventKind, PoolId, Slot, StreamId, Trace, TraceHeader};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Streams that operations name.
pub const STREAMS: u16 = 3;
/// Pools that operations name, the default pool included.
pub const POOLS: u16 = 3;

/// One operation. `usize` picks among what is there, modulo its number.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Alloc {
        size: Bytes,
        stream: u16,
        pool: u16,
    },
    /// A request that the recorded run was refused.
    Refused {
        size: Bytes,
        stream: u16,
    },
    Free(usize),
    Use(usize, u16),
    FreeLater(usize),
    FreeDone(usize),
    EmptyCache,
    Open(u16),
    Close(u16),
    Drop(u16),
    Destroy(u16),
    SyncStream(u16),
    SyncDevice,
}

/// Builds a trace event by event, leaving out what would be illegal.
#[derive(Default)]
struct Builder {
    events: Vec<Event>,
    /// Slot, size, stream and pool of what is live, and of what is pending.
    live: Vec<(Slot, Bytes, StreamId, PoolId)>,
    pending: Vec<(Slot, Bytes, StreamId, PoolId)>,
    spare: Vec<Slot>,
    slots: u32,
    open: Vec<u16>,
    dropped: Vec<u16>,
}

impl Builder {
    fn event(&mut self, kind: EventKind, of: (Slot, Bytes, StreamId, PoolId)) {
        let at = self.events.len() as u64 * 1000;
        self.events.push(Event::new(kind, at, of.0, of.1, of.2, of.3));
    }

    fn bare(&mut self, kind: EventKind, stream: u16, pool: u16) {
        self.event(kind, (Slot(0), 0, StreamId(stream), PoolId(pool)));
    }

    fn slot(&mut self) -> Slot {
        self.spare.pop().unwrap_or_else(|| {
            self.slots += 1;
            Slot(self.slots - 1)
        })
    }

    fn alloc(&mut self, size: Bytes, stream: u16, pool: u16) {
        // Requests go to a private pool only while a redirection to it is open.
        let pool = if self.open.contains(&pool) { pool } else { 0 };
        let block = (self.slot(), size, StreamId(stream), PoolId(pool));
        self.event(EventKind::Alloc, block);
        self.live.push(block);
    }

    fn free(&mut self, which: usize, kind: EventKind) {
        if self.live.is_empty() {
            return;
        }
        let block = self.live.swap_remove(which % self.live.len());
        self.event(kind, block);
        match kind {
            EventKind::Free => self.spare.push(block.0),
            _ => self.pending.push(block),
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Alloc { size, stream, pool } => self.alloc(size, stream, pool),
            Op::Refused { size, stream } => {
                let slot = Slot(self.slots);
                let of = (slot, size, StreamId(stream), PoolId::DEFAULT);
                self.event(EventKind::AllocRefused, of);
            }
            Op::Free(which) => self.free(which, EventKind::Free),
            Op::FreeLater(which) => self.free(which, EventKind::FreeLater),
            Op::Use(which, stream) if !self.live.is_empty() => {
                let block = self.live[which % self.live.len()];
                // A use on the block's own stream is none.
                let other = if block.2.0 == stream { (stream + 1) % STREAMS } else { stream };
                self.event(EventKind::Use, (block.0, 0, StreamId(other), block.3));
            }
            Op::FreeDone(which) if !self.pending.is_empty() => {
                let block = self.pending.swap_remove(which % self.pending.len());
                self.event(EventKind::FreeDone, block);
                self.spare.push(block.0);
            }
            Op::EmptyCache => self.bare(EventKind::EmptyCache, 0, 0),
            Op::Open(pool) if pool > 0 && self.open.is_empty() && !self.dropped.contains(&pool) => {
                self.open.push(pool);
                self.bare(EventKind::PoolOpen, 0, pool);
            }
            Op::Close(_) => {
                if let Some(pool) = self.open.pop() {
                    self.bare(EventKind::PoolClose, 0, pool);
                }
            }
            Op::Drop(pool) | Op::Destroy(pool) => {
                let idle = pool > 0 && !self.open.contains(&pool) && !self.dropped.contains(&pool);
                let used = self.events.iter().any(|e| e.pool().0 == pool);
                // PyTorch waits inside a destruction and refuses it while any redirection is open.
                if idle && used && self.open.is_empty() {
                    let kind = match op {
                        Op::Drop(_) => EventKind::PoolDrop,
                        _ => EventKind::PoolDestroy,
                    };
                    self.bare(kind, 0, pool);
                    self.dropped.push(pool);
                }
            }
            Op::SyncStream(stream) => self.bare(EventKind::SyncStream, stream, 0),
            Op::SyncDevice => self.bare(EventKind::SyncDevice, 0, 0),
            Op::Use(..) | Op::FreeDone(_) | Op::Open(_) => {}
        }
    }
}

/// The trace of a list of operations.
pub fn trace(ops: &[Op]) -> Trace {
    let mut builder = Builder::default();
    ops.iter().for_each(|&op| builder.apply(op));
    let header = TraceHeader {
        source: "synth".into(),
        streams: (0..STREAMS.into()).collect(),
        pools: (0..POOLS.into()).map(|i| PoolInfo { id: (0, i), ..PoolInfo::default() }).collect(),
        ..TraceHeader::default()
    };
    Trace { header, events: builder.events, ..Trace::default() }
}

/// Highest sum of live and pending sizes.
pub fn peak_live(trace: &Trace) -> Bytes {
    let (mut now, mut peak) = (0, 0);
    for event in &trace.events {
        match event.kind() {
            kind if kind.makes_live() => now += event.size,
            EventKind::Free | EventKind::FreeDone => now -= event.size,
            _ => {}
        }
        peak = peak.max(now);
    }
    peak
}

/// Requests as jobs make them: many small ones, some of a few MiB, few large ones.
pub fn size(rng: &mut Pcg64) -> Bytes {
    match rng.random_range(0..10) {
        0..5 => rng.random_range(1..4 * KIB),
        5..7 => rng.random_range(4 * KIB..MIB),
        7..9 => rng.random_range(MIB..12 * MIB),
        _ => rng.random_range(12 * MIB..70 * MIB),
    }
}

/// A training job in small: steps that allocate layer by layer, free in reverse and keep a little.
pub fn steps(seed: u64, count: usize) -> Trace {
    let mut rng = Pcg64::seed_from_u64(seed);
    let weights: Vec<Op> =
        (0..12).map(|_| Op::Alloc { size: size(&mut rng), stream: 0, pool: 0 }).collect();
    let layers: Vec<Bytes> = (0..24).map(|_| size(&mut rng)).collect();
    let mut ops = weights;
    for step in 0..count {
        let scale = rng.random_range(75..125);
        for &layer in &layers {
            ops.push(Op::Alloc { size: layer * scale / 100 + 1, stream: 0, pool: 0 });
            ops.push(Op::Alloc { size: size(&mut rng) / 8 + 1, stream: 0, pool: 0 });
            ops.push(Op::Free(usize::MAX / 2 + rng.random_range(0..3)));
        }
        // The last ones made are the first ones freed, as far as swap_remove leaves them there.
        ops.extend(std::iter::repeat_n(Op::Free(rng.random_range(0..50)), layers.len()));
        if step % 7 == 6 {
            ops.push(Op::EmptyCache);
        }
    }
    trace(&ops)
}

/// Random operations; `all` also with streams, pools and host waits.
pub fn random(seed: u64, count: usize, all: bool) -> Trace {
    let mut rng = Pcg64::seed_from_u64(seed);
    let ops: Vec<Op> = (0..count).map(|_| random_op(&mut rng, all)).collect();
    trace(&ops)
}

fn random_op(rng: &mut Pcg64, all: bool) -> Op {
    let which = rng.random_range(0..1usize << 20);
    let stream = if all { rng.random_range(0..STREAMS) } else { 0 };
    let pool = if all { rng.random_range(0..POOLS) } else { 0 };
    match rng.random_range(0..if all { 132 } else { 101 }) {
        0..52 => Op::Alloc { size: size(rng), stream, pool },
        52..99 => Op::Free(which),
        99 => Op::EmptyCache,
        100 => Op::Refused { size: size(rng), stream },
        101..109 => Op::Use(which, stream),
        109..115 => Op::FreeLater(which),
        115..121 => Op::FreeDone(which),
        121..125 => Op::Open(pool),
        125..128 => Op::Close(pool),
        128 => Op::Drop(pool),
        129 => Op::Destroy(pool),
        130 => Op::SyncStream(stream),
        _ => Op::SyncDevice,
    }
}

/// Operations for property tests; they shrink by leaving out and by becoming smaller.
pub fn any_ops(count: usize) -> impl Strategy<Value = Vec<Op>> {
    let size = prop_oneof![
        4 => 1..4 * KIB,
        2 => 4 * KIB..MIB,
        2 => MIB..30 * MIB,
        1 => prop::sample::select(vec![1, 512, 513, MIB, MIB + 1, 10 * MIB, 20 * MIB, 1 << 59, u64::MAX]),
    ];
    let op = prop_oneof![
        40 => (size, 0..STREAMS, 0..POOLS)
            .prop_map(|(size, stream, pool)| Op::Alloc { size, stream, pool }),
        30 => any::<usize>().prop_map(Op::Free),
        6 => (any::<usize>(), 0..STREAMS).prop_map(|(which, stream)| Op::Use(which, stream)),
        6 => any::<usize>().prop_map(Op::FreeLater),
        5 => any::<usize>().prop_map(Op::FreeDone),
        2 => Just(Op::EmptyCache),
        3 => (1..POOLS).prop_map(Op::Open),
        3 => (1..POOLS).prop_map(Op::Close),
        1 => (1..POOLS).prop_map(Op::Drop),
        1 => (1..POOLS).prop_map(Op::Destroy),
        1 => (0..STREAMS).prop_map(Op::SyncStream),
        1 => Just(Op::SyncDevice),
    ];
    prop::collection::vec(op, 0..count)
}
