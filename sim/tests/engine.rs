//! Is the engine's order of calls right, and does it refuse traces that contradict themselves?

mod common;

use common::{G, Script, Shelf, device};
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::record::Decision;
use poolsim_core::{Action, EventKind, ReplayTarget, TraceError};
use poolsim_sim::{Observer, Outcome, ReplayOptions, RunEnd, Step, Stop, replay};

fn run(script: Script, granules: u64) -> Result<(RunEnd, Vec<Decision>), TraceError> {
    run_with(script, granules, &ReplayOptions::default())
}

fn run_with(
    script: Script,
    granules: u64,
    options: &ReplayOptions<'_>,
) -> Result<(RunEnd, Vec<Decision>), TraceError> {
    let (mut policy, mut device) = (Shelf::default(), device(granules));
    let end = replay(&mut script.source(), &mut policy, &mut device, &mut (), options)?;
    Ok((end, device.take_log()))
}

fn actions(log: &[Decision]) -> Vec<(u64, Action, u64)> {
    log.iter().map(|d| (d.event, d.action, d.size)).collect()
}

fn refused(script: Script) -> String {
    let error = run(script, 8).unwrap_err();
    assert_eq!(error.kind, TraceErrorKind::Illegal, "{error}");
    assert!(matches!(error.place, Place::Event(_)), "{error}");
    error.to_string()
}

#[test]
fn a_plain_life_is_logged_in_order() {
    let (end, log) = run(Script::default().alloc(0, 100).free(0).alloc(0, 200).free(0), 8).unwrap();
    use Action::*;
    assert_eq!(
        actions(&log),
        [
            (0, SegmentAlloc, G),
            (0, Alloc, 100),
            (1, FreeRequested, 100),
            (1, FreeCompleted, 100),
            (2, Alloc, 200),
            (3, FreeRequested, 200),
            (3, FreeCompleted, 200),
        ]
    );
    assert_eq!((end.events, end.allocs, end.ooms, end.live.len()), (4, 2, 0, 0));
    assert_eq!(end.stats.active.peak, G);
}

#[test]
fn a_later_free_completes_when_the_trace_says_so() {
    let script = Script::default()
        .alloc(0, 10)
        .push(EventKind::FreeLater, 0, 0)
        .alloc(1, 11)
        .push(EventKind::FreeDone, 0, 0)
        .alloc(0, 12);
    let (end, log) = run(script, 8).unwrap();
    use Action::*;
    assert_eq!(
        actions(&log),
        [
            (0, SegmentAlloc, G),
            (0, Alloc, 10),
            (1, FreeRequested, 10),
            (2, SegmentAlloc, G),
            (2, Alloc, 11),
            (4, FreeCompleted, 10),
            (4, Alloc, 12),
        ]
    );
    assert_eq!(log[1].addr, log[6].addr);
    assert_eq!(end.live.len(), 2);
}

#[test]
fn a_declared_use_with_an_unknown_completion_completes_at_the_next_malloc() {
    let script = Script::default().alloc(0, 10).push(EventKind::Use, 0, 0).free(0).alloc(1, 10);
    let (_, log) = run(script, 8).unwrap();
    use Action::*;
    let tail: Vec<_> = log[2..].iter().map(|d| (d.event, d.action)).collect();
    assert_eq!(tail, [(2, FreeRequested), (3, FreeCompleted), (3, Alloc)]);
}

#[test]
fn host_waits_let_pending_frees_complete() {
    for wait in [EventKind::SyncDevice, EventKind::EmptyCache] {
        let script = Script::default()
            .alloc(0, 10)
            .push(EventKind::FreeLater, 0, 0)
            .push(wait, 0, 0)
            .alloc(1, 10)
            .push(EventKind::FreeDone, 0, 0);
        let (_, log) = run(script, 1).unwrap();
        assert_eq!(log.iter().filter(|d| d.action == Action::FreeCompleted).count(), 1);
        assert_eq!(log.iter().filter(|d| d.action == Action::Oom).count(), 0);
    }
}

#[test]
fn refused_requests_take_their_frees_and_uses_with_them() {
    let script = Script::default()
        .alloc(0, 2 * G)
        .alloc(1, G)
        .push(EventKind::Use, 1, 0)
        .push(EventKind::FreeLater, 1, 0)
        .push(EventKind::FreeDone, 1, 0)
        .alloc(1, 0)
        .free(1)
        .free(0);
    let (end, log) = run(script, 2).unwrap();
    assert_eq!((end.ooms, end.new_ooms, end.skipped, end.allocs), (1, 1, 5, 2));
    assert_eq!(end.live, []);
    let oom = log.iter().find(|d| d.action == Action::Oom).unwrap();
    assert_eq!((oom.event, oom.addr, oom.size), (1, 0, G));
}

