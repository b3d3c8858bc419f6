//! What a run writes down as it goes: rows, and the entries of a snapshot.

use indicatif::ProgressBar;
use poolsim_core::Entry;
use poolsim_core::record::{Decision, Sample};
use poolsim_reports::csv::CsvWriter;
use poolsim_reports::data::ParquetRows;
use poolsim_reports::sparkline::Highs;
use poolsim_sim::observe::sample;
use poolsim_sim::{Observer, Step};
use std::fs::File;
use std::io;
use std::path::Path;

/// A file of rows under way.
pub enum Rows {
    /// As CSV.
    Csv(Box<CsvWriter<io::BufWriter<File>>>),
    /// As Parquet.
    Parquet(Box<ParquetRows<io::BufWriter<File>>>),
}

impl Rows {
    /// Starts a file of samples; its ending chooses the format, CSV where it says nothing else.
    ///
    /// # Errors
    /// Those of the file.
    pub fn series(path: &Path) -> io::Result<Rows> {
        let file = io::BufWriter::new(File::create(path)?);
        Ok(if is_parquet(path) {
            Rows::Parquet(Box::new(ParquetRows::series(file)?))
        } else {
            Rows::Csv(Box::new(CsvWriter::series(file)?))
        })
    }

    /// Starts a file of decisions, as [`Rows::series`].
    ///
    /// # Errors
    /// Those of the file.
    pub fn decisions(path: &Path) -> io::Result<Rows> {
        let file = io::BufWriter::new(File::create(path)?);
        Ok(if is_parquet(path) {
            Rows::Parquet(Box::new(ParquetRows::decisions(file)?))
        } else {
            Rows::Csv(Box::new(CsvWriter::decisions(file)?))
        })
    }

    fn sample(&mut self, policy: &str, sample: &Sample) -> io::Result<()> {
        match self {
            Rows::Csv(rows) => rows.sample(policy, sample),
            Rows::Parquet(rows) => rows.sample(policy, sample),
        }
    }

    fn decision(&mut self, policy: &str, decision: &Decision) -> io::Result<()> {
        match self {
            Rows::Csv(rows) => rows.decision(policy, decision),
            Rows::Parquet(rows) => rows.decision(policy, decision),
        }
    }

    /// Writes the end of the file.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Rows::Csv(rows) => rows.finish(),
            Rows::Parquet(rows) => rows.finish(),
        }
    }
}

fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "parquet")
}

/// Watches one run.
pub struct Watch<'a> {
    /// The run's name in the CSV files.
    pub policy: &'a str,
    /// Memory over time.
    pub series: Option<&'a mut Rows>,
    /// Every decision.
    pub decisions: Option<&'a mut Rows>,
    /// The entries that a recorder would have written, if they are wanted.
    pub entries: Option<Vec<Entry>>,
    /// Shows how far it is.
    pub bar: ProgressBar,
    /// The first write that failed.
    pub failed: Option<io::Error>,
}

/// Events between two moves of the progress bar.
const STRIDE: u64 = 1 << 16;

impl Watch<'_> {
    fn write(&mut self, step: &Step<'_>) -> io::Result<()> {
        if let Some(series) = &mut self.series {
            series.sample(self.policy, &sample(step))?;
        }
        if let Some(decisions) = &mut self.decisions {
            for decision in step.log {
                decisions.decision(self.policy, decision)?;
            }
        }
        Ok(())
    }
}

impl Observer for Watch<'_> {
    fn on_step(&mut self, step: &Step<'_>) {
        if step.index.is_multiple_of(STRIDE) {
            self.bar.set_position(step.index);
        }
        if self.failed.is_none()
            && let Err(error) = self.write(step)
        {
            self.failed = Some(error);
        }
        if let Some(entries) = &mut self.entries {
            entries.extend(step.log.iter().map(|d| Entry {
                at: step.event.at,
                addr: d.addr,
                size: d.size,
                stack: step.stack,
                stream: d.stream,
                action: d.action,
            }));
        }
    }

    fn drains_log(&self) -> bool {
        true
    }
}

/// Reserved bytes over the run, as a line of text can show them.
#[derive(Default)]
pub struct Curve(pub Highs);

impl Observer for Curve {
    fn on_step(&mut self, step: &Step<'_>) {
        self.0.push(step.stats.reserved.current);
    }
}
