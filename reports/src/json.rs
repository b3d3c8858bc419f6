//! The documents that `--json` prints.

use serde::Serialize;
use serde_json::{Value, json};

/// `{"<name>": […]}`: every command's document has one list under one stable name.
///
/// # Panics
/// If an item cannot be written as JSON (a map whose keys are not text).
pub fn list<T: Serialize>(name: &str, items: &[T]) -> Value {
    json!({ name: items })
}
