//! Long tables to Parquet as their rows come, in bounded memory.

use super::columns::{numbers, texts};
use polars_core::prelude::*;
use polars_io::parquet::write::BatchedWriter;
use polars_io::prelude::*;
use poolsim_core::record::{Decision, Sample};
use std::io;

/// Rows that are held before they are written: a row group.
const ROWS: usize = 1 << 17;

/// Rows of one kind, under way to a Parquet file.
pub struct ParquetRows<W: io::Write> {
    out: BatchedWriter<W>,
    kind: Kind,
    policies: Vec<String>,
    /// Columns of numbers.
    columns: Vec<Vec<u64>>,
    actions: Vec<&'static str>,
}

#[derive(Clone, Copy)]
enum Kind {
    Series,
    Decisions,
}

impl Kind {
    fn names(self) -> &'static [&'static str] {
        match self {
            Kind::Series => &["event", "at_ns", "requested", "allocated", "active", "reserved"],
            Kind::Decisions => &["event", "address", "bytes", "stream"],
        }
    }
}

impl<W: io::Write> ParquetRows<W> {
    /// Starts a table of samples.
    ///
    /// # Errors
    /// Those of the file.
    pub fn series(out: W) -> io::Result<Self> {
        Self::start(out, Kind::Series)
    }

    /// Starts a table of decisions.
    ///
    /// # Errors
    /// Those of the file.
    pub fn decisions(out: W) -> io::Result<Self> {
        Self::start(out, Kind::Decisions)
    }

    fn start(out: W, kind: Kind) -> io::Result<Self> {
        let empty = frame(kind, &[], &vec![Vec::new(); kind.names().len()], &[])?;
        let writer = ParquetWriter::new(out).set_parallel(false);
        let out = writer.batched(empty.schema()).map_err(wrong)?;
        let columns = vec![Vec::new(); kind.names().len()];
        Ok(ParquetRows { out, kind, policies: Vec::new(), columns, actions: Vec::new() })
    }

    /// Adds a sample of a run.
    ///
    /// # Errors
    /// Those of the file.
    pub fn sample(&mut self, policy: &str, s: &Sample) -> io::Result<()> {
        self.row(policy, &[s.event, s.at, s.requested, s.allocated, s.active, s.reserved])
    }

    /// Adds a decision of a run.
    ///
    /// # Errors
    /// Those of the file.
    pub fn decision(&mut self, policy: &str, d: &Decision) -> io::Result<()> {
        self.actions.push(d.action.name());
        self.row(policy, &[d.event, d.addr, d.size, d.stream.0.into()])
    }

    fn row(&mut self, policy: &str, values: &[u64]) -> io::Result<()> {
        self.policies.push(policy.into());
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(*value);
        }
        if self.policies.len() == ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        let frame = frame(self.kind, &self.policies, &self.columns, &self.actions)?;
        self.out.write_batch(&frame).map_err(wrong)?;
        self.policies.clear();
        self.columns.iter_mut().for_each(Vec::clear);
        self.actions.clear();
        Ok(())
    }

    /// Writes what is held, and the end of the file.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.out.finish().map_err(wrong)?;
        Ok(())
    }
}

fn frame(
    kind: Kind,
    policies: &[String],
    columns: &[Vec<u64>],
    actions: &[&str],
) -> io::Result<DataFrame> {
    let mut all = vec![texts("policy", policies.iter().map(String::as_str))];
    let values = kind.names().iter().zip(columns);
    all.extend(values.map(|(name, values)| numbers(name, values.clone())));
    if matches!(kind, Kind::Decisions) {
        all.push(texts("action", actions.iter().copied()));
    }
    DataFrame::new_infer_height(all).map_err(wrong)
}

fn wrong(error: PolarsError) -> io::Error {
    match error {
        PolarsError::IO { error, .. } => io::Error::new(error.kind(), error.to_string()),
        other => io::Error::other(other.to_string()),
    }
}
