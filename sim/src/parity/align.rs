//! Two logs, side by side.

use poolsim_core::record::Decision;
use poolsim_core::{Action, Bytes, DevAddr, StreamId};
use std::fmt;

/// What is compared of an entry or a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Where it stood in its log.
    pub(super) index: usize,
    action: Action,
    addr: DevAddr,
    size: Bytes,
    stream: StreamId,
}

impl Line {
    pub(super) fn new(
        index: usize,
        action: Action,
        addr: DevAddr,
        size: Bytes,
        stream: StreamId,
    ) -> Self {
        // The address of an `oom` is the device's free memory, which a recording knows and a replay does not.
        let addr = if action == Action::Oom { 0 } else { addr };
        Line { index, action, addr, size, stream }
    }

    fn key(&self) -> (Action, DevAddr, Bytes, StreamId) {
        (self.action, self.addr, self.size, self.stream)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.action.name();
        write!(f, "{name:<14} {:#x}  {} bytes  stream {}", self.addr, self.size, self.stream)
    }
}

/// Both logs with their unordered runs put in order.
pub(super) struct Aligned {
    pub(super) recorded: Vec<Line>,
    pub(super) simulated: Vec<Line>,
}

/// Sorts each run of frees that complete together. A completion right behind its own request belongs to no run.
fn order_runs(lines: &mut [Line]) {
    let mut i = 0;
    while i < lines.len() {
        if lines[i].action != Action::FreeCompleted {
            i += 1;
            continue;
        }
        if i > 0
            && lines[i - 1].action == Action::FreeRequested
            && lines[i - 1].addr == lines[i].addr
        {
            i += 1;
            continue;
        }
        let rest = &lines[i..];
        let len = rest.iter().take_while(|l| l.action == Action::FreeCompleted).count();
        lines[i..i + len].sort_by_key(Line::key);
        i += len;
    }
}

/// Whether an entry stands for one request or free of the program.
fn is_anchor(action: Action) -> bool {
    matches!(action, Action::Alloc | Action::Oom | Action::FreeRequested)
}

impl Aligned {
    pub(super) fn new(mut recorded: Vec<Line>, mut simulated: Vec<Line>) -> Self {
        order_runs(&mut recorded);
        order_runs(&mut simulated);
        Aligned { recorded, simulated }
    }

    /// Position of the first difference in both.
    pub(super) fn first(&self) -> Option<usize> {
        let same = self
            .recorded
            .iter()
            .zip(&self.simulated)
            .take_while(|(r, s)| r.key() == s.key())
            .count();
        (same < self.recorded.len() || same < self.simulated.len()).then_some(same)
    }

    /// Counts differing entries. After a difference both logs are brought together again at every request and
    /// free: what a group of entries up to the next of these differs in is counted, and the next group
    /// starts level again.
    pub(super) fn mismatches(&self, log: &[Decision], anchors: &[u64]) -> u64 {
        let Some(first) = self.first() else { return 0 };
        let recorded = groups_recorded(&self.recorded);
        let simulated = groups_simulated(&self.simulated, log, anchors);
        let count = recorded.len().max(simulated.len());
        let mut differing = 0;
        for g in 0..count {
            let r = recorded.get(g).map_or(&[][..], |range| &self.recorded[range.clone()]);
            let s = simulated.get(g).map_or(&[][..], |range| &self.simulated[range.clone()]);
            differing += differences(r, s);
        }
        // The logs do differ, even if only in how entries fall into groups.
        debug_assert!(first <= self.recorded.len());
        differing.max(1)
    }
}

/// Entries of the longer sequence outside the common beginning and end of both.
fn differences(a: &[Line], b: &[Line]) -> u64 {
    let same = |x: &Line, y: &Line| x.key() == y.key();
    let head = a.iter().zip(b).take_while(|(x, y)| same(x, y)).count();
    let (a, b) = (&a[head..], &b[head..]);
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| same(x, y)).count();
    (a.len().max(b.len()) - tail) as u64
}

type Groups = Vec<std::ops::Range<usize>>;

