//! The tools that make a trace of traces: what comes out is legal and is what was asked for.

mod common;

use common::legal_trace;
use poolsim_core::event::{Annotation, Knows, PoolInfo};
use poolsim_core::stack::{Frame, StackId, StackTable};
use poolsim_core::{Bytes, Event, EventKind, Nanos, StreamId, Trace, TraceHeader, TraceReader};
use poolsim_traces::transform::{
    Align, Factor, Flow, Span, Strip, anonymize, merge, scale, shrink, slice, strip,
};
use poolsim_traces::{Source, check, native, write_pst};
use proptest::prelude::*;
use std::sync::Arc;

fn flow(trace: &Trace) -> Flow {
    Flow::of(Source::Trace(Box::new(trace.clone()))).unwrap()
}

/// The trace of a flow, which must be legal and the same when it is streamed into a `.pst`.
fn collected(flow: Flow) -> Trace {
    let trace = flow.collect().unwrap();
    check::check(&mut TraceReader::new(Arc::new(trace.clone()))).unwrap();
    trace
}

fn streamed(mut flow: Flow) -> Trace {
    let (bytes, _) = write_pst(Vec::new(), &mut *flow.source, &flow.tables.borrow()).unwrap();
    let reader = poolsim_traces::PstReader::from_bytes(bytes).unwrap();
    poolsim_traces::read_all(reader).unwrap()
}

/// Live bytes by stream after each event with its time.
fn live(trace: &Trace) -> Vec<(Nanos, Bytes)> {
    let mut sum = 0;
    let events = trace.events.iter().map(|event| {
        match event.kind() {
            kind if kind.makes_live() => sum += event.size,
            EventKind::Free | EventKind::FreeDone => sum -= event.size,
            _ => {}
        }
        (event.at, sum)
    });
    events.collect()
}

