//! What a report says beyond the runs themselves: which rule costs how much, and on how little memory the job lives. That
//! takes many replays.

use crate::bounds::Units;
use crate::choice::Choice;
use crate::frontier::frontier;
use crate::runner::Setting;
use crate::waterfall::waterfall;
use clap::ValueEnum;
use poolsim_reports::data::Run;
use poolsim_sim::bound::{Bounds, DEFAULT_STEPS, Lifetimes};
use rayon::prelude::*;

/// When to find it out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Lab {
    /// For traces of up to 200,000 events
    #[default]
    Auto,
    /// For every trace; some sixty replays for each policy
    Always,
    /// For none
    Never,
}

/// Events up to which all replays together are a matter of seconds.
const SHORT: u64 = 200_000;

/// Capacities that are tried on each side of the smallest sufficient one, as `frontier` does by default.
pub const PROBES: u64 = 16;

/// Adds to each run in simulation what its policy's replays found out.
///
/// # Errors
/// Those of the trace, if it was asked for; otherwise a note says why it is not there.
pub fn add(
    when: Lab,
    setting: &Setting<'_>,
    choices: &[Choice],
    runs: &mut [Run],
) -> anyhow::Result<()> {
    let short = setting.loaded.events.count() <= SHORT;
    if when == Lab::Never || when == Lab::Auto && !short {
        return Ok(());
    }
    match all(setting, choices, runs) {
        Err(error) if when == Lab::Auto => {
            eprintln!("note: neither waterfall nor frontier could be computed: {error:#}");
            Ok(())
        }
        done => done,
    }
}

fn all(setting: &Setting<'_>, choices: &[Choice], runs: &mut [Run]) -> anyhow::Result<()> {
    let loaded = setting.loaded;
    let lifetimes = Lifetimes::read(&mut *loaded.events.source())
        .map_err(|error| error.in_file(&loaded.path))?;
    let units = Units::of(loaded, None);
    let bounds = Bounds::of(&lifetimes, units.alignment, units.granule);
    runs.par_iter_mut().filter(|run| run.record.provenance.target == "sim").try_for_each(|run| {
        let chosen = choices.iter().find(|choice| choice.label == run.label);
        let Some(choice) = chosen else { return Ok(()) };
        run.waterfall = Some(waterfall(setting, choice, DEFAULT_STEPS)?);
        let found = frontier(loaded, setting.profile, choice, &bounds, PROBES)?;
        run.frontier = Some(found.frontier);
        Ok(())
    })
}
