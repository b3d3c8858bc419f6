//! The native JSON formats: one document, or one object a line. A person can write them by hand.
//!
//! `docs/trace-format.md` is the schema with examples. Unknown fields are errors with the nearest known
//! name; fields that are left out take the obvious value.

mod document;
mod event;
mod header;
mod lines;
mod stacks;
mod state;
mod write;

pub use document::read_json;
pub use lines::read_jsonl;
pub use write::{write_json, write_jsonl};

/// The version of the schema, the value of `poolsim_trace`.
pub const VERSION: u64 = 1;

/// Fields of the document.
pub const FIELDS: &[&str] = &[
    "poolsim_trace",
    "source",
    "device",
    "device_name",
    "device_memory",
    "capacity",
    "memory_fraction",
    "settings",
    "framework",
    "streams",
    "pools",
    "start_unix_us",
    "knows",
    "notes",
    "attributes",
    "ids",
    "frames",
    "stacks",
    "annotations",
    "initial_heap",
    "events",
];

/// Fields of an event beside the one that is named like its kind.
pub const EVENT_FIELDS: &[&str] = &["size", "stream", "pool", "t", "stack"];

/// Whether a field of this name makes its object an event.
pub(crate) fn is_event_kind(name: &str) -> bool {
    event::kind_of(name).is_some()
}
