//! The table of generators, and what they share.

use super::program::Program;
use super::{adversarial, pipeline, serving, training};
use crate::suggest;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{ConfigError, Trace, TraceError};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

/// A number that a generator can be set to.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// Its name.
    pub key: &'static str,
    /// What holds if it is not set.
    pub default: u64,
    /// Smallest and largest value.
    pub bounds: (u64, u64),
    /// What it means, with its unit.
    pub doc: &'static str,
}

/// A workload that can be made.
pub struct Generator {
    /// Its name.
    pub name: &'static str,
    /// What the program does, in one line.
    pub summary: &'static str,
    /// Whom it hurts and why, for the adversarial ones; empty for the others.
    pub hurts: &'static str,
    /// What can be set.
    pub knobs: &'static [Knob],
    pub(super) make: fn(&mut Draft),
}

/// Every generator.
pub static GENERATORS: &[&Generator] = &[
    &training::DENSE,
    &training::CHECKPOINTED,
    &training::VARIABLE,
    &training::MOE,
    &serving::DEF,
    &pipeline::DEF,
    &adversarial::COMB,
    &adversarial::JUST_ABOVE,
    &adversarial::GROWING,
    &adversarial::STREAMS,
    &adversarial::ROTATION,
    &adversarial::REMAINDERS,
    &adversarial::DRIFT,
];

/// The generator of this name.
///
/// # Errors
/// There is none; names the nearest.
pub fn find(name: &str) -> Result<&'static Generator, ConfigError> {
    let known: Vec<&str> = GENERATORS.iter().map(|g| g.name).collect();
    let found = GENERATORS.iter().copied().find(|g| g.name == name);
    found.ok_or_else(|| ConfigError(suggest::unknown("generator", name, &known)))
}

/// Events of which no more are made.
const EVENTS_MAX: usize = 1 << 26;

impl Generator {
    /// Makes a trace. The same settings and seed make the same trace.
    ///
    /// # Errors
    /// A setting is not one of [`Generator::knobs`] or out of its bounds, or all would be more than 67 million events.
    pub fn generate(&self, settings: &[(String, u64)], seed: u64) -> Result<Trace, TraceError> {
        let mut values: BTreeMap<&'static str, u64> =
            self.knobs.iter().map(|knob| (knob.key, knob.default)).collect();
        for (key, value) in settings {
            let knob = self.knob(key).map_err(refused)?;
            let (min, max) = knob.bounds;
            if !(min..=max).contains(value) {
                let what = format!("`{key}={value}` is not possible; allowed is {min} to {max}");
                return Err(refused(what));
            }
            values.insert(knob.key, *value);
        }
        let rng = Pcg64::seed_from_u64(seed);
        let mut draft = Draft { program: Program::new(4), values, rng };
        (self.make)(&mut draft);
        if !draft.has_room() {
            return Err(refused(format!("that is more than {EVENTS_MAX} events; set less")));
        }
        let set: Vec<String> =
            draft.values.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let said = format!("{},{},seed={seed}", self.name, set.join(","));
        let mut trace = draft.program.finish();
        trace.header.attributes.insert("synth".into(), said);
        Ok(trace)
    }

    fn knob(&self, key: &str) -> Result<&'static Knob, String> {
        let found = self.knobs.iter().find(|knob| knob.key == key);
        found.ok_or_else(|| {
            let known: Vec<&str> = self.knobs.iter().map(|knob| knob.key).collect();
            suggest::unknown("setting", key, &known)
        })
    }
}

fn refused(what: impl Into<String>) -> TraceError {
    TraceError::new(TraceErrorKind::Refused, Place::Whole, what)
}

/// A trace that is being made.
pub(super) struct Draft {
    pub(super) program: Program,
    values: BTreeMap<&'static str, u64>,
    pub(super) rng: Pcg64,
}

impl Draft {
    /// The value of a knob.
    pub(super) fn get(&self, key: &str) -> u64 {
        *self.values.get(key).unwrap_or_else(|| panic!("no knob `{key}` is declared"))
    }

    /// Whether another pass may follow.
    pub(super) fn has_room(&self) -> bool {
        self.program.len() < EVENTS_MAX
    }

    /// A number above 0 and below 1.
    pub(super) fn uniform(&mut self) -> f64 {
        (self.rng.random_range(0..1u64 << 53) as f64 + 0.5) / (1u64 << 53) as f64
    }
}
