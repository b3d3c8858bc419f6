//! Who holds memory at a moment, by what it probably is.
//!
//! Nothing in a recording says what a tensor is for. It is inferred from when it was asked for and freed, against the
//! iterations of the job's loop, from sizes (a gradient has the size of its parameter) and, where there are stacks, from the
//! names of calls. The result is a guess that can be checked against the stack beside it.

use super::scene::{Owner, place};
use poolsim_core::stack::StackId;
use poolsim_core::{BlockState, Bytes, EventKind, Keyframe, Nanos, Trace};
use poolsim_traces::synth::{Fit, Found};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// What an allocation probably is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Made before the first iteration needs most, and kept.
    Parameters,
    /// As large as a parameter, and kept from the backward pass until after the optimizer's step.
    Gradients,
    /// Made by the optimizer's first step, or as large as parameters and kept since the first iteration.
    OptimizerState,
    /// Made and freed within one iteration, living through a good part of it.
    Activations,
    /// Made and freed within one iteration, soon after.
    Temporaries,
    /// Kept by libraries for their own use (cuBLAS, cuDNN).
    Workspaces,
    /// Kept, and nothing of the above.
    Lasting,
    /// Freed, in a job without iterations.
    Passing,
}

impl Category {
    /// For tables.
    pub fn title(self) -> &'static str {
        match self {
            Category::Parameters => "parameters and buffers",
            Category::Gradients => "gradients",
            Category::OptimizerState => "optimizer state",
            Category::Activations => "activations",
            Category::Temporaries => "temporaries",
            Category::Workspaces => "library workspaces",
            Category::Lasting => "other, kept",
            Category::Passing => "other, freed later",
        }
    }
}

/// Sizes of cuBLAS workspaces that PyTorch asks for once and keeps, for each handle and stream: 8.125 MiB by default, 32 MiB
/// on Hopper.
const CUBLAS: [Bytes; 2] = [8_519_680, 33_554_432];

/// Memory of one category.
#[derive(Clone, Debug, Serialize)]
pub struct Holding {
    /// The category.
    pub category: Category,
    /// Bytes of its blocks.
    pub bytes: Bytes,
    /// Its blocks.
    pub blocks: u64,
    /// The places that hold most of it.
    pub places: Vec<Owner>,
}

/// What was inferred of a job.
pub struct Categories<'a> {
    trace: &'a Trace,
    cycles: Vec<Range<usize>>,
    has_cycles: bool,
    /// Stretches of optimizer steps, as event indices; empty if no annotation names them.
    steps: Vec<Range<usize>>,
    /// The event at which the first iteration needs most.
    first_peak: usize,
    /// By event that asks: the event that frees; `None` for what is kept.
    freed: Vec<Option<u32>>,
    /// How many parameters have this size.
    parameters: BTreeMap<Bytes, u64>,
    /// Tensors kept since the first iteration's backward pass, by size: so many are gradients, the rest optimizer state.
    kept_since: BTreeMap<Bytes, Vec<u32>>,
}

/// Share of an iteration's events that an activation lives through at least.
const GOOD_PART: f64 = 0.02;

