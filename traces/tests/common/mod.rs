//! Random traces, and how to compare them.
#![allow(dead_code, reason = "each test binary uses a part")]

use poolsim_core::event::{Annotation, Knows, PoolInfo};
use poolsim_core::stack::{Frame, StackId, StackTable};
use poolsim_core::{
    BlockState, BlockView, Event, EventKind, HeapImage, PoolFlags, PoolId, RangeView, Slot,
    StreamId, Trace, TraceHeader,
};
use poolsim_traces::{PstWriter, Tables};
use proptest::prelude::*;

/// Events that a `.pst` can hold: any kinds in any order, dense slots, monotone time.
pub fn any_events(most: usize) -> impl Strategy<Value = Vec<Event>> {
    let event = (
        0u8..14,
        prop_oneof![Just(0u64), 0u64..5000, 0u64..5_000_000_000_000],
        any::<u32>(),
        prop_oneof![
            Just(0u64),
            Just(512u64),
            1u64..1 << 20,
            any::<u64>().prop_map(|n| n >> 8),
            Just(u64::MAX)
        ],
        prop_oneof![Just(0u16), 0u16..4, any::<u16>()],
        prop_oneof![Just(0u16), 0u16..4, 0u16..=Event::MAX_POOL],
    );
    prop::collection::vec(event, 0..most).prop_map(|raw| {
        let mut at = 0;
        raw.into_iter()
            .enumerate()
            .map(|(i, (kind, step, slot, size, stream, pool))| {
                at += step;
                let kind = EventKind::from_number(kind).unwrap();
                let size = if kind.makes_live() { size >> 16 } else { size };
                let slot = Slot(slot % (i as u32 + 1));
                Event::new(kind, at, slot, size, StreamId(stream), PoolId(pool))
            })
            .collect()
    })
}

/// A legal trace: what a program could have done. Every table is filled.
pub fn legal_trace(most: usize) -> impl Strategy<Value = Trace> {
    let action =
        (0u8..16, 0u64..100_000, 1u64..1 << 30, 0u16..4, 0u16..3, any::<prop::sample::Index>());
    (prop::collection::vec(action, 0..most), any::<bool>(), 0usize..4)
        .prop_map(|(actions, stacks, preexisting)| build_trace(&actions, stacks, preexisting))
}

type RawAction = (u8, u64, u64, u16, u16, prop::sample::Index);

fn build_trace(actions: &[RawAction], with_stacks: bool, preexisting: usize) -> Trace {
    let mut trace = Trace { header: header(), annotations: annotations(), ..Trace::default() };
    let mut slots = poolsim_traces::transform::SlotAllocator::default();
    let mut live: Vec<Event> = Vec::new();
    let mut pending: Vec<Event> = Vec::new();
    let mut at = 0;
    for i in 0..preexisting {
        let event = Event::new(
            EventKind::Preexisting,
            0,
            slots.take(),
            1 << (9 + i),
            StreamId(0),
            PoolId(0),
        );
        live.push(event);
        trace.events.push(event);
    }
    trace.initial_heap = (preexisting > 0).then(|| heap(&trace.events));
    for (what, step, size, stream, pool, pick) in actions {
        at += step;
        let of = |kind, e: &Event| Event::new(kind, at, e.slot, e.size, e.stream, e.pool());
        let (stream, pool) = (StreamId(*stream), PoolId(*pool));
        let event = match what {
            0..6 => {
                let event = Event::new(EventKind::Alloc, at, slots.take(), *size, stream, pool);
                live.push(event);
                event
            }
            6 => Event::new(EventKind::AllocRefused, at, slots.peek(), *size, stream, pool),
            7..11 if !live.is_empty() => {
                let freed = live.swap_remove(pick.index(live.len()));
                slots.release(freed.slot);
                of(EventKind::Free, &freed)
            }
            11 if !live.is_empty() => {
                let freed = live.swap_remove(pick.index(live.len()));
                pending.push(freed);
                of(EventKind::FreeLater, &freed)
            }
            12 if !pending.is_empty() => {
                let done = pending.swap_remove(pick.index(pending.len()));
                slots.release(done.slot);
                of(EventKind::FreeDone, &done)
            }
            13 if !live.is_empty() => {
                let used = live[pick.index(live.len())];
                Event::new(EventKind::Use, at, used.slot, 0, stream, PoolId(0))
            }
            14 => Event::new(EventKind::EmptyCache, at, Slot(0), 0, StreamId(0), PoolId(0)),
            _ => Event::new(EventKind::SyncStream, at, Slot(0), 0, stream, PoolId(0)),
        };
        trace.events.push(event);
    }
    if with_stacks && !trace.events.is_empty() {
        trace.stacks = stacks();
        trace.event_stacks = (0..trace.events.len()).map(|i| StackId((i % 3) as u32)).collect();
        trace.event_stacks[0] = StackId(1);
        trace.header.knows.stacks = true;
    }
    trace.header.events = Some(trace.events.len() as u64);
    trace.header.slots = Some(trace.slot_count());
    trace
}