#[test]
fn recorded_refusals_are_rescued_or_confirmed() {
    let refusal = |slot| Script::default().alloc(0, G).push(EventKind::AllocRefused, slot, G);
    let (end, log) = run(refusal(1), 2).unwrap();
    assert_eq!((end.rescued, end.ooms, end.live.len()), (1, 0, 1));
    assert_eq!(log.last().unwrap().action, Action::FreeCompleted);
    // A refused request names no slot that must be empty: it never becomes live.
    let (end, _) = run(refusal(0), 1).unwrap();
    assert_eq!((end.rescued, end.ooms, end.new_ooms), (0, 1, 0));
}

/// Had it been granted the first, the program would not have asked again.
#[test]
fn what_follows_a_rescued_request_at_once_is_not_asked_for() {
    let again = |script: Script| script.push(EventKind::AllocRefused, 1, G);
    let row = || {
        let first = Script::default().alloc(0, G).push(EventKind::AllocRefused, 1, 2 * G);
        again(again(first).push(EventKind::EmptyCache, 0, 0))
    };
    let (end, _) = run(row(), 3).unwrap();
    assert_eq!((end.rescued, end.ooms, end.skipped, end.allocs), (1, 0, 2, 2));
    // The first is refused again: the others are asked for, as recorded.
    let (end, _) = run(row(), 2).unwrap();
    assert_eq!((end.rescued, end.ooms, end.skipped), (1, 1, 1));
    // Whatever the program did in between, it went on.
    let (end, _) = run(again(row().free(0)), 3).unwrap();
    assert_eq!((end.rescued, end.ooms, end.skipped), (2, 0, 2));
}

#[test]
fn runs_stop_where_asked() {
    let script = || Script::default().alloc(0, G).alloc(1, G).alloc(2, G).alloc(3, G);
    let options = ReplayOptions { stop_at_oom: true, ..Default::default() };
    let (end, _) = run_with(script(), 2, &options).unwrap();
    assert_eq!((end.events, end.stop), (3, Some(Stop::OutOfMemory)));
    let options = ReplayOptions { stop_after_event: Some(0), ..Default::default() };
    let (end, _) = run_with(script(), 2, &options).unwrap();
    assert_eq!((end.events, end.stop, end.live.len()), (1, Some(Stop::AfterEvent), 1));
}

#[test]
fn contradictions_are_errors_with_their_event() {
    let s = Script::default;
    assert!(refused(s().free(0)).contains("event 0"));
    assert!(refused(s().alloc(0, 1).free(0).free(0)).contains("event 2"));
    assert!(refused(s().alloc(0, 1).alloc(0, 1)).contains("it is live"));
    let later = || s().alloc(0, 1).push(EventKind::FreeLater, 0, 0);
    assert!(refused(later().free(0)).contains("freed twice"));
    assert!(refused(later().alloc(0, 1)).contains("not complete"));
    assert!(refused(s().push(EventKind::FreeDone, 0, 0)).contains("not requested"));
    assert!(refused(s().push(EventKind::Use, 7, 0)).contains("not live"));
    assert!(refused(s().at(5).alloc(0, 1).at(4).alloc(1, 1)).contains("backwards"));
    assert!(refused(s().alloc(u32::MAX, 1)).contains("dense"));
}

#[test]
fn observers_see_each_step_with_its_own_log_lines() {
    #[derive(Default)]
    struct Seen(Vec<(u64, usize, bool)>);
    impl Observer for Seen {
        fn on_step(&mut self, step: &Step<'_>) {
            assert!(step.log.iter().all(|d| d.event == step.index));
            assert_eq!(step.oom.is_some(), step.outcome == Outcome::Refused);
            self.0.push((step.index, step.log.len(), step.oom.is_some()));
        }
        fn drains_log(&self) -> bool {
            true
        }
    }
    let (mut policy, mut device) = (Shelf::default(), device(1));
    let mut seen = (Seen::default(), ());
    let mut source = Script::default().alloc(0, G).alloc(1, G).free(0).source();
    replay(&mut source, &mut policy, &mut device, &mut seen, &ReplayOptions::default()).unwrap();
    assert_eq!(seen.0.0, [(0, 2, false), (1, 1, true), (2, 2, false)]);
    assert_eq!(device.log(), []);
}