impl<'a> Categories<'a> {
    /// Looks at a job.
    pub fn of(trace: &'a Trace) -> Categories<'a> {
        let fit = Fit::of(trace).ok();
        let has_cycles = fit.as_ref().is_some_and(|fit| *fit.found() != Found::Windows);
        let cycles = fit.map_or_else(Vec::new, |fit| fit.ranges().to_vec());
        let first = cycles.first().cloned().unwrap_or(0..trace.events.len());
        let freed = frees(trace);
        let first_peak = peak_in(trace, first.clone());
        let steps = steps(trace);
        let mut categories = Categories {
            trace,
            cycles,
            has_cycles,
            steps,
            first_peak,
            freed,
            parameters: BTreeMap::new(),
            kept_since: BTreeMap::new(),
        };
        if has_cycles {
            categories.learn(first);
        }
        categories
    }

    /// Parameters are what is kept and older than the first iteration's peak.
    fn learn(&mut self, first: Range<usize>) {
        for (i, event) in self.trace.events.iter().enumerate().take(first.end) {
            if !event.kind().makes_live() || self.end(i).is_some() {
                continue;
            }
            if i < self.first_peak && !CUBLAS.contains(&event.size) {
                *self.parameters.entry(event.size).or_default() += 1;
            } else {
                self.kept_since.entry(event.size).or_default().push(i as u32);
            }
        }
    }

    fn cycle_of(&self, event: usize) -> usize {
        self.cycles.partition_point(|range| range.end <= event)
    }

    /// The event that frees what an event asks for; `None` for what is kept, which what lives through half of the iterations is
    /// too: programs free their model when they end.
    fn end(&self, birth: usize) -> Option<usize> {
        let freed = self.freed[birth]? as usize;
        let through = self.cycle_of(freed) - self.cycle_of(birth);
        let long = self.has_cycles && through >= 2.max(self.cycles.len() / 2);
        (!long).then_some(freed)
    }

    /// What the allocation that an event asks for probably is.
    pub fn category(&self, birth: usize) -> Category {
        let event = self.trace.events[birth];
        let stack = self.trace.event_stacks.get(birth).copied().unwrap_or_default();
        let named = self.by_name(stack);
        let freed = self.end(birth);
        if let Some(Category::Workspaces) = named {
            return Category::Workspaces;
        }
        let Some(freed) = freed else {
            return match named {
                Some(category) => category,
                None if !self.has_cycles => Category::Lasting,
                None if CUBLAS.contains(&event.size) => Category::Workspaces,
                None => self.kept(birth, event.size),
            };
        };
        if !self.has_cycles {
            return named.unwrap_or(Category::Passing);
        }
        let (from, to) = (self.cycle_of(birth), self.cycle_of(freed));
        if from == to {
            let length = self.cycles[from.min(self.cycles.len() - 1)].len().max(1);
            let part = (freed - birth) as f64 / length as f64;
            return if part >= GOOD_PART { Category::Activations } else { Category::Temporaries };
        }
        if let Some(category) = named {
            return category;
        }
        if self.parameters.contains_key(&event.size) && to <= from + 1 {
            return Category::Gradients;
        }
        if to > from + 1 { Category::Lasting } else { Category::Activations }
    }

    /// Of what is kept and was not there before the first peak.
    fn kept(&self, birth: usize, size: Bytes) -> Category {
        if birth < self.first_peak {
            return Category::Parameters;
        }
        if self.steps.iter().any(|step| step.contains(&birth)) {
            return Category::OptimizerState;
        }
        let Some(&parameters) = self.parameters.get(&size) else { return Category::Lasting };
        let rank = self
            .kept_since
            .get(&size)
            .and_then(|births| births.iter().position(|&other| other as usize == birth));
        match rank {
            // Kept gradients come before the optimizer's state, one for each parameter.
            Some(rank) if (rank as u64) < parameters && self.steps.is_empty() => {
                Category::Gradients
            }
            Some(_) => Category::OptimizerState,
            None => Category::Lasting,
        }
    }

    /// What the names of calls say.
    fn by_name(&self, stack: StackId) -> Option<Category> {
        if stack == StackId::NONE {
            return None;
        }
        for frame in self.trace.stacks.stack(stack) {
            let (name, file) = (frame.name.to_ascii_lowercase(), frame.file.to_ascii_lowercase());
            let has = |word: &str| name.contains(word);
            if has("cublas") || has("cudnn") || has("workspace") {
                return Some(Category::Workspaces);
            }
            if file.contains("/optim/") || file.contains("optimizer") || has("_init_group") {
                return Some(Category::OptimizerState);
            }
            if has("accumulategrad") || has("accumulate_grad") {
                return Some(Category::Gradients);
            }
        }
        None
    }

    /// Who holds what in a heap, most bytes first.
    pub fn holdings(&self, frame: &Keyframe) -> Vec<Holding> {
        let mut found: BTreeMap<Category, BTreeMap<(StackId, Bytes), Owner>> = BTreeMap::new();
        for ((_, block), life) in frame.heap.blocks().zip(&frame.lives) {
            if block.state == BlockState::Free {
                continue;
            }
            let category = match life.born {
                Some((birth, _)) => self.category(birth as usize),
                None if block.state == BlockState::Pending => Category::Temporaries,
                None => Category::Lasting,
            };
            let size = if block.stack == StackId::NONE { block.requested } else { 0 };
            let owners = found.entry(category).or_default();
            let owner = owners.entry((block.stack, size)).or_insert_with(|| Owner {
                stack: block.stack,
                place: place(self.trace, block.stack),
                bytes: 0,
                blocks: 0,
                births: Vec::new(),
                freed: None,
            });
            owner.bytes += block.size;
            owner.blocks += 1;
        }
        let mut holdings: Vec<Holding> = found
            .into_iter()
            .map(|(category, owners)| {
                let mut places: Vec<Owner> = owners.into_values().collect();
                places.sort_by_key(|owner| (std::cmp::Reverse(owner.bytes), owner.stack));
                let bytes = places.iter().map(|owner| owner.bytes).sum();
                let blocks = places.iter().map(|owner| owner.blocks).sum();
                places.truncate(3);
                Holding { category, bytes, blocks, places }
            })
            .collect();
        holdings.sort_by_key(|holding| (std::cmp::Reverse(holding.bytes), holding.category));
        holdings
    }

    /// The iteration that an event belongs to and how many there are, where the job has a loop.
    pub fn iteration(&self, event: u64) -> Option<(usize, usize)> {
        self.has_cycles.then(|| (self.cycle_of(event as usize) + 1, self.cycles.len()))
    }
}

/// By event that asks: the event that frees.
fn frees(trace: &Trace) -> Vec<Option<u32>> {
    let mut freed = vec![None; trace.events.len()];
    let mut held: Vec<usize> = vec![usize::MAX; trace.slot_count() as usize];
    for (i, event) in trace.events.iter().enumerate() {
        match event.kind() {
            kind if kind.makes_live() => held[event.slot.index()] = i,
            EventKind::Free | EventKind::FreeLater => {
                if let Some(freed) = freed.get_mut(held[event.slot.index()]) {
                    *freed = Some(i as u32);
                }
            }
            _ => {}
        }
    }
    freed
}

/// The event within a stretch at which most is live.
fn peak_in(trace: &Trace, range: Range<usize>) -> usize {
    let (mut live, mut peak, mut at) = (0i128, i128::MIN, range.start);
    for i in range {
        let event = trace.events[i];
        match event.kind() {
            kind if kind.makes_live() => live += i128::from(event.size),
            EventKind::Free | EventKind::FreeLater => live -= i128::from(event.size),
            _ => {}
        }
        if live > peak {
            (peak, at) = (live, i);
        }
    }
    at
}

fn steps(trace: &Trace) -> Vec<Range<usize>> {
    let index = |at: Nanos| trace.events.partition_point(|event| event.at < at);
    let spans = trace.annotations.iter().filter(|span| span.name.starts_with("Optimizer.step"));
    spans.filter_map(|span| Some(index(span.start)..index(span.end?) + 1)).collect()
}
