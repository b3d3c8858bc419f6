//! The explanation as JSON.

use super::Told;
use serde_json::{Value, json};

/// The whole explanation.
pub(super) fn of(told: &Told) -> Value {
    let explanation = &told.explanation;
    let iterations = explanation
        .iterations
        .iter()
        .map(|iteration| iteration.map(|(n, of)| json!({ "iteration": n, "of": of })));
    json!({
        "poolsim_version": env!("CARGO_PKG_VERSION"),
        "trace": told.asked.path.display().to_string(),
        "trace_digest": told.asked.digest,
        "torch": told.torch.to_string(),
        "conf": explanation.setting.conf(),
        "finding": explanation.finding,
        "impossible": explanation.is_impossible(),
        "warnings": explanation.warnings,
        "measured": explanation.measured,
        "needs": explanation.needs,
        "scenes": explanation.scenes,
        "iterations": iterations.collect::<Vec<_>>(),
        "ooms": explanation.ooms,
        "remedies": explanation.remedies,
        "holdings": explanation.holdings,
        "greatest_need_event": explanation.most,
        "estimates": explanation.estimates,
        "phases": explanation.phases,
    })
}