/// Groups that each end with a request or free. What completes a free stands at the start of the next.
fn groups_recorded(lines: &[Line]) -> Groups {
    let mut groups = Groups::new();
    let mut start = 0;
    for (i, _) in lines.iter().enumerate().filter(|(_, l)| is_anchor(l.action)) {
        groups.push(start..i + 1);
        start = i + 1;
    }
    groups.push(start..lines.len());
    groups
}

/// The same groups, told apart by event: a group ends with the line of its request or free, or where that line should
/// be if the policy left the event out.
fn groups_simulated(lines: &[Line], log: &[Decision], anchors: &[u64]) -> Groups {
    let mut groups = Groups::with_capacity(anchors.len() + 1);
    let mut at = 0;
    for &anchor in anchors {
        let start = at;
        while let Some(line) = lines.get(at).filter(|l| log[l.index].event <= anchor) {
            at += 1;
            if log[line.index].event == anchor && is_anchor(line.action) {
                break;
            }
        }
        groups.push(start..at);
    }
    groups.push(at..lines.len());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(index: usize, action: Action, addr: DevAddr) -> Line {
        Line::new(index, action, addr, 512, StreamId(0))
    }

    fn aligned(
        recorded: &[(Action, u64)],
        simulated: &[(u64, Action, u64)],
    ) -> (Option<usize>, u64) {
        let lines = recorded.iter().enumerate().map(|(i, &(a, addr))| line(i, a, addr)).collect();
        let log: Vec<Decision> = simulated
            .iter()
            .map(|&(event, action, addr)| Decision {
                event,
                action,
                addr,
                size: 512,
                stream: StreamId(0),
            })
            .collect();
        let ours = log.iter().enumerate().map(|(i, d)| line(i, d.action, d.addr)).collect();
        let mut anchors: Vec<u64> =
            log.iter().filter(|d| is_anchor(d.action)).map(|d| d.event).collect();
        anchors.dedup();
        let both = Aligned::new(lines, ours);
        (both.first(), both.mismatches(&log, &anchors))
    }

    use Action::*;

    #[test]
    fn runs_of_completions_have_no_order_but_pairs_do() {
        let recorded = [
            (FreeRequested, 9),
            (FreeCompleted, 9),
            (FreeCompleted, 3),
            (FreeCompleted, 1),
            (Alloc, 3),
        ];
        let simulated = [
            (0, FreeRequested, 9),
            (0, FreeCompleted, 9),
            (3, FreeCompleted, 1),
            (3, FreeCompleted, 3),
            (3, Alloc, 3),
        ];
        assert_eq!(aligned(&recorded, &simulated), (None, 0));
        let apart = [(FreeCompleted, 3), (Alloc, 3), (FreeCompleted, 1), (Alloc, 1)];
        let ours = [(0, FreeCompleted, 1), (0, Alloc, 3), (1, FreeCompleted, 3), (1, Alloc, 1)];
        assert_eq!(aligned(&apart, &ours), (Some(0), 2));
    }

    #[test]
    fn a_missing_entry_counts_once() {
        let recorded =
            [(SegmentAlloc, 5), (Alloc, 5), (Alloc, 6), (FreeRequested, 5), (FreeCompleted, 5)];
        let simulated =
            [(0, Alloc, 5), (1, Alloc, 6), (2, FreeRequested, 5), (2, FreeCompleted, 5)];
        assert_eq!(aligned(&recorded, &simulated), (Some(0), 1));
        let more = [
            (0, Alloc, 5),
            (1, Alloc, 7),
            (2, FreeRequested, 5),
            (2, FreeCompleted, 5),
            (2, SegmentFree, 5),
        ];
        assert_eq!(aligned(&recorded, &more), (Some(0), 3));
    }

    #[test]
    fn a_log_that_ends_early_differs() {
        assert_eq!(aligned(&[(Alloc, 5), (Alloc, 6)], &[(0, Alloc, 5)]), (Some(1), 1));
        assert_eq!(aligned(&[(Alloc, 5)], &[(0, Alloc, 5), (0, SegmentFree, 6)]), (Some(1), 1));
        assert_eq!(aligned(&[], &[]), (None, 0));
    }
}
