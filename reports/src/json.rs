//! The documents that `--json` prints.

use poolsim_core::record::RunRecord;
use serde::Serialize;
use serde_json::{Value, json};

/// What went wrong with one input while others were fine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The input: a path, or a policy.
    pub input: String,
    /// What was wrong, and what to do next.
    pub error: String,
}

/// `{"runs": […]}`; with `"errors": […]` beside it if something failed.
pub fn runs(records: &[RunRecord], failures: &[Failure]) -> Value {
    list("runs", records, failures)
}

/// `{"<name>": […]}`; with `"errors": […]` beside it if something failed.
///
/// # Panics
/// If an item cannot be written as JSON (a map whose keys are not text).
pub fn list<T: Serialize>(name: &str, items: &[T], failures: &[Failure]) -> Value {
    let mut document = json!({ name: items });
    if !failures.is_empty() {
        document["errors"] = json!(failures);
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_never_displace_results() {
        let failure = Failure { input: "x.pickle".into(), error: "truncated".into() };
        let document = runs(&[RunRecord::default()], &[failure]);
        assert_eq!(document["runs"].as_array().map(Vec::len), Some(1));
        assert_eq!(document["errors"][0]["input"], "x.pickle");
        assert!(runs(&[], &[]).get("errors").is_none());
    }
}
