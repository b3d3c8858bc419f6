//! From the least memory that a trace needs up to what a policy reserved: which rule costs how much.
//!
//! Each cause is measured by a replay of its own in which just that cause is absent. Causes overlap, so their sum is not the
//! whole; the difference is a row of its own.

use crate::choice::Choice;
use crate::runner::Setting;
use anyhow::Context;
use poolsim_core::trace::BATCH;
use poolsim_core::{
    Batch, Bytes, Event, EventKind, EventSource, Policy, PoolId, StreamId, TraceError, TraceHeader,
};
use poolsim_policies::counterfactual::{self, Rule};
use poolsim_reports::data::{Cause, CauseBytes, Waterfall};
use poolsim_sim::bound::{Budget, Instance, Lifetime, Lifetimes, pack};
use poolsim_sim::{Observer, Outcome, Placement, ReplayOptions, Step, replay};
use std::collections::BTreeMap;

/// What a replay reserved and granted.
#[derive(Default)]
struct Run {
    peak: Bytes,
    ooms: u64,
    /// Granted bytes by event.
    granted: BTreeMap<u64, Bytes>,
}

/// The trace, changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Nothing,
    OneStream,
    OnePool,
}

/// Measures every cause of one policy.
///
/// # Errors
/// Those of the trace.
pub fn waterfall(setting: &Setting<'_>, choice: &Choice, steps: u64) -> anyhow::Result<Waterfall> {
    let loaded = setting.loaded;
    let env = loaded.machine.env();
    let lifetimes = Lifetimes::read(&mut *loaded.events.source())
        .map_err(|error| error.in_file(&loaded.path))?;
    let live = lifetimes.peak(|item| item.size);
    let base = observe(setting, setting.policy(choice), Change::Nothing)?;
    let block = |item: &Lifetime| -> (Bytes, bool) {
        let known = counterfactual::rounded(&choice.resolved, item.size);
        let known = known.expect("it was built once when it was chosen");
        known
            .unwrap_or_else(|| (base.granted.get(&item.lower).copied().unwrap_or(item.size), false))
    };
    let blocks = lifetimes.peak(|item| block(item).0);
    let mut causes = vec![CauseBytes {
        cause: Cause::Rounding,
        peak: Some(base.peak),
        bytes: difference(blocks, live),
    }];
    let mut add = |cause, peak: Option<Bytes>| {
        let bytes = peak.map_or(0, |peak| difference(base.peak, peak));
        causes.push(CauseBytes { cause, peak, bytes });
    };
    let ruled = |rule| -> anyhow::Result<Option<Bytes>> {
        let policy = counterfactual::without(&choice.resolved, rule, &env)?;
        policy.map(|policy| Ok(observe(setting, policy, Change::Nothing)?.peak)).transpose()
    };
    add(Cause::SizeClasses, ruled(Rule::SizeClasses)?);
    let changed = |change| -> anyhow::Result<Bytes> {
        Ok(observe(setting, setting.policy(choice), change)?.peak)
    };
    let (streams, pools) = (changed(Change::OneStream)?, changed(Change::OnePool)?);
    add(Cause::Streams, Some(streams));
    if lifetimes.items.iter().any(|item| item.pool.is_private()) {
        add(Cause::Pools, Some(pools));
    }
    add(Cause::Granularity, ruled(Rule::SegmentGranularity)?);
    let lane = |item: &Lifetime| Lane {
        stream: if streams >= base.peak { StreamId(0) } else { item.stream },
        pool: if pools >= base.peak { PoolId::DEFAULT } else { item.pool },
        small: block(item).1,
    };
    let granule = loaded.machine.caps.granule;
    add(Cause::Order, Some(planned(&lifetimes, |i| block(i).0, lane, granule, steps)));
    let explained: i64 = causes.iter().map(|measured| measured.bytes).sum();
    let interaction = difference(base.peak, live) - explained;
    Ok(Waterfall { live, peak: base.peak, ooms: base.ooms, causes, interaction })
}

fn difference(a: Bytes, b: Bytes) -> i64 {
    // Neither is above 2^50 for a trace that has lifetimes.
    a as i64 - b as i64
}

impl Observer for Run {
    fn on_step(&mut self, step: &Step<'_>) {
        if let Outcome::Granted(grant) = step.outcome {
            self.granted.insert(step.index, grant.size);
        }
        self.ooms += u64::from(step.oom.is_some_and(|oom| !oom.recorded));
    }
}