fn header() -> TraceHeader {
    TraceHeader {
        source: "test".into(),
        device: 3,
        device_name: Some("GPU \"x\"".into()),
        device_memory: Some(80 << 30),
        memory_fraction: Some(0.1),
        settings: Some("max_split_size_mb:128".into()),
        streams: vec![0, 7, 8, 1 << 63],
        pools: (0..3)
            .map(|i| PoolInfo {
                id: (i, 0),
                flags: PoolFlags { no_split: i == 2, use_on_oom: i == 1 },
            })
            .collect(),
        start_unix_us: Some(1_700_000_000_000_000),
        knows: Knows { order: false, ..Knows::default() },
        notes: vec!["a note".into()],
        attributes: [("job".to_string(), "test".to_string())].into(),
        ..TraceHeader::default()
    }
}

fn annotations() -> Vec<Annotation> {
    vec![
        Annotation { name: "step\u{1f600}\n".into(), start: 1, end: Some(5) },
        Annotation { name: "open".into(), start: 2, end: None },
    ]
}

fn stacks() -> StackTable {
    let mut stacks = StackTable::default();
    let call = |name: &str, line| Frame { name: name.into(), file: "a.py".into(), line };
    let (f, g) = (stacks.intern_frame(call("f (x)", 1)), stacks.intern_frame(call("g", 0)));
    stacks.intern_stack(&[f, g]);
    stacks.intern_stack(&[g]);
    stacks
}

fn heap(preexisting: &[Event]) -> HeapImage {
    let size = 2 << 20;
    let range = RangeView {
        addr: 0x7f00_0000_0000,
        size,
        stream: StreamId(0),
        pool: PoolId(0),
        small: true,
        expandable: false,
        stack: StackId::NONE,
    };
    let mut addr = range.addr;
    let mut blocks: Vec<BlockView> = preexisting
        .iter()
        .map(|event| {
            addr += event.size;
            BlockView {
                addr: addr - event.size,
                size: event.size,
                requested: event.size,
                state: BlockState::Allocated,
                slot: Some(event.slot),
                stack: StackId::NONE,
            }
        })
        .collect();
    let rest = range.addr + size - addr;
    blocks.push(BlockView {
        addr,
        size: rest,
        requested: 0,
        state: BlockState::Free,
        slot: None,
        stack: StackId::NONE,
    });
    HeapImage { ranges: vec![(range, blocks)] }
}

/// The trace as `.pst` bytes.
pub fn pst_bytes(trace: &Trace) -> Vec<u8> {
    let mut writer = PstWriter::new(Vec::new(), &trace.header).unwrap();
    writer.write(&trace.events, &trace.event_stacks).unwrap();
    writer.finish(&Tables::of(trace)).unwrap().0
}

/// Fails unless both are the same trace.
pub fn assert_same(a: &Trace, b: &Trace) {
    assert_eq!(a.events, b.events);
    assert_eq!(a.event_stacks, b.event_stacks);
    assert_eq!(a.annotations, b.annotations);
    assert_eq!(a.initial_heap, b.initial_heap);
    assert_eq!(a.header, b.header);
    assert_eq!(a.stacks.stack_count(), b.stacks.stack_count());
    for id in 0..a.stacks.stack_count() as u32 {
        let of = |t: &Trace| t.stacks.stack(StackId(id)).cloned().collect::<Vec<Frame>>();
        assert_eq!(of(a), of(b));
    }
}
