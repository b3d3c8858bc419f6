//! The entries of one device: picked, completed, put on one clock.

use super::assemble::entry_of;
use super::fold::ENTRY;
use super::rows::{NO_TIME, Rows, Special};
use crate::pickle::Items;
use poolsim_core::TraceError;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::recording::{Action, Entry};

/// Steps back in time up to here are clock noise between cores. PyTorch converts one cycle counter, so
/// recordings show none; a ring buffer that was made smaller while it was full shows large ones.
const CLOCK_NOISE_NS: u64 = 10_000_000;

/// Which rows entries come from.
pub enum Origin {
    /// Consecutive rows.
    From(u32),
    /// Row by row.
    Each(Vec<u32>),
}

impl Origin {
    /// The row of entry `n`.
    pub fn row(&self, n: usize) -> u32 {
        match self {
            Origin::From(first) => first + n as u32,
            Origin::Each(rows) => rows[n],
        }
    }
}

/// Entries of one device.
pub struct Picked {
    pub entries: Vec<Entry>,
    /// As [`Rows::entry_pools`], or empty if no entry says its pool.
    pub pools: Vec<u32>,
    pub origin: Origin,
}

/// Takes the entries of a trace list out of the rows.
pub fn pick(
    rows: &mut Rows,
    trace: Items<'_>,
    notes: &mut Vec<String>,
) -> Result<Picked, TraceError> {
    let (mut entries, origin) = match trace {
        Items::Rows { kind: ENTRY, first, len } => {
            let (start, end) = (first as usize, first as usize + len as usize);
            let entries = if (start, end) == (0, rows.entries.len()) {
                std::mem::take(&mut rows.entries)
            } else {
                rows.entries[start..end].to_vec()
            };
            (entries, Origin::From(first))
        }
        other => {
            let each = (0..other.len())
                .map(|n| entry_of(other.get(n)).ok_or(n))
                .collect::<Result<Vec<u32>, usize>>()
                .map_err(no_entry)?;
            let entries = each.iter().map(|&row| rows.entries[row as usize]).collect();
            (entries, Origin::Each(each))
        }
    };
    entries.shrink_to_fit();
    let picked = Picked { pools: pools(rows, &origin, entries.len()), entries, origin };
    if rows.specials.is_empty() { Ok(picked) } else { Ok(expand(picked, rows, notes)) }
}

fn no_entry(n: usize) -> TraceError {
    TraceError::new(
        TraceErrorKind::Malformed,
        Place::Event(n as u64),
        "is no trace entry (a dict with `action`, `addr` and `size`)",
    )
}

fn pools(rows: &Rows, origin: &Origin, len: usize) -> Vec<u32> {
    let pool = |n| rows.entry_pools.get(origin.row(n) as usize).copied().unwrap_or(0);
    match rows.entry_pools.is_empty() || (0..len).all(|n| pool(n) == 0) {
        true => Vec::new(),
        false => (0..len).map(pool).collect(),
    }
}

/// Splits old `free` entries in two and drops those that mean nothing to the allocator.
fn expand(from: Picked, rows: &Rows, notes: &mut Vec<String>) -> Picked {
    let mut entries = Vec::with_capacity(from.entries.len());
    let (mut pools, mut each) = (Vec::new(), Vec::with_capacity(from.entries.len()));
    let (mut split, mut skipped) = (0, 0);
    for (n, entry) in from.entries.iter().enumerate() {
        let row = from.origin.row(n);
        let special = rows.specials.binary_search_by_key(&row, |s| s.0).ok();
        let actions: &[Action] = match special.map(|s| rows.specials[s].1) {
            None => &[entry.action],
            Some(Special::LegacyFree) => {
                split += 1;
                &[Action::FreeRequested, Action::FreeCompleted]
            }
            Some(Special::Skipped) => {
                skipped += 1;
                &[]
            }
        };
        for &action in actions {
            entries.push(Entry { action, ..*entry });
            pools.extend(from.pools.get(n));
            each.push(row);
        }
    }
    if split > 0 {
        notes.push(format!(
            "{split} `free` entries of the old kind are read as requested and completed at once"
        ));
    }
    if skipped > 0 {
        notes.push(format!(
            "{skipped} entries (user_defined, workspace_snapshot) say nothing of memory and were left out"
        ));
    }
    Picked { entries, pools, origin: Origin::Each(each) }
}

/// The clock of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Nanoseconds since 1970 of the first entry that has a time.
    pub first: Option<u64>,
    /// There are entries, and none has a time.
    pub untimed: bool,
}

/// Makes times relative to the first one, and never falling.
pub fn settle_times(entries: &mut [Entry], notes: &mut Vec<String>) -> Result<Times, TraceError> {
    let Some(first) = entries.iter().map(|e| e.at).find(|&at| at != NO_TIME) else {
        for (n, entry) in entries.iter_mut().enumerate() {
            entry.at = n as u64;
        }
        if !entries.is_empty() {
            notes.push("entries have no times; each is taken to last one nanosecond".into());
        }
        return Ok(Times { first: None, untimed: !entries.is_empty() });
    };
    let (mut last, mut missing, mut noisy) = (first, 0u64, 0u64);
    for (n, entry) in entries.iter_mut().enumerate() {
        if entry.at == NO_TIME {
            missing += 1;
        } else if entry.at >= last {
            last = entry.at;
        } else if last - entry.at <= CLOCK_NOISE_NS {
            noisy += 1;
        } else {
            return Err(backwards(n, last - entry.at));
        }
        entry.at = last - first;
    }
    if missing > 0 {
        notes.push(format!("{missing} entries have no time and get that of the entry before"));
    }
    if noisy > 0 {
        notes.push(format!(
            "{noisy} entries are up to 10 ms older than the entry before; their order is kept"
        ));
    }
    Ok(Times { first: Some(first), untimed: false })
}

fn backwards(n: usize, by: u64) -> TraceError {
    TraceError::new(
        TraceErrorKind::Illegal,
        Place::Event(n as u64),
        format!(
            "time runs backwards by {} us, so the entries are not in the order in which they \
             happened. A ring buffer whose max_entries was lowered without clear_history reads out \
             like that: record again with clear_history=True",
            by / 1000
        ),
    )
}

/// Refuses sizes that no device could hold, so that sums over entries cannot overflow.
pub fn check_sizes(entries: &[Entry]) -> Result<(), TraceError> {
    let mut live = 0u64;
    for (n, entry) in entries.iter().enumerate() {
        match entry.action {
            Action::Alloc => live += entry.size,
            Action::FreeCompleted => live = live.saturating_sub(entry.size),
            _ => {}
        }
        let end = match entry.action {
            Action::Oom | Action::Snapshot => Some(0),
            _ => entry.addr.checked_add(entry.size),
        };
        if live >= 1 << 62 || end.is_none() {
            return Err(TraceError::new(
                TraceErrorKind::Malformed,
                Place::Event(n as u64),
                format!(
                    "{} of {} bytes at {:#x}: sizes add up beyond what any address space holds; \
                     the snapshot is damaged",
                    entry.action.name(),
                    entry.size,
                    entry.addr
                ),
            ));
        }
    }
    Ok(())
}
