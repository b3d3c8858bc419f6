//! The smallest change that would have helped: each is a replay of its own.

use super::change::{Edit, Edited, edit};
use super::scene::{Owner, Scene};
use super::trial::{Watch, peak_set, thin};
use crate::advise::EFFECT;
use crate::job::{Job, Measured};
use crate::space::Setting;
use crate::torch::Torch;
use poolsim_core::{Bytes, StreamId, Trace, TraceError};
use poolsim_sim::{Placement, ReplayOptions};
use poolsim_traces::synth::{Change, Fit, Found as Cycles, Order};
use rayon::prelude::*;
use serde::Serialize;
use std::sync::Arc;

/// A change, from small to large: this is the order in which those that help are named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Remedy {
    /// Another value of the environment variable; empty for PyTorch's defaults.
    Setting {
        /// The value.
        conf: String,
    },
    /// The cache is emptied once.
    EmptyCache {
        /// Before this event.
        event: u64,
    },
    /// Some tensors are made before everything else.
    Earlier(Moved),
    /// Some tensors are made after the request that was refused.
    Later(Moved),
    /// Some tensors are made in a pool of their own (`torch.cuda.use_mem_pool`).
    Elsewhere(Moved),
    /// Frees that wait for other streams are complete at once.
    CompleteFrees,
    /// The largest needs come first: before everything else they are asked for once and freed.
    WarmUp {
        /// How many requests.
        requests: usize,
        /// Bytes of them together.
        bytes: Bytes,
    },
    /// The iterations after the first, those with the highest peaks first.
    LargestFirst,
}

/// The tensors that a remedy moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// How many.
    pub tensors: usize,
    /// Bytes of them together.
    pub bytes: Bytes,
    /// Who asked for them, in words; empty where no stack is known.
    pub place: String,
    /// The event that asked for the first of them.
    pub event: u64,
}

/// A remedy that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Tried {
    /// The change.
    #[serde(flatten)]
    pub remedy: Remedy,
    /// Whether the refused request is granted, with none refused before it; for a moment without a refused request, whether
    /// the peak falls by at least 1 %.
    pub helps: bool,
    /// What the whole run came to.
    pub measured: Measured,
}

/// Moments at which an empty_cache is tried.
const MOMENTS: usize = 24;
/// Groups of tensors that are moved.
const GROUPS: usize = 4;
/// Tensors that are moved at most.
const TENSORS: usize = 4096;

/// What is to be tried on one scene.
pub struct Question<'a> {
    /// The job.
    pub job: &'a Job,
    /// The setting that it ran under.
    pub setting: &'a Setting,
    /// The moment.
    pub scene: &'a Scene,
    /// What the run came to.
    pub measured: Measured,
    /// The version whose options may be named.
    pub torch: Torch,
}

enum Way {
    Setting(Setting),
    Edit(Edit),
    Order,
}

/// Tries everything, and returns what helps, the smallest change first.
///
/// # Errors
/// Those of the trace.
pub fn remedies(question: &Question<'_>) -> Result<Vec<Tried>, TraceError> {
    let ways = question.ways();
    let tried: Vec<Option<Tried>> = ways
        .par_iter()
        .map(|(remedy, way)| question.try_one(remedy.clone(), way))
        .collect::<Result<_, TraceError>>()?;
    let mut helping: Vec<Tried> = tried.into_iter().flatten().filter(|tried| tried.helps).collect();
    // Where most of what cannot be used waits for other streams, that is the cause.
    let scene = question.scene;
    let waits = scene.pending > 0 && scene.pending >= (scene.reserved - scene.live) / 2;
    let class = |remedy: &Remedy| match remedy {
        Remedy::CompleteFrees if waits => 0,
        other => class(other),
    };
    helping.sort_by_key(|tried| {
        let m = &tried.measured;
        (
            class(&tried.remedy),
            m.ooms,
            size_of(&tried.remedy),
            m.peak_reserved_bytes / 100,
            m.device_time_ns,
        )
    });
    Ok(helping)
}

fn class(remedy: &Remedy) -> u8 {
    match remedy {
        Remedy::Setting { .. } => 1,
        Remedy::EmptyCache { .. } => 2,
        Remedy::CompleteFrees => 3,
        Remedy::Earlier(_) | Remedy::Later(_) | Remedy::Elsewhere(_) => 4,
        Remedy::WarmUp { .. } => 5,
        Remedy::LargestFirst => 6,
    }
}

