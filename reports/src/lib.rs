//! Run records in, bytes out.
//!
//! A report is a pure function of finished [records](poolsim_core::RunRecord): it opens no trace and
//! computes no metric. Numbers are formatted by the unit that the one table of metrics
//! ([`poolsim_core::metric::METRICS`]) gives them, so a new metric appears without an edit here
//! beyond its place in [`table`]'s groups.
#![forbid(unsafe_code)]

pub mod csv;
pub mod data;
pub mod figure;
pub mod json;
pub mod latency;
mod markdown;
pub mod page;
pub mod prose;
pub mod quantity;
pub mod report;
pub mod sparkline;
pub mod statistics;
pub mod table;
pub mod torch;
pub mod verdict;
