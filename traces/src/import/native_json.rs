//! One JSON document of the native schema. See [`crate::native`].

use super::{Imported, Importer, Input, top_level_keys};
use crate::native::read_json;
use crate::open::OpenOptions;
use poolsim_core::TraceError;

/// The row of [`super::IMPORTERS`].
pub static IMPORTER: Importer = Importer {
    name: "native-json",
    summary: "poolsim's own JSON, which a person can write: {\"poolsim_trace\": 1, \"events\": [...]}",
    extensions: &["json"],
    sniff,
    read,
};

fn sniff(head: &[u8]) -> bool {
    let keys = top_level_keys(head).unwrap_or_default();
    keys.iter().any(|key| key == "poolsim_trace")
}

fn read(input: Input, _: &OpenOptions) -> Result<Imported, TraceError> {
    read_json(input.reader).map(Imported::of_trace)
}
