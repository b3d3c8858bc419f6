//! How entries fall into groups: a free, or the work of one request with whatever precedes it.

use poolsim_core::recording::{Action, Entry};

/// What the entries from one on, up to the next border, belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A free that is complete at once.
    Free,
    /// A free that waits for other streams.
    FreeLater,
    /// Work of one request, with whatever precedes it; the last entry says how it ended.
    Request,
    /// Releases and completions that no request follows.
    Loose,
    /// A snapshot was taken.
    Nothing,
}

/// The group that starts at an entry: its shape and its end.
#[inline]
pub(super) fn group_at(entries: &[Entry], at: usize) -> (Shape, usize) {
    let first = &entries[at];
    match first.action {
        Action::Alloc | Action::Oom => (Shape::Request, at + 1),
        Action::FreeRequested => match entries.get(at + 1) {
            Some(n) if n.action == Action::FreeCompleted && n.addr == first.addr => {
                (Shape::Free, at + 2)
            }
            _ => (Shape::FreeLater, at + 1),
        },
        Action::Snapshot => (Shape::Nothing, at + 1),
        _ => {
            for (i, e) in entries.iter().enumerate().skip(at) {
                match e.action {
                    Action::Alloc | Action::Oom => return (Shape::Request, i + 1),
                    Action::FreeRequested | Action::Snapshot => return (Shape::Loose, i),
                    _ => {}
                }
            }
            (Shape::Loose, entries.len())
        }
    }
}