fn observe(
    setting: &Setting<'_>,
    mut policy: Box<dyn Policy>,
    change: Change,
) -> anyhow::Result<Run> {
    let mut device = setting.device(Placement::Driver, false);
    let mut run = Run::default();
    let inner = setting.loaded.events.source();
    let mut source = Changed { inner, change, read: Batch::default() };
    // From an empty heap in every case: a recorded heap cannot be changed along with its requests.
    let options = ReplayOptions::default();
    let end = replay(&mut source, &mut policy, &mut device, &mut run, &options)
        .with_context(|| setting.loaded.path.display().to_string())?;
    run.peak = end.stats.reserved.peak;
    Ok(run)
}

/// A source whose events are changed on the way.
struct Changed {
    inner: Box<dyn EventSource>,
    change: Change,
    read: Batch,
}

impl Changed {
    fn event(&self, event: &Event) -> Option<Event> {
        use EventKind::*;
        let (mut stream, mut pool) = (event.stream, event.pool());
        match self.change {
            Change::Nothing => {}
            Change::OneStream => stream = StreamId(0),
            Change::OnePool => match event.kind() {
                PoolOpen | PoolClose | PoolDrop | PoolDestroy => return None,
                _ => pool = PoolId::DEFAULT,
            },
        }
        Some(Event::new(event.kind(), event.at, event.slot, event.size, stream, pool))
    }
}

impl EventSource for Changed {
    fn header(&self) -> &TraceHeader {
        self.inner.header()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        while batch.events.is_empty() {
            if !self.inner.fill(&mut self.read)? {
                return Ok(false);
            }
            debug_assert!(self.read.events.len() <= 2 * BATCH);
            let changed: Vec<Event> =
                self.read.events.iter().filter_map(|e| self.event(e)).collect();
            batch.events.extend(changed);
        }
        Ok(true)
    }
}

/// What a policy keeps apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Lane {
    stream: StreamId,
    pool: PoolId,
    small: bool,
}

/// The highest sum of the lanes' ranges, each packed by itself.
fn planned(
    lifetimes: &Lifetimes,
    size: impl Fn(&Lifetime) -> Bytes,
    lane: impl Fn(&Lifetime) -> Lane,
    granule: Bytes,
    steps: u64,
) -> Bytes {
    let mut lanes: BTreeMap<Lane, Vec<&Lifetime>> = BTreeMap::new();
    for item in &lifetimes.items {
        lanes.entry(lane(item)).or_default().push(item);
    }
    let budget = Budget { steps: steps / lanes.len().max(1) as u64, deadline: None };
    // Changes of the sum by event.
    let mut changes: BTreeMap<u64, i64> = BTreeMap::new();
    for items in lanes.values() {
        let instance = Instance::new(items.iter().copied(), &size);
        let packing = pack(&instance, budget);
        let spans = items.iter().zip(&packing.offsets).map(|(item, &at)| (at, at + size(item)));
        let pages =
            spans.map(|(from, to)| from / granule..to.div_ceil(granule)).collect::<Vec<_>>();
        let pieces: Vec<Piece<'_>> = items.iter().copied().zip(pages).collect();
        lane_changes(&pieces, &lifetimes.releases, granule, &mut changes);
    }
    let sums = changes.values().scan(0i64, |sum, change| {
        *sum += change;
        Some(*sum)
    });
    Bytes::try_from(sums.max().unwrap_or(0)).unwrap_or(0)
}

/// An allocation and the pages of its lane's range that it lies on.
type Piece<'a> = (&'a Lifetime, std::ops::Range<u64>);

/// A range that gets a page when it is first used, and gives those back that nothing lies on when the cache is emptied.
fn lane_changes(
    pieces: &[Piece<'_>],
    releases: &[u64],
    granule: Bytes,
    changes: &mut BTreeMap<u64, i64>,
) {
    let starts = pieces.iter().enumerate().map(|(i, (item, _))| (item.lower, 2, i));
    let ends = pieces.iter().enumerate().map(|(i, (item, _))| (item.upper, 0, i));
    let releases = releases.iter().map(|&event| (event, 1, 0));
    let mut moments: Vec<(u64, u8, usize)> = starts.chain(ends).chain(releases).collect();
    moments.sort_unstable();
    // By page that is held: how many live pieces lie on it.
    let mut held: BTreeMap<u64, u32> = BTreeMap::new();
    for (event, kind, i) in moments {
        let before = held.len();
        match kind {
            0 => {
                for page in pieces[i].1.clone() {
                    *held.get_mut(&page).expect("a live piece holds its pages") -= 1;
                }
            }
            1 => held.retain(|_, pieces| *pieces > 0),
            _ => pieces[i].1.clone().for_each(|page| *held.entry(page).or_default() += 1),
        }
        if held.len() != before {
            let pages = held.len() as i64 - before as i64;
            *changes.entry(event).or_default() += pages * granule as i64;
        }
    }
}
