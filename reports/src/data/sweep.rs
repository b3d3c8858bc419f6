//! The runs of a sweep as one table.

use super::columns::{bytes, numbers, some_numbers, texts};
use super::write::metrics;
use super::{DataError, FORMAT};
use polars_core::prelude::Column;
use poolsim_core::{Bytes, RunRecord};
use std::path::Path;

/// One run of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepRow {
    /// The trace, as the sweep names it.
    pub trace: String,
    /// The policy as the experiment writes it.
    pub label: String,
    /// Bytes that the job could have; `None` for all of the device.
    pub capacity: Option<Bytes>,
    /// The seed of the trace.
    pub seed: u64,
    /// Whether the job had enough memory, and the record; or why it could not be run.
    pub outcome: Result<(String, RunRecord), String>,
}

impl SweepRow {
    fn record(&self) -> Option<&RunRecord> {
        self.outcome.as_ref().ok().map(|(_, record)| record)
    }
}

/// A Parquet table of a sweep's runs, for a file at `path`: the columns of a kept run's results with the capacity, the seed
/// and the error.
///
/// # Errors
/// What the library that writes Parquet says.
pub fn sweep_table(path: &Path, rows: &[SweepRow]) -> Result<Vec<u8>, DataError> {
    let text = |name: &str, get: &dyn Fn(&SweepRow) -> Option<String>| {
        Column::new(name.into(), rows.iter().map(get).collect::<Vec<Option<String>>>())
    };
    let mut columns = vec![
        numbers("format", vec![FORMAT.into(); rows.len()]),
        texts("trace", rows.iter().map(|row| row.trace.as_str())),
        text("trace_digest", &|row| row.record().map(|r| r.provenance.trace_digest.clone())),
        texts("label", rows.iter().map(|row| row.label.as_str())),
        text("policy", &|row| row.record().map(|r| r.provenance.policy.clone())),
        some_numbers("capacity", rows.iter().map(|row| row.capacity).collect()),
        numbers("seed", rows.iter().map(|row| row.seed).collect()),
        text("verdict", &|row| row.outcome.as_ref().ok().map(|(verdict, _)| verdict.clone())),
        text("error", &|row| row.outcome.as_ref().err().cloned()),
    ];
    columns.extend(metrics(&rows.iter().map(SweepRow::record).collect::<Vec<_>>()));
    let record =
        |record: &RunRecord| serde_json::to_string(record).expect("a record is plain data");
    columns.push(text("record", &|row| row.record().map(record)));
    bytes(path, columns)
}
