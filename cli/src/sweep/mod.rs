//! Many runs: an experiment is cut into cells, each cell is run once and written down, and what is written down is
//! the result, whoever ran it and however often it was interrupted.

mod cells;
mod experiment;
mod journal;
mod made;
mod run;
mod table;

pub use cells::{Cell, Plan};
pub use experiment::Experiment;
pub use journal::Journal;
pub use run::{Limits, Results, run};
pub use table::{csv, jsonl, parquet, text};