fn size_of(remedy: &Remedy) -> usize {
    match remedy {
        Remedy::Setting { conf } => conf.split(',').filter(|part| part.contains(':')).count(),
        Remedy::Earlier(m) | Remedy::Later(m) | Remedy::Elsewhere(m) => m.tensors,
        _ => 0,
    }
}

impl Question<'_> {
    fn ways(&self) -> Vec<(Remedy, Way)> {
        // Other settings would have laid the recorded heap out otherwise, and a moved tensor is not in it.
        let late = self.job.starts_late();
        let mut ways = if late { Vec::new() } else { self.settings() };
        let moments = self.moments();
        ways.extend(
            moments.into_iter().map(|event| {
                (Remedy::EmptyCache { event }, Way::Edit(Edit::EmptyCache(vec![event])))
            }),
        );
        if self.scene.pending > 0 {
            ways.push((Remedy::CompleteFrees, Way::Edit(Edit::CompleteFrees)));
        }
        if late {
            return ways;
        }
        for group in self.groups() {
            ways.extend(self.moves(&group));
        }
        for sizes in self.largest_needs() {
            let bytes = sizes.iter().map(|(size, _)| size).sum();
            let remedy = Remedy::WarmUp { requests: sizes.len(), bytes };
            ways.push((remedy, Way::Edit(Edit::WarmUp(sizes))));
        }
        ways.push((Remedy::LargestFirst, Way::Order));
        ways
    }

    /// Each option by itself, and what is in force without one of its options.
    fn settings(&self) -> Vec<(Remedy, Way)> {
        let mut texts: Vec<String> = vec![String::new()];
        let parts: Vec<String> = self
            .setting
            .resolved
            .params
            .items()
            .iter()
            .map(|(key, value)| format!("{key}:{value}"))
            .collect();
        for i in 0..parts.len() {
            let mut fewer = parts.clone();
            fewer.remove(i);
            texts.push(fewer.join(","));
        }
        let split = self.torch.least_split_mb();
        let mut one = |key: &str, value: &str| {
            if self.torch.knows(key) {
                texts.push(format!("{key}:{value}"));
            }
        };
        one("expandable_segments", "True");
        for mb in [split, 64, 200, 512, 1024] {
            one("max_split_size_mb", &mb.to_string());
        }
        for divisions in ["4", "8", "16"] {
            one("roundup_power2_divisions", divisions);
        }
        for mb in ["12", "32", "64"] {
            one("large_segment_size_mb", mb);
        }
        for share in ["0.6", "0.8"] {
            one("garbage_collection_threshold", share);
        }
        texts.sort();
        texts.dedup();
        let env = self.job.env();
        let settings = texts.iter().filter_map(|text| Setting::parse(text, self.job).ok());
        settings
            .filter(|s| s.conf() != self.setting.conf() && s.resolved.warnings(&env).is_empty())
            .map(|s| (Remedy::Setting { conf: s.conf().into() }, Way::Setting(s)))
            .collect()
    }

    /// Moments at which the memory that is pinned later was still whole: before each block that pins it was asked for. And the
    /// ends of iterations.
    fn moments(&self) -> Vec<u64> {
        let owners = self.scene.miss.iter().flat_map(|miss| &miss.pins);
        let owners = owners.chain(self.scene.pinned.iter().flat_map(|range| &range.owners));
        let mut moments: Vec<u64> = owners.flat_map(|owner| owner.births.iter().copied()).collect();
        moments.sort_unstable();
        moments.dedup();
        thin(&mut moments, MOMENTS / 2);
        if let Ok(fit) = Fit::of(&self.job.trace) {
            let mut ends: Vec<u64> = fit.ranges().iter().map(|range| range.start as u64).collect();
            ends.retain(|&event| event > 0 && event < self.scene.event);
            thin(&mut ends, MOMENTS / 2);
            moments.extend(ends);
        }
        moments.push(self.scene.event);
        moments.sort_unstable();
        moments.dedup();
        moments
    }

    /// Tensors that pin memory: single ones, those of one place, and all of the nearest miss.
    fn groups(&self) -> Vec<Owner> {
        let mut groups: Vec<Owner> = Vec::new();
        let mut add = |owners: &[Owner]| {
            for owner in owners.iter().take(GROUPS) {
                if owner.births.len() > 1 {
                    let part = owner.bytes / owner.blocks.max(1);
                    for &birth in owner.births.iter().take(2) {
                        groups.push(Owner {
                            bytes: part,
                            blocks: 1,
                            births: vec![birth],
                            ..owner.clone()
                        });
                    }
                }
                groups.push(owner.clone());
            }
            if owners.len() > 1 {
                let mut all = owners[0].clone();
                all.place = String::new();
                all.bytes = owners.iter().map(|owner| owner.bytes).sum();
                all.blocks = owners.iter().map(|owner| owner.blocks).sum();
                all.births = owners.iter().flat_map(|owner| owner.births.clone()).collect();
                groups.push(all);
            }
        };
        // What holds more than it pins would be moved for its own sake.
        let smaller = |owners: &[Owner], free: Bytes| -> Vec<Owner> {
            owners.iter().filter(|owner| owner.bytes < free).cloned().collect()
        };
        if let Some(miss) = &self.scene.miss {
            add(&smaller(&miss.pins, miss.free_bytes));
        }
        for range in self.scene.pinned.iter().take(2) {
            add(&smaller(&range.owners, range.free_bytes));
        }
        groups.retain(|group| !group.births.is_empty() && group.births.len() <= TENSORS);
        let mut seen: Vec<Vec<u64>> = Vec::new();
        groups.retain(|group| {
            let new = !seen.contains(&group.births);
            seen.push(group.births.clone());
            new
        });
        groups
    }

    fn moves(&self, group: &Owner) -> Vec<(Remedy, Way)> {
        let events = &self.job.trace.events;
        let sizes = group.births.iter().filter_map(|&b| events.get(b as usize));
        let moved = Moved {
            tensors: group.births.len(),
            bytes: sizes.map(|event| event.size).sum(),
            place: group.place.clone(),
            event: group.births.iter().copied().min().unwrap_or(0),
        };
        let births = group.births.clone();
        let mut ways = vec![
            (Remedy::Earlier(moved.clone()), Way::Edit(Edit::Earlier(births.clone()))),
            (Remedy::Elsewhere(moved.clone()), Way::Edit(Edit::Elsewhere(births.clone()))),
        ];
        if self.scene.asked.is_some() {
            let later = Edit::Later(births, self.scene.event);
            ways.push((Remedy::Later(moved), Way::Edit(later)));
        }
        ways
    }

    /// What is live at once when most is, of what was asked for since the iteration of the moment began; and of what is asked
    /// for from the moment on.
    fn largest_needs(&self) -> Vec<Vec<(Bytes, StreamId)>> {
        let trace = &self.job.trace;
        let at = self.scene.event as usize;
        let Ok(fit) = Fit::of(trace) else { return Vec::new() };
        let whole = at..trace.events.len();
        let cycle = fit.ranges().iter().find(|range| range.contains(&at)).cloned();
        let cycle = cycle.filter(|_| *fit.found() != Cycles::Windows).unwrap_or(whole);
        let mut needs =
            vec![peak_set(trace, at..cycle.end, TENSORS), peak_set(trace, cycle, TENSORS)];
        needs.dedup();
        needs.retain(|needs| !needs.is_empty() && needs.len() <= TENSORS);
        needs
    }

    fn try_one(&self, remedy: Remedy, way: &Way) -> Result<Option<Tried>, TraceError> {
        let target = self.scene.event;
        let (job, event, setting) = match way {
            Way::Setting(setting) => (Job { recorded: None, ..self.job.clone() }, target, setting),
            Way::Edit(change) => {
                let Some(Edited { trace, event }) = edit(&self.job.trace, change, target) else {
                    return Ok(None);
                };
                (self.job.with_trace(Arc::new(trace)), event, self.setting)
            }
            Way::Order => {
                let Some(trace) = self.reordered()? else { return Ok(None) };
                (self.job.with_trace(Arc::new(trace)), u64::MAX, self.setting)
            }
        };
        let mut watch = Watch { event, granted: false, refused_before: false };
        let (end, device) =
            job.replay(&setting.resolved, Placement::Driver, &mut watch, ReplayOptions::default())?;
        let measured = Measured::of(&end, &device);
        let helps = match (&self.scene.asked, way) {
            (Some(_), Way::Order) => measured.ooms == 0,
            (Some(_), _) => watch.granted && !watch.refused_before,
            (None, _) => {
                let worth = self.measured.peak_reserved_bytes as f64 * (1.0 - EFFECT);
                measured.ooms == 0 && measured.peak_reserved_bytes as f64 <= worth
            }
        };
        Ok(Some(Tried { remedy, helps, measured }))
    }

    fn reordered(&self) -> Result<Option<Trace>, TraceError> {
        let fit = Fit::of(&self.job.trace)?;
        if *fit.found() == Cycles::Windows || fit.cycles() < 3 {
            return Ok(None);
        }
        let change = Change { order: Order::LargestFirst, ..Change::default() };
        fit.make(&change, 0).map(Some)
    }
}
