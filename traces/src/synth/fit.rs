//! Learns a recording's sizes, lifetimes and phases, and makes longer or changed ones of it.
//!
//! What is learned are the recording's *cycles* (passes of its loop) with all that happens in them, in order and time, and
//! for everything that outlives its cycle how much later it goes. A made trace is a sequence of such cycles: in the
//! recorded order, shuffled, or drawn at random for as long as one likes; sizes and sequence lengths may change. Unchanged,
//! in the recorded order, it is the recording, event for event.

use super::cycles::{Found, cycles, lives};
use super::program::{Held, Program};
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{Bytes, Event, EventKind, Nanos, PoolId, Trace, TraceError, TraceHeader};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::ops::Range;

/// Most events of a trace that is made.
const EVENTS_MAX: usize = 1 << 26;
/// Requests below this keep their size: they do not grow with a sequence.
const LENGTH_MIN: Bytes = 4096;

/// A recording, learned.
#[derive(Clone, Debug)]
pub struct Fit {
    header: TraceHeader,
    events: Vec<Event>,
    /// For each event, the event that made its allocation; its own index if it is about none.
    made_by: Vec<u32>,
    /// Whether what the event made was freed before the end.
    ends: Vec<bool>,
    cycles: Vec<Range<usize>>,
    cycle_of: Vec<u32>,
    /// What happens to an event's allocation after its cycle: how many events later, and what.
    later: FxHashMap<u32, Vec<(usize, u32)>>,
    /// Sizes of what lasts: weights and the like, which do not grow with a sequence.
    lasting: FxHashSet<Bytes>,
    found: Found,
}

/// The order of the cycles of a made trace. The first, in which a job sets itself up, always comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As recorded; from the second one again when more are asked for.
    #[default]
    Recorded,
    /// Each once, in random order; shuffled again when more are asked for.
    Shuffled,
    /// Each drawn at random from all.
    Drawn,
    /// Those that hold most at once first; in the same order again when more are asked for.
    LargestFirst,
}

/// What is to be different from the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// How many cycles; `None` for as many as were recorded.
    pub cycles: Option<usize>,
    /// Their order.
    pub order: Order,
    /// Each distinct size is multiplied by a number of its own within 1 ± this share.
    pub sizes: f64,
    /// Sequence lengths: in each cycle, the sizes of what does not last are multiplied by one number drawn from these
    /// bounds. Memory that grows with the square of the length is taken to grow with the length.
    pub lengths: Option<(f64, f64)>,
}

impl Fit {
    /// Learns a trace.
    ///
    /// # Errors
    /// It holds no event.
    pub fn of(trace: &Trace) -> Result<Fit, TraceError> {
        if trace.events.is_empty() {
            let what = "there is nothing to learn from: the trace holds no event";
            return Err(TraceError::new(TraceErrorKind::NoEvents, Place::Whole, what));
        }
        let lives = lives(trace);
        let (cycles, found) = cycles(trace, &lives);
        let mut cycle_of = vec![0; trace.events.len()];
        for (number, cycle) in cycles.iter().enumerate() {
            cycle_of[cycle.clone()].fill(number as u32);
        }
        let mut fit = Fit {
            header: trace.header.clone(),
            events: trace.events.clone(),
            made_by: made_by(trace),
            ends: lives.iter().map(Option::is_some).collect(),
            cycles,
            cycle_of,
            later: FxHashMap::default(),
            lasting: FxHashSet::default(),
            found,
        };
        for i in 0..fit.events.len() {
            let maker = fit.made_by[i] as usize;
            if maker != i && fit.cycle_of[maker] != fit.cycle_of[i] {
                fit.later.entry(maker as u32).or_default().push((i - maker, i as u32));
            }
            if fit.events[i].kind().makes_live() && !fit.ends[i] {
                fit.lasting.insert(fit.events[i].size);
            }
        }
        Ok(fit)
    }

    /// How many cycles the recording has.
    pub fn cycles(&self) -> usize {
        self.cycles.len()
    }

