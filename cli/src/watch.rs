//! What a run writes down as it goes: CSV rows, and the entries of a snapshot.

use indicatif::ProgressBar;
use poolsim_core::Entry;
use poolsim_reports::csv::CsvWriter;
use poolsim_sim::observe::sample;
use poolsim_sim::{Observer, Step};
use std::fs::File;
use std::io;

/// A CSV file under way.
pub type Csv = CsvWriter<io::BufWriter<File>>;

/// Watches one run.
pub struct Watch<'a> {
    /// The run's name in the CSV files.
    pub policy: &'a str,
    /// Memory over time.
    pub series: Option<&'a mut Csv>,
    /// Every decision.
    pub decisions: Option<&'a mut Csv>,
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
