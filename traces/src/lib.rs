//! Trace formats in, events out.
//!
//! [`open()`] tells a file's format from its content, reads through compression, and gives back a
//! [`Source`]. Each format is one row of [`import::IMPORTERS`].
#![forbid(unsafe_code)]

mod compression;
pub mod import;
mod open;

pub use import::{Imported, Importer, Input};
pub use open::{DeviceSummary, OpenOptions, Opened, Source, open};
