//! How long calls took: all of them, not some percentiles.

use super::columns::{Table, numbers, texts};
use super::{DataError, Run};
use polars_core::prelude::Column;
use poolsim_core::Nanos;

/// Where times come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The clock, on a GPU. Each time contains the cost of reading it once.
    Measured,
    /// The prices of a device profile. Where one event makes several calls of a kind, each has their mean.
    Modelled,
}

impl Source {
    /// For tables and for people.
    pub fn name(self) -> &'static str {
        match self {
            Source::Measured => "measured",
            Source::Modelled => "modelled",
        }
    }
}

/// The times of one kind of call in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// The call: `alloc` and `free` are the allocator's own with all that is under them, the others device calls.
    pub call: String,
    /// Where the times come from.
    pub source: Source,
    /// Calls by their time, shortest first: so many took so long, to three digits, rounded up.
    pub steps: Vec<(Nanos, u64)>,
}

impl Distribution {
    /// Number of calls.
    pub fn calls(&self) -> u64 {
        self.steps.iter().map(|(_, calls)| calls).sum()
    }

    /// The shortest time that no less than `share` of the calls kept to; 0 without calls.
    pub fn quantile(&self, share: f64) -> Nanos {
        let needed = (share * self.calls() as f64).ceil() as u64;
        let mut sum = 0;
        let reached = self.steps.iter().find(|(_, calls)| {
            sum += calls;
            sum >= needed
        });
        reached.or(self.steps.last()).map_or(0, |(ns, _)| *ns)
    }
}

/// `latencies.parquet`.
pub(super) fn latencies(runs: &[Run]) -> Vec<Column> {
    let mut rows: Vec<(u64, &Distribution, Nanos, u64)> = Vec::new();
    for (run, of) in (0..).zip(runs) {
        for kind in &of.distributions {
            rows.extend(kind.steps.iter().map(|&(ns, calls)| (run, kind, ns, calls)));
        }
    }
    vec![
        numbers("run", rows.iter().map(|row| row.0).collect()),
        texts("call", rows.iter().map(|row| row.1.call.as_str())),
        texts("source", rows.iter().map(|row| row.1.source.name())),
        numbers("time_ns", rows.iter().map(|row| row.2).collect()),
        numbers("calls", rows.iter().map(|row| row.3).collect()),
    ]
}

/// What [`latencies`] wrote.
pub(super) fn read_latencies(table: &Table, runs: &mut [Run]) -> Result<(), DataError> {
    let of = table.runs(runs.len())?;
    let calls = table.texts("call")?;
    let sources = table.map("source", |text| {
        [Source::Measured, Source::Modelled].into_iter().find(|source| source.name() == text)
    })?;
    let (times, counts) = (table.numbers("time_ns")?, table.numbers("calls")?);
    for (i, call) in calls.into_iter().enumerate() {
        let kinds = &mut runs[of[i]].distributions;
        if kinds.last().is_none_or(|last| last.call != call || last.source != sources[i]) {
            kinds.push(Distribution { call, source: sources[i], steps: Vec::new() });
        }
        kinds.last_mut().expect("it was just made sure of").steps.push((times[i], counts[i]));
    }
    Ok(())
}
