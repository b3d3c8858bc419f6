//! What many replays of a run's policy found out: which rule costs how much, and on how little memory the job lives.

use super::columns::{Table, numbers, signed, some_numbers, texts};
use super::{DataError, Run};
use polars_core::prelude::Column;
use poolsim_core::{Bytes, Nanos};
use std::collections::BTreeMap;

/// Why memory was reserved beyond what was live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Blocks are larger than requests.
    Rounding,
    /// Small and large requests are kept apart.
    SizeClasses,
    /// Streams are kept apart.
    Streams,
    /// Private pools are kept apart.
    Pools,
    /// Segments are larger than what is needed.
    Granularity,
    /// Each request is placed without knowledge of those to come.
    Order,
}

impl Cause {
    /// All of them, in the order of the waterfall.
    pub const ALL: [Cause; 6] = [
        Cause::Rounding,
        Cause::SizeClasses,
        Cause::Streams,
        Cause::Pools,
        Cause::Granularity,
        Cause::Order,
    ];

    /// For tables that programs read.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Rounding => "rounding",
            Cause::SizeClasses => "size_classes",
            Cause::Streams => "streams",
            Cause::Pools => "pools",
            Cause::Granularity => "granularity",
            Cause::Order => "order",
        }
    }

    /// For tables.
    pub fn title(self) -> &'static str {
        match self {
            Cause::Rounding => "rounding",
            Cause::SizeClasses => "small and large kept apart",
            Cause::Streams => "streams kept apart",
            Cause::Pools => "pools kept apart",
            Cause::Granularity => "segment granularity",
            Cause::Order => "order of arrival",
        }
    }

    /// The replay in which it is absent.
    pub fn counterfactual(self) -> &'static str {
        match self {
            Cause::Rounding => {
                "the program asks for exactly the blocks that it gets: the same decisions, and the live bound rises by this"
            }
            Cause::SizeClasses => {
                "all requests are served from the large pool, whose blocks are split however small the rest"
            }
            Cause::Streams => "every event is on one stream; frees that waited still wait",
            Cause::Pools => "every request goes to the default pool",
            Cause::Granularity => {
                "a new segment has exactly the size that is needed; pages have 2 MiB"
            }
            Cause::Order => {
                "the same blocks, packed offline: a range for each size class, stream and pool that the policy keeps apart (those \
                 whose merging lowers the peak), which gets pages of a granule when they are first used and gives idle ones back \
                 at each empty_cache"
            }
        }
    }
}

/// What one counterfactual replay showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CauseBytes {
    /// What was absent.
    pub cause: Cause,
    /// Peak reservation without it; `None` where this policy cannot be run without it.
    pub peak: Option<Bytes>,
    /// How much it costs; negative if the policy does better with it.
    pub bytes: i64,
}

/// From the live bound over all causes to the peak reservation. `live` and all `bytes` and `interaction` sum to `peak`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waterfall {
    /// The live bound.
    pub live: Bytes,
    /// The policy's peak reservation.
    pub peak: Bytes,
    /// Requests that were refused: a run that refuses says little.
    pub ooms: u64,
    /// Each cause by itself.
    pub causes: Vec<CauseBytes>,
    /// What is left: what only several causes together explain, or what several claim.
    pub interaction: i64,
}

/// The capacities that were tried of a policy, and whether the job lived on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    /// Nothing lives on less: the highest sum of sizes live at once, if every free were complete at once.
    pub bound: Bytes,
    /// Every capacity that was tried, and whether the job lived.
    pub tried: BTreeMap<Bytes, bool>,
    /// Whether the run on the smallest sufficient capacity hangs on where the driver puts memory.
    pub uncertain: bool,
    /// What it costs to run there; `None` if the job does not live at all.
    pub tight: Option<Tight>,
}

/// A run on the smallest sufficient capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tight {
    /// Times that the policy gave memory back and tried again.
    pub retries: u64,
    /// Predicted time in device calls.
    pub device_time_ns: Nanos,
}

impl Frontier {
    /// The smallest capacity, of those that were tried, on which the job lives.
    pub fn smallest(&self) -> Option<Bytes> {
        self.tried.iter().find(|(_, lives)| **lives).map(|(&capacity, _)| capacity)
    }

    /// The smallest capacity from which on every capacity that was tried suffices.
    pub fn safe(&self) -> Option<Bytes> {
        let sufficient = self.tried.iter().rev().take_while(|(_, lives)| **lives);
        sufficient.last().map(|(&capacity, _)| capacity)
    }

    /// Whether every capacity that was tried above a sufficient one suffices too.
    pub fn is_monotone(&self) -> bool {
        self.smallest() == self.safe()
    }
}

/// Rows of `causes.parquet` that are no cause.
const ENDS: [&str; 3] = ["live", "interaction", "peak"];

