//! Packings against exhaustive search, a judge, and the traces' own sums.

use poolsim_core::{Event, EventKind, EventSource, PoolId, Slot, StreamId, Trace, TraceReader};
use poolsim_sim::bound::{
    Bounds, Budget, Instance, Lifetime, Lifetimes, Piece, Proof, misplaced, pack,
};
use proptest::prelude::*;
use std::sync::Arc;

fn lifetime(lower: u64, upper: u64, size: u64) -> Lifetime {
    let (stream, pool) = (StreamId(0), PoolId::DEFAULT);
    Lifetime { lower, upper, freed: upper, size, stream, pool }
}

/// Of all orders, each piece at the lowest offset that is free for all of its time: one of them is optimal.
fn least_height(pieces: &[Piece], placed: &mut Vec<(Piece, u64)>, left: &mut Vec<usize>) -> u64 {
    if left.is_empty() {
        return placed.iter().map(|(p, at)| at + p.size).max().unwrap_or(0);
    }
    let mut best = u64::MAX;
    for n in 0..left.len() {
        let i = left.remove(n);
        let piece = pieces[i];
        let free = |at: u64| {
            !placed.iter().any(|(p, o)| p.meets(&piece) && at < o + p.size && *o < at + piece.size)
        };
        let tops = placed.iter().map(|(p, at)| at + p.size).chain([0]);
        let at = tops.filter(|&at| free(at)).min().expect("the highest top is free");
        placed.push((piece, at));
        best = best.min(least_height(pieces, placed, left));
        placed.pop();
        left.insert(n, i);
    }
    best
}

fn lifetimes(most: usize, span: u64, sizes: u64) -> impl Strategy<Value = Vec<Lifetime>> {
    let one = (0..span, 1..=span / 2 + 1, 1..=sizes)
        .prop_map(|(lower, length, size)| lifetime(lower, lower + length, size));
    prop::collection::vec(one, 1..=most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_proven_packing_is_the_best_of_all_and_small_ones_are_proven(
        items in lifetimes(7, 8, 6),
    ) {
        let instance = Instance::new(items.iter(), |item| item.size);
        let packing = pack(&instance, Budget::default());
        prop_assert_eq!(misplaced(&instance, &packing.offsets), None);
        prop_assert_eq!(packing.proof, Proof::Proven);
        let mut left = (0..items.len()).collect();
        let least = least_height(&instance.pieces, &mut Vec::new(), &mut left);
        prop_assert_eq!(packing.height, least);
    }

    #[test]
    fn sections_keep_who_meets_whom(items in lifetimes(30, 40, 9)) {
        let instance = Instance::new(items.iter(), |item| item.size);
        for (a, one) in items.iter().zip(&instance.pieces) {
            for (b, other) in items.iter().zip(&instance.pieces) {
                prop_assert_eq!(a.lower < b.upper && b.lower < a.upper, one.meets(other));
            }
        }
    }

    #[test]
    fn any_budget_gives_a_legal_packing_and_the_same_one_again(
        items in lifetimes(200, 300, 1000),
        steps in prop_oneof![Just(0u64), 0..200_000u64],
    ) {
        let instance = Instance::new(items.iter(), |item| item.size);
        let budget = Budget { steps, deadline: None };
        let packing = pack(&instance, budget);
        prop_assert_eq!(misplaced(&instance, &packing.offsets), None);
        prop_assert!(instance.load() <= packing.least && packing.least <= packing.height);
        prop_assert_eq!(packing.proof == Proof::Proven, packing.least == packing.height);
        prop_assert_ne!(packing.proof, Proof::TimedOut);
        prop_assert_eq!(packing.offsets, pack(&instance, budget).offsets);
    }
}

#[test]
fn the_judge_finds_what_overlaps() {
    let items = [lifetime(0, 4, 10), lifetime(2, 6, 10), lifetime(5, 9, 10)];
    let instance = Instance::new(items.iter(), |item| item.size);
    assert_eq!(misplaced(&instance, &[0, 10, 0]), None);
    assert_eq!(misplaced(&instance, &[0, 9, 0]), Some((0, 1)));
    assert_eq!(misplaced(&instance, &[0, 10, 5]), Some((1, 2)));
}

#[test]
fn waiting_frees_end_when_they_are_complete_and_refused_requests_do_not_count() {
    let event =
        |kind, slot, size| Event::new(kind, 0, Slot(slot), size, StreamId(0), PoolId::DEFAULT);
    let events = vec![
        event(EventKind::Preexisting, 0, 1000),
        event(EventKind::Alloc, 1, 300),
        event(EventKind::FreeLater, 1, 300),
        event(EventKind::AllocRefused, 2, 1 << 40),
        event(EventKind::Alloc, 3, 200),
        event(EventKind::Alloc, 4, 0),
        event(EventKind::FreeDone, 1, 300),
        event(EventKind::Free, 3, 200),
        event(EventKind::Free, 4, 0),
    ];
    let trace = Arc::new(Trace { events, ..Trace::default() });
    let lifetimes = Lifetimes::read(&mut TraceReader::new(Arc::clone(&trace))).unwrap();
    let times: Vec<_> = lifetimes.items.iter().map(|i| (i.lower, i.freed, i.upper)).collect();
    assert_eq!(times, [(0, 9, 9), (1, 2, 6), (4, 7, 7)]);
    let bounds = Bounds::of(&lifetimes, 512, 2 << 20);
    assert_eq!((bounds.live_without_waiting, bounds.live), (1300, 1500));
    assert_eq!((bounds.rounded, bounds.granular), (2048, 2 << 20));
}

#[test]
fn events_that_contradict_each_other_are_errors_with_a_place() {
    let event = |kind, slot| Event::new(kind, 0, Slot(slot), 8, StreamId(0), PoolId::DEFAULT);
    for events in [
        vec![event(EventKind::Alloc, 0), event(EventKind::Alloc, 0)],
        vec![event(EventKind::Alloc, 0), event(EventKind::Free, 1)],
        vec![event(EventKind::Alloc, 0), event(EventKind::FreeDone, 0)],
    ] {
        let mut source = TraceReader::new(Arc::new(Trace { events, ..Trace::default() }));
        let error = Lifetimes::read(&mut source as &mut dyn EventSource).unwrap_err();
        assert_eq!(error.place, poolsim_core::error::Place::Event(1), "{error}");
    }
}
