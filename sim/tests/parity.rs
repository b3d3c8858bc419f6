//! Does the comparison find every difference, count it once, and start level again?

mod common;

use common::{G, Script, Shelf};
use poolsim_core::trace::Trace;
use poolsim_core::*;
use poolsim_sim::parity::{Replayed, compare, replay_recorded};
use poolsim_sim::{DeviceProfile, SimConfig};

fn story() -> Trace {
    Script::default()
        .alloc(0, G)
        .push(EventKind::Use, 0, 0)
        .alloc(1, 100)
        .push(EventKind::FreeLater, 0, 0)
        .alloc(2, 2 * G)
        .push(EventKind::FreeDone, 0, 0)
        .alloc(3, G - 1)
        .free(2)
        .push(EventKind::AllocRefused, 4, 8 * G)
        .push(EventKind::EmptyCache, 0, 0)
        .trace()
}

fn answers() -> Vec<DriverAnswer> {
    let range = |at: u64, granules| DriverAnswer::Range { addr: at * G, size: granules * G };
    let full = DriverAnswer::OutOfMemory;
    vec![range(10, 1), range(20, 1), range(15, 2), full, full]
}

fn replayed(trace: &Trace, answers: Vec<DriverAnswer>) -> Replayed {
    let config = SimConfig::new(DeviceProfile::h200());
    replay_recorded(trace, answers, &mut Shelf::default(), config, None).unwrap()
}

/// The recording that a run would have left.
fn recording(run: &Replayed) -> Recording {
    let entry = |d: &record::Decision| Entry {
        at: d.event,
        addr: d.addr,
        size: d.size,
        stack: Default::default(),
        stream: d.stream,
        action: d.action,
    };
    Recording {
        entries: run.log.iter().map(entry).collect(),
        heap: run.heap.clone(),
        ..Recording::default()
    }
}

#[test]
fn a_run_agrees_with_itself() {
    let run = replayed(&story(), answers());
    assert_eq!(run.divergence, None);
    let mut recording = recording(&run);
    recording.entries[5].at = 99;
    let mark = Entry { action: Action::Snapshot, ..recording.entries[0] };
    recording.entries.insert(3, mark);
    let oom = recording.entries.iter_mut().find(|e| e.action == Action::Oom).unwrap();
    oom.addr = 12345;
    let parity = compare(&recording, &run);
    assert_eq!(parity.mismatches(), 0, "{parity:?}");
    assert_eq!(parity.entries_compared, run.log.len() as u64);
    assert_eq!(parity.first_mismatch, None);
    assert_eq!(parity.blocks_compared, 4, "two ranges with a block each");
}

#[test]
fn every_changed_entry_is_found() {
    let run = replayed(&story(), answers());
    let whole = recording(&run);
    for i in 0..whole.entries.len() {
        type Change = fn(&mut Entry);
        let changes: [Change; 3] = [
            |e| e.size += 1,
            |e| e.stream = StreamId(5),
            |e| e.addr += u64::from(e.action != Action::Oom),
        ];
        for change in changes {
            let mut other = whole.clone();
            change(&mut other.entries[i]);
            if other.entries == whole.entries {
                continue;
            }
            let parity = compare(&other, &run);
            let first = parity.first_mismatch.unwrap();
            assert_eq!((first.index, parity.entry_mismatches), (i as u64, 1));
            assert_eq!(first.recorded, Some(other.entries[i]));
            assert_eq!(first.simulated, Some(run.log[i]));
            assert_eq!(first.event, Some(run.log[i].event));
            assert!(first.context.iter().any(|line| line.starts_with("recorded")));
        }
        let mut shorter = whole.clone();
        shorter.entries.remove(i);
        let parity = compare(&shorter, &run);
        assert!(parity.entry_mismatches >= 1 && parity.first_mismatch.is_some(), "{i}");
    }
}

#[test]
fn every_changed_block_is_found() {
    let run = replayed(&story(), answers());
    let whole = recording(&run);
    type Change = fn(&mut RangeView, &mut BlockView);
    let changes: [Change; 6] = [
        |_, b| b.requested += 1,
        |_, b| b.state = BlockState::Pending,
        |r, _| r.stream = StreamId(1),
        |r, _| r.pool = PoolId(1),
        |r, _| r.expandable = true,
        |r, _| r.small = true,
    ];
    for change in changes {
        let mut other = whole.clone();
        let (range, blocks) = &mut other.heap.ranges[0];
        change(range, &mut blocks[0]);
        let parity = compare(&other, &run);
        assert_eq!((parity.entry_mismatches, parity.heap_mismatches), (0, 1));
        assert_eq!(parity.heap_differences.len(), 1);
    }
    let mut other = whole;
    other.heap.ranges.pop();
    assert_eq!(compare(&other, &run).heap_mismatches, 2);
}

#[test]
fn ranges_of_an_expandable_segment_that_touch_are_one() {
    let run = replayed(&story(), answers());
    let view = |addr, size| RangeView {
        addr,
        size,
        stream: StreamId(0),
        pool: PoolId(0),
        small: false,
        expandable: true,
        stack: Default::default(),
    };
    let block = |addr, size| BlockView {
        addr,
        size,
        requested: size,
        state: BlockState::Allocated,
        slot: None,
        stack: Default::default(),
    };
    let mut ours = run.clone();
    ours.heap.ranges =
        vec![(view(2 * G, G), vec![block(2 * G, G)]), (view(G, G), vec![block(G, G)])];
    let mut theirs = recording(&run);
    theirs.heap.ranges = vec![(view(G, 2 * G), vec![block(G, G), block(2 * G, G)])];
    assert_eq!(compare(&theirs, &ours).heap_mismatches, 0);
    ours.heap.ranges[0].0.stream = StreamId(1);
    assert_eq!(compare(&theirs, &ours).heap_mismatches, 3);
}

#[test]
fn answers_that_do_not_fit_are_reported() {
    let mut short = answers();
    short.truncate(2);
    let run = replayed(&story(), short);
    let divergence = run.divergence.clone().unwrap();
    assert_eq!((divergence.call, divergence.event, divergence.answer), (2, 4, None));
    let parity = compare(&recording(&replayed(&story(), answers())), &run);
    let first = parity.first_mismatch.unwrap();
    assert!(first.context.last().unwrap().contains("the recorded driver answered nothing"));
}

#[test]
fn a_run_can_stop_at_the_state_that_led_to_a_mismatch() {
    let config = SimConfig::new(DeviceProfile::h200());
    let run = replay_recorded(&story(), answers(), &mut Shelf::default(), config, Some(2)).unwrap();
    assert_eq!((run.end.events, run.heap.reserved()), (3, 2 * G));
}
