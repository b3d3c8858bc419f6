//! Runs as data: what a report is made of, and the folder of Parquet tables that keeps it.
//!
//! `docs/runs.md` describes the tables for those who read them with other tools.

mod bounds;
mod columns;
mod distributions;
mod lab;
mod merge;
mod read;
mod stream;
mod sums;
mod sweep;
mod write;

pub use distributions::{Distribution, Source};
pub use lab::{Cause, CauseBytes, Frontier, Tight, Waterfall};
pub use stream::ParquetRows;
pub use sweep::{SweepRow, sweep_table};
pub(crate) use write::{QUANTITIES, coarser};

use poolsim_core::RunRecord;
use poolsim_core::event::Annotation;
use poolsim_core::stack::{Frame, StackId};
use poolsim_core::{CallsPoint, Keyframe, Point};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Version of the tables; another one is refused.
pub const FORMAT: u32 = 1;

/// One run with all that was kept of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The policy as the user wrote it.
    pub label: String,
    /// Whether the job had enough memory: `fits`, `out_of_memory` or `uncertain`.
    pub verdict: String,
    /// What it was and what it measured.
    pub record: RunRecord,
    /// Memory over time; empty if it was not kept.
    pub series: Vec<Point>,
    /// Device calls over time; empty if they were not kept.
    pub calls: Vec<CallsPoint>,
    /// The heap at chosen events, in the order of events.
    pub keyframes: Vec<Keyframe>,
    /// How long device calls took, by call; empty if that was not kept.
    pub distributions: Vec<Distribution>,
    /// Which rule of the policy costs how much, if that was found out.
    pub waterfall: Option<Waterfall>,
    /// On how little memory the job lives, if that was found out.
    pub frontier: Option<Frontier>,
}

/// Runs of one command on one trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSet {
    /// The simulated machine in words, and who said so.
    pub machine: String,
    /// The command line that made the runs.
    pub command: String,
    /// The runs.
    pub runs: Vec<Run>,
    /// The stacks that keyframes name, innermost frame first.
    pub stacks: BTreeMap<StackId, Vec<Frame>>,
    /// The program's named spans.
    pub annotations: Vec<Annotation>,
}

/// Why runs could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The file system said no.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A table that is not what `docs/runs.md` says.
    #[error("{}: {what}", .path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        what: String,
    },
}

impl RunSet {
    /// A folder that holds no more than runs, or nothing at all.
    ///
    /// # Errors
    /// The folder holds something else: it is not replaced by accident.
    pub fn check_target(folder: &std::path::Path) -> Result<(), DataError> {
        let io = |source| DataError::Io { path: folder.into(), source };
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(io(error)),
        };
        for entry in entries {
            let name = entry.map_err(io)?.file_name();
            if !write::TABLES.iter().any(|table| name == *table) {
                let what = format!(
                    "this folder holds {}, which is no table of a run; name a new or empty folder",
                    name.display()
                );
                return Err(DataError::Table { path: folder.into(), what });
            }
        }
        Ok(())
    }
}