proptest! {
    #[test]
    fn a_slice_holds_the_events_of_its_span_and_the_memory_that_was_live_there(
        trace in legal_trace(150), a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>()
    ) {
        prop_assume!(!trace.events.is_empty());
        let (a, b) = (a.index(trace.events.len()), b.index(trace.events.len()));
        let (from, to) = (a.min(b) as u64, a.max(b) as u64);
        let part = || slice(flow(&trace), Span::Events { from, to }).unwrap();
        let got = collected(part());
        prop_assert_eq!(&streamed(part()).events, &got.events);
        let inside = &trace.events[from as usize..to as usize];
        let tail = &got.events[got.events.len() - inside.len()..];
        let start = if from > 0 { trace.events[from as usize].at } else { 0 };
        for (was, is) in inside.iter().zip(tail) {
            prop_assert_eq!((was.kind(), was.at - start, was.size), (is.kind(), is.at, is.size));
            prop_assert_eq!((was.stream, was.pool()), (is.stream, is.pool()));
        }
        let (whole, part) = (live(&trace), live(&got));
        if let Some(last) = part.last() {
            let at = (to as usize).max(1) - 1;
            prop_assert_eq!(last.1, if to == 0 { 0 } else { whole[at].1 });
        }
        // By time: the same events as the numbers that lie in it.
        let span = Span::Time { from: start, to: trace.events[to as usize].at };
        let timed = collected(slice(flow(&trace), span).unwrap());
        let count = trace.events.iter().filter(|e| (start..trace.events[to as usize].at).contains(&e.at)).count();
        prop_assert!(timed.events.len() >= count);
    }

    #[test]
    fn a_merge_holds_every_event_of_every_part_once_and_in_order(
        parts in prop::collection::vec(legal_trace(60), 1..4), after in any::<bool>()
    ) {
        let align = if after { Align::After } else { Align::Start };
        let merged = || merge(&mut |n| Ok(flow(&parts[n])), parts.len(), align, false).unwrap();
        let got = collected(merged());
        prop_assert_eq!(&streamed(merged()).events, &got.events);
        let total: usize = parts.iter().map(|part| part.events.len()).sum();
        prop_assert_eq!(got.events.len(), total);
        let sum = |traces: &[Trace]| traces.iter().flat_map(live).map(|(_, n)| n).max();
        if parts.len() == 1 {
            prop_assert_eq!(sum(&parts), sum(std::slice::from_ref(&got)));
        }
        let streams: u16 = parts.iter().map(|part| part.header.streams.len() as u16).sum();
        prop_assert!(got.events.iter().all(|e| e.stream.0 < streams || e.stream == StreamId::FOREIGN));
        let ends: Bytes = parts.iter().filter_map(|part| live(part).last().map(|l| l.1)).sum();
        prop_assert_eq!(live(&got).last().map_or(0, |l| l.1), ends);
    }

    #[test]
    fn scaling_by_a_factor_and_back_is_the_identity(trace in legal_trace(100)) {
        let double = Factor::parse("2").unwrap();
        let half = Factor::parse("0.5").unwrap();
        let there = scale(flow(&trace), double, 0, double);
        let back = collected(scale(there, half, 0, half));
        prop_assert_eq!(&back.events, &trace.events);
        let twice = collected(scale(flow(&trace), double, 4096, Factor::ONE));
        for (was, is) in trace.events.iter().zip(&twice.events) {
            prop_assert_eq!(is.size, if was.size >= 4096 { 2 * was.size } else { was.size });
        }
    }

    #[test]
    fn stripping_leaves_out_what_it_says_and_stays_legal(trace in legal_trace(100), bits in 0u8..128) {
        let bit = |n: u8| bits >> n & 1 == 1;
        let what = Strip {
            stacks: bit(0), annotations: bit(1), heap: bit(2), notes: bit(3), times: bit(4), streams: bit(5),
            pools: bit(6),
        };
        let got = collected(strip(flow(&trace), what));
        prop_assert_eq!(&streamed(strip(flow(&trace), what)).events, &got.events);
        prop_assert!(!what.stacks || got.event_stacks.iter().all(|s| *s == StackId::NONE));
        prop_assert!(!what.times || got.events.iter().all(|e| e.at == 0));
        prop_assert!(!what.streams || got.events.iter().all(|e| e.stream.0 == 0));
        prop_assert!(!what.pools || got.events.iter().all(|e| e.pool().0 == 0));
        let sizes = |t: &Trace| t.events.iter().filter(|e| e.kind() == EventKind::Alloc).map(|e| e.size).collect::<Vec<_>>();
        prop_assert_eq!(sizes(&got), sizes(&trace));
    }

    #[test]
    fn shrinking_keeps_the_property_and_nothing_can_be_left_out(trace in legal_trace(80)) {
        let peak = |t: &Trace| live(t).iter().map(|l| l.1).max().unwrap_or(0);
        let wanted = peak(&trace) / 2 + 1;
        let mut holds = |t: &Trace| Ok::<bool, ()>(peak(t) >= wanted);
        let found = shrink(&trace, 100_000, &mut holds).unwrap();
        let Some(found) = found else { return Err(TestCaseError::reject("nothing is live")) };
        prop_assert!(found.minimal);
        check::check(&mut TraceReader::new(Arc::new(found.trace.clone()))).unwrap();
        prop_assert!(peak(&found.trace) >= wanted);
        // Only allocations that the peak needs: without the smallest one it is too low.
        let sizes: Vec<u64> = found.trace.events.iter().filter(|e| e.kind().makes_live()).map(|e| e.size).collect();
        let least = sizes.iter().min().copied().unwrap_or(0);
        prop_assert!(sizes.iter().sum::<u64>() - least < wanted);
        let needed = |e: &Event| {
            e.kind().makes_live() || matches!(e.kind(), EventKind::Use | EventKind::FreeLater)
        };
        prop_assert!(found.trace.events.iter().all(needed));
        let again = shrink(&trace, 100_000, &mut holds).unwrap().unwrap();
        prop_assert_eq!(again.trace.events, found.trace.events);
    }
}