/// Run, cause, bytes, peak without it, refused requests.
type CauseRow<'a> = (u64, &'a str, Option<i64>, Option<u64>, u64);

/// `causes.parquet`.
pub(super) fn causes(runs: &[Run]) -> Vec<Column> {
    let mut rows: Vec<CauseRow<'_>> = Vec::new();
    for (run, of) in (0..).zip(runs) {
        let Some(found) = &of.waterfall else { continue };
        let [live, interaction, peak] = ENDS;
        rows.push((run, live, Some(found.live as i64), None, found.ooms));
        for cause in &found.causes {
            let bytes = cause.peak.map(|_| cause.bytes);
            rows.push((run, cause.cause.name(), bytes, cause.peak, found.ooms));
        }
        rows.push((run, interaction, Some(found.interaction), None, found.ooms));
        rows.push((run, peak, Some(found.peak as i64), Some(found.peak), found.ooms));
    }
    vec![
        numbers("run", rows.iter().map(|row| row.0).collect()),
        texts("cause", rows.iter().map(|row| row.1)),
        signed("bytes", rows.iter().map(|row| row.2).collect()),
        some_numbers("peak_without_bytes", rows.iter().map(|row| row.3).collect()),
        numbers("ooms", rows.iter().map(|row| row.4).collect()),
    ]
}

/// What [`causes`] wrote.
pub(super) fn read_causes(table: &Table, runs: &mut [Run]) -> Result<(), DataError> {
    let of = table.runs(runs.len())?;
    let rows = table.map("cause", |text| {
        let cause = Cause::ALL.into_iter().find(|cause| cause.name() == text).map(Ok);
        cause.or_else(|| ENDS.into_iter().find(|end| *end == text).map(Err))
    })?;
    let (bytes, peaks) = (table.signed("bytes")?, table.some_numbers("peak_without_bytes")?);
    for (i, ooms) in table.numbers("ooms")?.into_iter().enumerate() {
        let found = runs[of[i]].waterfall.get_or_insert_default();
        found.ooms = ooms;
        let value = bytes[i].unwrap_or(0);
        match rows[i] {
            Ok(cause) => found.causes.push(CauseBytes { cause, peak: peaks[i], bytes: value }),
            Err("live") => found.live = value.unsigned_abs(),
            Err("peak") => found.peak = value.unsigned_abs(),
            Err(_) => found.interaction = value,
        }
    }
    Ok(())
}

/// `frontiers.parquet`.
pub(super) fn frontiers(runs: &[Run]) -> Vec<Column> {
    let mut rows: Vec<(u64, &Frontier, Bytes, bool)> = Vec::new();
    for (run, of) in (0..).zip(runs) {
        if let Some(found) = &of.frontier {
            rows.extend(found.tried.iter().map(|(&bytes, &lives)| (run, found, bytes, lives)));
        }
    }
    let smallest = |row: &(u64, &Frontier, Bytes, bool)| row.1.smallest() == Some(row.2);
    let tight = |get: fn(&Tight) -> u64| {
        rows.iter().map(|row| row.1.tight.as_ref().filter(|_| smallest(row)).map(get)).collect()
    };
    vec![
        numbers("run", rows.iter().map(|row| row.0).collect()),
        numbers("bound_bytes", rows.iter().map(|row| row.1.bound).collect()),
        numbers("capacity_bytes", rows.iter().map(|row| row.2).collect()),
        numbers("lives", rows.iter().map(|row| row.3.into()).collect()),
        numbers(
            "uncertain",
            rows.iter().map(|row| (row.1.uncertain && smallest(row)).into()).collect(),
        ),
        some_numbers("retries", tight(|tight| tight.retries)),
        some_numbers("device_time_ns", tight(|tight| tight.device_time_ns)),
    ]
}

/// What [`frontiers`] wrote.
pub(super) fn read_frontiers(table: &Table, runs: &mut [Run]) -> Result<(), DataError> {
    let of = table.runs(runs.len())?;
    let (bounds, capacities) = (table.numbers("bound_bytes")?, table.numbers("capacity_bytes")?);
    let (lives, uncertain) = (table.numbers("lives")?, table.numbers("uncertain")?);
    let (retries, times) = (table.some_numbers("retries")?, table.some_numbers("device_time_ns")?);
    for (i, run) in of.into_iter().enumerate() {
        let found = runs[run].frontier.get_or_insert_default();
        found.bound = bounds[i];
        found.tried.insert(capacities[i], lives[i] != 0);
        found.uncertain |= uncertain[i] != 0;
        if let Some((retries, device_time_ns)) = retries[i].zip(times[i]) {
            found.tight = Some(Tight { retries, device_time_ns });
        }
    }
    Ok(())
}
