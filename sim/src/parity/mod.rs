//! Does a policy decide what the recorded allocator decided? Replays a recording's requests with the recorded
//! driver's answers and compares every entry and every block.

mod align;
mod heap;

use crate::device::{Divergence, Placement, SimConfig, SimDevice};
use crate::engine::{ReplayOptions, RunEnd, replay};
use align::{Aligned, Line};
use poolsim_core::event::PoolInfo;
use poolsim_core::record::Decision;
use poolsim_core::trace::BATCH;
use poolsim_core::{
    Action, Batch, DriverAnswer, Entry, EventKind, EventSource, HeapImage, Policy, Recording,
    Trace, TraceError, TraceHeader,
};

/// What became of a recording's requests.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Every decision, with its event.
    pub log: Vec<Decision>,
    /// The heap after the last event.
    pub heap: HeapImage,
    /// How the run ended.
    pub end: RunEnd,
    /// The first device call that the recorded driver's answers do not fit.
    pub divergence: Option<Divergence>,
    /// Events that stand for one recorded entry each: requests and frees, in order.
    anchors: Vec<u64>,
    /// The trace's pools.
    pools: Vec<PoolInfo>,
    /// Whether the trace starts from an empty allocator.
    from_start: bool,
}

/// What a comparison found.
#[derive(Clone, Debug, Default)]
pub struct Parity {
    /// Recorded entries that were compared; all but `snapshot` marks.
    pub entries_compared: u64,
    /// Entries that differ, are missing or are too many.
    pub entry_mismatches: u64,
    /// Blocks and ranges of the recorded final heap that were compared.
    pub blocks_compared: u64,
    /// Blocks and ranges that differ, are missing or are too many.
    pub heap_mismatches: u64,
    /// The first entry that differs.
    pub first_mismatch: Option<Mismatch>,
    /// The first few differences of the final heaps, in words.
    pub heap_differences: Vec<String>,
}

impl Parity {
    /// All differences together.
    pub fn mismatches(&self) -> u64 {
        self.entry_mismatches + self.heap_mismatches
    }
}

/// An entry that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Index of the recorded entry; the number of entries if the recording had ended.
    pub index: u64,
    /// The event that the policy was at; `None` if its log had ended.
    pub event: Option<u64>,
    /// What the recorded allocator did.
    pub recorded: Option<Entry>,
    /// What the policy did.
    pub simulated: Option<Decision>,
    /// What led there: the last entries on which both agree, oldest first, and what either did next.
    pub context: Vec<String>,
}

/// Reads a trace that somebody else owns.
struct Borrowed<'a> {
    trace: &'a Trace,
    next: usize,
}

impl EventSource for Borrowed<'_> {
    fn header(&self) -> &TraceHeader {
        &self.trace.header
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        let end = (self.next + BATCH).min(self.trace.events.len());
        batch.events.extend_from_slice(&self.trace.events[self.next..end]);
        self.next = end;
        Ok(!batch.events.is_empty())
    }
}

/// Replays a trace blind: the policy sees requests, the device answers as the recorded driver did.
///
/// `config` says what device the policy sees; its placement, capacity and log setting are replaced. `until` stops
/// after that event, for looking at the state that led to a mismatch.
pub fn replay_recorded(
    trace: &Trace,
    answers: Vec<DriverAnswer>,
    policy: &mut dyn Policy,
    config: SimConfig,
    until: Option<u64>,
) -> Result<Replayed, TraceError> {
    let placement = Placement::Recorded(answers);
    let mut device = SimDevice::new(SimConfig { placement, keep_log: true, ..config });
    let options = ReplayOptions {
        stop_after_event: until,
        stop_at_oom: false,
        restore: trace.initial_heap.as_ref(),
    };
    let mut source = Borrowed { trace, next: 0 };
    let end = replay(&mut source, policy, &mut device, &mut (), &options)?;
    let mut heap = HeapImage::default();
    policy.visit(&mut heap);
    Ok(Replayed {
        log: device.take_log(),
        heap,
        divergence: device.divergence().cloned(),
        anchors: anchors(trace, end.restored),
        pools: trace.header.pools.clone(),
        from_start: trace.header.knows.from_start,
        end,
    })
}