    /// The events of each cycle, one after the other from the first event to the last.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.cycles
    }

    /// How its cycles were told apart.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// A trace like the recording, changed. The same arguments make the same trace.
    ///
    /// # Errors
    /// It would have more than 67 million events.
    pub fn make(&self, change: &Change, seed: u64) -> Result<Trace, TraceError> {
        let mut rng = Pcg64::seed_from_u64(seed);
        let order = self.order(change, &mut rng)?;
        let mut maker = Maker::new(self, change);
        for (place, &cycle) in order.iter().enumerate() {
            let factor = match change.lengths {
                Some((low, high)) if low < high => rng.random_range(low..=high),
                Some((low, _)) => low,
                None => 1.0,
            };
            // Pools are set up once, in the order of the recording.
            let as_recorded = change.order == Order::Recorded && place == cycle;
            maker.cycle(cycle, as_recorded, factor, &mut rng);
        }
        let mut trace = maker.program.finish();
        trace.header.attributes.insert("synth".into(), self.said(change, order.len(), seed));
        Ok(trace)
    }

    fn said(&self, change: &Change, cycles: usize, seed: u64) -> String {
        let Change { order, sizes, lengths, .. } = change;
        format!(
            "fit of {} cycles; {cycles} made, order {order:?}, sizes ±{sizes}, lengths {lengths:?}, seed {seed}",
            self.cycles.len()
        )
    }

    fn order(&self, change: &Change, rng: &mut Pcg64) -> Result<Vec<usize>, TraceError> {
        let known = self.cycles.len();
        let want = change.cycles.unwrap_or(known);
        let longest = self.cycles.iter().map(Range::len).max().unwrap_or(1);
        if want.saturating_mul(longest) > EVENTS_MAX.max(self.events.len()) {
            let what = format!(
                "{want} cycles of up to {longest} events are more than {EVENTS_MAX} events; ask for fewer cycles"
            );
            return Err(TraceError::new(TraceErrorKind::Refused, Place::Whole, what));
        }
        let mut order = vec![0];
        let mut rest: Vec<usize> = if known > 1 { (1..known).collect() } else { vec![0] };
        if change.order == Order::LargestFirst {
            rest.sort_by_key(|&cycle| (std::cmp::Reverse(self.growth(cycle)), cycle));
        }
        while order.len() < want {
            match change.order {
                Order::Recorded | Order::LargestFirst => order.extend(&rest),
                Order::Shuffled => {
                    rest.shuffle(rng);
                    order.extend(&rest);
                }
                Order::Drawn => order.push(rest[rng.random_range(0..rest.len())]),
            }
        }
        order.truncate(want);
        Ok(order)
    }

    /// The most by which the bytes in use rise within a cycle.
    fn growth(&self, cycle: usize) -> i128 {
        let mut now = 0i128;
        let levels = self.cycles[cycle].clone().map(|i| {
            let event = &self.events[i];
            match event.kind() {
                kind if kind.makes_live() => now += i128::from(event.size),
                EventKind::Free | EventKind::FreeDone => now -= i128::from(event.size),
                _ => {}
            }
            now
        });
        levels.max().unwrap_or(0)
    }
}

/// The event that made the allocation which each event is about.
fn made_by(trace: &Trace) -> Vec<u32> {
    use EventKind::*;
    let mut made: Vec<u32> = vec![0; trace.slot_count() as usize];
    let by = trace.events.iter().enumerate().map(|(i, event)| match event.kind() {
        Alloc | Preexisting => {
            made[event.slot.index()] = i as u32;
            i as u32
        }
        Free | FreeLater | FreeDone | Use => made[event.slot.index()],
        _ => i as u32,
    });
    by.collect()
}

/// A trace that is being made.
struct Maker<'a> {
    fit: &'a Fit,
    change: &'a Change,
    program: Program,
    /// What this cycle's allocations became.
    held: FxHashMap<u32, Held>,
    /// What is to happen to allocations of earlier cycles: when, and which recorded event that was.
    due: BTreeMap<(usize, u32, usize), (Held, u32)>,
    /// Recorded events walked, the ones left out included.
    walked: usize,
    seen: Vec<bool>,
    factors: FxHashMap<Bytes, f64>,
    last: Nanos,
}

