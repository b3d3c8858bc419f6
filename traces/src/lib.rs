//! Trace formats in, events out.
//!
//! [`open()`] tells a file's format from its content, reads through compression, and gives back a
//! [`Source`]. Each format is one row of [`import::IMPORTERS`].
#![forbid(unsafe_code)]

pub mod calls;
pub mod check;
mod compression;
mod digest;
pub mod export;
pub mod format;
mod frame;
pub mod import;
mod load;
pub mod native;
mod open;
mod pickle;
pub mod quantity;
mod reader;
mod section;
mod storage;
mod suggest;
pub mod synth;
mod tables;
mod tally;
pub mod transform;
mod varint;
mod writer;

pub use digest::{Digest, Digester, digest};
pub use import::{Imported, Importer, Input};
pub use open::{DeviceSummary, OpenOptions, Opened, Source, content, open};
pub use reader::{PstReader, read_all};
pub use tables::{OwnedTables, Tables};
pub use writer::{PstWriter, write_pst};