/// Events that have an entry of their own in the recording.
fn anchors(trace: &Trace, restored: bool) -> Vec<u64> {
    let before: std::collections::BTreeSet<_> = trace
        .initial_heap
        .iter()
        .filter(|_| restored)
        .flat_map(HeapImage::blocks)
        .filter(|(_, b)| b.state == poolsim_core::BlockState::Pending)
        .filter_map(|(_, b)| b.slot)
        .collect();
    let mut unnoted = before;
    let mut anchors = Vec::new();
    for (index, event) in (0u64..).zip(&trace.events) {
        let anchor = match event.kind() {
            EventKind::Alloc | EventKind::AllocRefused => true,
            EventKind::Free | EventKind::FreeLater => !unnoted.remove(&event.slot),
            EventKind::Preexisting => !restored,
            _ => false,
        };
        if anchor {
            anchors.push(index);
        }
    }
    anchors
}

/// Compares a replay with the recording that it came from.
///
/// Entries must agree in action, address, size and stream, in order; `oom` entries in size and stream. Frees that
/// complete inside one malloc come in hash order in PyTorch, so a run of them is compared as a set. Blocks
/// must agree in everything; the requested size of a free block is stale, and not compared if
/// the recording does not start from an empty allocator, since nobody can know it then.
pub fn compare(recording: &Recording, replayed: &Replayed) -> Parity {
    let recorded: Vec<Line> = recording
        .entries
        .iter()
        .enumerate()
        .filter(|(_, e)| e.action != Action::Snapshot)
        .map(|(i, e)| Line::new(i, e.action, e.addr, e.size, e.stream))
        .collect();
    let simulated: Vec<Line> = replayed
        .log
        .iter()
        .enumerate()
        .map(|(i, d)| Line::new(i, d.action, d.addr, d.size, d.stream))
        .collect();
    let compared = recorded.len() as u64;
    let aligned = Aligned::new(recorded, simulated);
    let mut parity = Parity {
        entries_compared: compared,
        entry_mismatches: aligned.mismatches(&replayed.log, &replayed.anchors),
        ..Parity::default()
    };
    parity.first_mismatch = aligned.first().map(|at| mismatch(&aligned, at, recording, replayed));
    heap::compare(recording, replayed, &mut parity);
    parity
}

/// Lines of context before and after the first mismatch.
const BEFORE: usize = 8;
const AFTER: usize = 3;

fn mismatch(aligned: &Aligned, at: usize, recording: &Recording, replayed: &Replayed) -> Mismatch {
    let recorded = aligned.recorded.get(at).map(|l| &recording.entries[l.index]);
    let simulated = aligned.simulated.get(at).map(|l| &replayed.log[l.index]);
    let mut context = Vec::new();
    for line in &aligned.recorded[at.saturating_sub(BEFORE)..at] {
        context.push(format!("both      entry {:>8}  {line}", line.index));
    }
    for line in aligned.recorded.iter().skip(at).take(AFTER) {
        context.push(format!("recorded  entry {:>8}  {line}", line.index));
    }
    for line in aligned.simulated.iter().skip(at).take(AFTER) {
        context.push(format!("simulated event {:>8}  {line}", replayed.log[line.index].event));
    }
    if let Some(d) = &replayed.divergence {
        let answer = d.answer.map_or("nothing".into(), |a| format!("{a:?}"));
        context.push(format!(
            "device call {} (event {}) asked for {}; the recorded driver answered {answer}",
            d.call, d.event, d.asked
        ));
    }
    Mismatch {
        index: aligned.recorded.get(at).map_or(recording.entries.len(), |l| l.index) as u64,
        event: simulated.map(|d| d.event),
        recorded: recorded.copied(),
        simulated: simulated.copied(),
        context,
    }
}