impl<'a> Maker<'a> {
    fn new(fit: &'a Fit, change: &'a Change) -> Self {
        let header = TraceHeader {
            source: "synth".into(),
            start_unix_us: None,
            notes: Vec::new(),
            ..fit.header.clone()
        };
        let mut program = Program::with_header(header);
        program.pass(fit.events[0].at);
        Maker {
            fit,
            change,
            program,
            held: FxHashMap::default(),
            due: BTreeMap::new(),
            walked: 0,
            seen: vec![false; fit.cycles.len()],
            factors: FxHashMap::default(),
            last: fit.events[0].at,
        }
    }

    fn cycle(&mut self, cycle: usize, as_recorded: bool, factor: f64, rng: &mut Pcg64) {
        let range = self.fit.cycles[cycle].clone();
        let again = std::mem::replace(&mut self.seen[cycle], true);
        self.held.clear();
        // Between cycles that did not follow each other, no time passes.
        let before = range.start.checked_sub(1).map_or(0, |i| self.fit.events[i].at);
        self.last = if as_recorded {
            before.max(self.fit.events[0].at)
        } else {
            self.fit.events[range.start].at
        };
        self.program.start_span(format!("cycle {cycle}"));
        for i in range {
            let event = self.fit.events[i];
            self.program.pass(event.at - self.last);
            self.last = event.at;
            self.happen_due();
            self.replay(i, again, as_recorded, factor, rng);
            self.walked += 1;
        }
        self.program.end_span();
    }

    /// What is due for allocations of earlier cycles.
    fn happen_due(&mut self) {
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > self.walked {
                break;
            }
            let (held, event) = entry.remove();
            self.happen(self.fit.events[event as usize], held);
        }
    }

    fn happen(&mut self, event: Event, held: Held) {
        match event.kind() {
            EventKind::Free => self.program.free(held),
            EventKind::FreeDone => self.program.free_done(held),
            EventKind::FreeLater => self.program.free_later(held),
            _ => self.program.used_on(held, event.stream.0),
        }
    }

    fn replay(&mut self, i: usize, again: bool, as_recorded: bool, factor: f64, rng: &mut Pcg64) {
        use EventKind::*;
        let event = self.fit.events[i];
        let maker = self.fit.made_by[i];
        let pool = if as_recorded { event.pool() } else { PoolId::DEFAULT };
        match event.kind() {
            // What lasts is made once.
            Alloc | Preexisting if again && !self.fit.ends[i] => {}
            Alloc | Preexisting | AllocRefused => {
                let kind = if again && event.kind() == Preexisting { Alloc } else { event.kind() };
                let size = self.size(event.size, !self.fit.ends[i], factor, rng);
                let held = self.program.ask(kind, size, event.stream, pool);
                self.held.insert(i as u32, held);
                for &(distance, what) in self.fit.later.get(&maker).into_iter().flatten() {
                    if event.kind() != AllocRefused {
                        self.due.insert(
                            (self.walked + distance, what, self.program.len()),
                            (held, what),
                        );
                    }
                }
            }
            Free | FreeLater | FreeDone | Use => {
                if let Some(&held) = self.held.get(&maker) {
                    self.happen(event, held);
                }
            }
            PoolOpen | PoolClose | PoolDrop | PoolDestroy if !as_recorded => {}
            kind => self.program.bare(kind, event.stream, event.pool()),
        }
    }

    fn size(&mut self, size: Bytes, lasts: bool, length: f64, rng: &mut Pcg64) -> Bytes {
        let spread = self.change.sizes;
        let own = if spread > 0.0 {
            *self
                .factors
                .entry(size)
                .or_insert_with(|| rng.random_range(1.0 - spread..=1.0 + spread))
        } else {
            1.0
        };
        let grows = !lasts && size >= LENGTH_MIN && !self.fit.lasting.contains(&size);
        let factor = own * if grows { length } else { 1.0 };
        if factor == 1.0 {
            return size;
        }
        // Elements stay whole: a size keeps the power of two, up to 512, that it is a multiple of.
        let step = 1 << size.trailing_zeros().min(9);
        (((size as f64 * factor) as Bytes / step) * step).max(step)
    }
}