/// A trace with a text in every place that can hold one, each text unlike any other.
fn talkative(trace: &Trace) -> (Trace, Vec<String>) {
    let mut said = Vec::new();
    let mut word = |what: &str| {
        let text = format!("q{}-{what}-Zw{}", said.len(), said.len() * 7919);
        said.push(text.clone());
        text
    };
    let mut trace = trace.clone();
    trace.stacks = StackTable::default();
    let frame = Frame { name: word("function"), file: word("/home/somebody/model.py"), line: 3 };
    let frame = trace.stacks.intern_frame(frame);
    let stack = trace.stacks.intern_stack(&[frame]);
    trace.event_stacks = vec![stack; trace.events.len()];
    trace.annotations = vec![Annotation { name: word("span"), start: 0, end: None }];
    let attributes = [(word("key"), word("value"))].into();
    trace.header = TraceHeader {
        source: word("source"),
        device_name: Some(word("device")),
        settings: Some(word("settings")),
        framework: Some(word("framework")),
        notes: vec![word("note")],
        attributes,
        start_unix_us: Some(1_790_123_456_789_012),
        device: 4_019_283_745,
        streams: trace.header.streams.iter().map(|s| s ^ 0x5566_7788_99aa).collect(),
        pools: vec![
            PoolInfo::default(),
            PoolInfo { id: (918_273_645, 192_837_465), ..Default::default() },
        ],
        knows: Knows { stacks: true, ..Knows::default() },
        ..trace.header.clone()
    };
    for number in [1_790_123_456_789_012u64, 4_019_283_745, 918_273_645, 192_837_465] {
        said.push(number.to_string());
    }
    said.extend(trace.header.streams.iter().map(u64::to_string));
    (trace, said)
}

proptest! {
    #[test]
    fn nothing_textual_is_left_after_anonymizing(trace in legal_trace(60)) {
        let (trace, said) = talkative(&trace);
        let mut out = anonymize(flow(&trace));
        let mut json = Vec::new();
        native::write_json(&mut json, &mut *out.source, &out.tables.borrow()).unwrap();
        let text = String::from_utf8(json.clone()).unwrap();
        for word in &said {
            prop_assert!(!text.contains(word.as_str()), "{word} is left in {text}");
        }
        let read = native::read_json(&json[..]).unwrap();
        let plain = |e: &Event| (e.kind(), e.at, e.size, e.slot, e.stream, e.pool());
        let (was, is): (Vec<_>, Vec<_>) =
            (trace.events.iter().map(plain).collect(), read.events.iter().map(plain).collect());
        prop_assert_eq!(was, is);
        // The same holds of the compact form, whose parts are decompressed when they are read.
        let again = streamed(anonymize(flow(&trace)));
        prop_assert_eq!(&again.header, &{ let h = anonymize(flow(&trace)); let mut h = h.source.header().clone(); h.events = again.header.events; h.slots = again.header.slots; h });
        prop_assert!(again.stacks.is_empty() && again.annotations.is_empty() && again.initial_heap.is_none());
        prop_assert!(again.event_stacks.iter().all(|s| *s == StackId::NONE));
    }
}

#[test]
fn factors_are_exact_or_refused() {
    for text in ["1", "2", "0.5", "1.25", ".5", "3."] {
        assert!(Factor::parse(text).is_ok(), "{text}");
    }
    for text in ["", ".", "0", "0.0", "-1", "1e3", "1.2.3", "x", "12345678901"] {
        assert!(Factor::parse(text).is_err(), "{text}");
    }
}

#[test]
fn merging_by_the_clock_needs_clocks_and_lays_traces_side_by_side() {
    let text = |at: u64| {
        format!(
            r#"{{"poolsim_trace": 1, "start_unix_us": {at}, "events": [{{"alloc": 1, "size": 7}}, {{"free": 1, "t": "3ms"}}]}}"#
        )
    };
    let parts = [text(2000), text(1000)].map(|t| native::read_json(t.as_bytes()).unwrap());
    let got = collected(merge(&mut |n| Ok(flow(&parts[n])), 2, Align::Clock, false).unwrap());
    let at: Vec<(u64, u16)> = got.events.iter().map(|e| (e.at, e.stream.0)).collect();
    assert_eq!(at, [(0, 1), (1_000_000, 0), (3_000_000, 1), (4_000_000, 0)]);
    assert_eq!(got.header.start_unix_us, Some(1000));
    let clockless = Trace { header: TraceHeader::default(), ..parts[0].clone() };
    let error = merge(&mut |_| Ok(flow(&clockless)), 2, Align::Clock, false).err().unwrap();
    assert!(error.what.contains("does not say when"), "{error}");
}

#[test]
fn a_property_that_does_not_hold_at_first_is_said() {
    let trace = Trace::default();
    assert!(shrink(&trace, 10, &mut |_| Ok::<bool, ()>(false)).unwrap().is_none());
}
