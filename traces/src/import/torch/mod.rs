//! Memory snapshots of PyTorch: `torch.cuda.memory._dump_snapshot` and its older kin.
//!
//! Three containers hold the same data: a pickle, the JSON dump of it, and the HTML page of `_memory_viz`.
//! Each reader hands dicts, lists and tuples to `fold::Snapshot` as they are completed, which turns
//! them into rows; `assemble` makes the recording of one device from the rows. So a field of a snapshot is
//! read in one place, whatever the container.

mod annotations;
mod assemble;
mod entries;
mod fold;
mod gaps;
mod heap;
mod rows;
mod settings;
mod values;
mod words;

pub mod torch_html;
pub mod torch_json;
pub mod torch_pickle;

pub use gaps::{HistoryGaps, history_gaps};
pub(crate) use settings::Settings;
