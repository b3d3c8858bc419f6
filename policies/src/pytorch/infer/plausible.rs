//! Whether a recording's numbers can be real, so that everything after this may reckon with them.

use super::facts::Broken;
use poolsim_core::heap::{BlockView, RangeView};
use poolsim_core::recording::{Action, Entry, Recording};
use poolsim_core::units::{Bytes, DevAddr};

/// No device has so much memory, and no request is granted so much.
const MOST: Bytes = 1 << 40;
/// Addresses lie below this.
const TOP: DevAddr = 1 << 57;
/// Larger requests are refused without an entry.
const MOST_ASKED: Bytes = 1 << 60;
/// Blocks and segments are multiples of this.
const UNIT: Bytes = 512;

/// A copy without what cannot be real, and the first such thing; `None` if all can.
pub(super) fn cleaned(rec: &Recording) -> Option<(Recording, Broken)> {
    let odd = rec.entries.iter().position(|e| !can_be(e));
    let what = match odd {
        Some(i) => {
            let e = &rec.entries[i];
            let what =
                format!("{} at {:#x} of {} bytes cannot be", e.action.name(), e.addr, e.size);
            Broken { entry: i as u32, what }
        }
        None => {
            let (range, _) = rec.heap.ranges.iter().find(|(r, b)| !range_can_be(r, b))?;
            let what = format!(
                "the final heap's segment at {:#x} of {} bytes does not consist of whole blocks without gaps",
                range.addr, range.size
            );
            Broken { entry: rec.entries.len() as u32, what }
        }
    };
    let mut rec = rec.clone();
    if rec.entry_pools.len() == rec.entries.len() {
        let kept: Vec<bool> = rec.entries.iter().map(tells).collect();
        let mut keep = kept.iter();
        rec.entry_pools.retain(|_| keep.next() == Some(&true));
    }
    rec.entries.retain(tells);
    rec.heap.ranges.retain(|(r, b)| range_can_be(r, b));
    Some((rec, what))
}

/// Whether an entry still tells what was asked for: in files whose addresses were made unrecognisable the order and
/// sizes of requests are real.
fn tells(e: &Entry) -> bool {
    match e.action {
        Action::Alloc | Action::FreeRequested | Action::FreeCompleted => within(e),
        _ => can_be(e),
    }
}

fn within(e: &Entry) -> bool {
    e.addr < TOP && (1..MOST).contains(&e.size)
}

fn can_be(e: &Entry) -> bool {
    let whole = e.addr.is_multiple_of(UNIT) && e.size.is_multiple_of(UNIT);
    match e.action {
        Action::Snapshot => true,
        Action::Oom => (1..MOST_ASKED).contains(&e.size),
        Action::Alloc | Action::FreeRequested | Action::FreeCompleted => {
            within(e) && e.addr.is_multiple_of(UNIT)
        }
        Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap => {
            within(e) && whole
        }
    }
}

fn range_can_be(range: &RangeView, blocks: &[BlockView]) -> bool {
    if range.addr >= TOP || range.size >= MOST {
        return false;
    }
    let mut at = range.addr;
    for b in blocks {
        if b.addr != at || b.size == 0 || b.size >= MOST || !b.size.is_multiple_of(UNIT) {
            return false;
        }
        if b.requested > b.size && b.state != poolsim_core::BlockState::Free {
            return false;
        }
        at += b.size;
    }
    at == range.addr + range.size && !blocks.is_empty()
}
