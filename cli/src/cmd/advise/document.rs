//! The answer as JSON.

use super::Answer;
use super::cards;
use poolsim_advice::advise::Finalist;
use poolsim_advice::search::Trial;
use serde_json::{Value, json};

fn trial(trial: &Trial) -> Value {
    json!({ "conf": trial.setting.conf(), "measured": trial.measured })
}

fn finalist(one: &Finalist) -> Value {
    json!({
        "conf": one.trial.setting.conf(),
        "measured": one.trial.measured,
        "doubt": one.doubt,
        "confidence": one.confidence.rows,
        "holds": one.confidence.holds(),
    })
}

/// The whole answer.
pub(super) fn of(answer: &Answer) -> Value {
    let advice = &answer.advice;
    let [before, after] = advice.smallest;
    let ranks = answer.asked.iter().zip(&answer.ranks).map(|(asked, [now, then])| {
        json!({ "trace": asked.path.display().to_string(), "now": now, "advised": then })
    });
    let files = |asked: &[crate::asked::Asked]| -> Vec<Value> {
        let one = |one: &crate::asked::Asked| json!({ "trace": one.path.display().to_string(), "trace_digest": one.digest });
        asked.iter().map(one).collect()
    };
    json!({
        "poolsim_version": env!("CARGO_PKG_VERSION"),
        "traces": files(&answer.asked),
        "further_recordings": files(&answer.further),
        "torch": answer.torch.to_string(),
        "verdict": advice.verdict,
        "line": answer.line(),
        "conf": advice.setting.setting.conf(),
        "now": trial(&advice.now),
        "default": trial(&advice.standard),
        "advised": trial(&advice.setting),
        "confidence": advice.confidence.as_ref().map(|confidence| &confidence.rows),
        "needs": advice.needs,
        "smallest_bytes": { "now": before, "advised": after },
        "smallest_card_gb": { "now": before.and_then(cards::smallest), "advised": after.and_then(cards::smallest) },
        "settings_possible": advice.found.possible,
        "exhaustive": advice.found.is_exhaustive(),
        "tried": advice.found.trials.iter().map(trial).collect::<Vec<_>>(),
        "looked_at": advice.finalists.iter().map(finalist).collect::<Vec<_>>(),
        "left_out": advice.left_out.iter().map(|(key, why)| json!({ "option": key, "why": why })).collect::<Vec<_>>(),
        "ranks": ranks.collect::<Vec<_>>(),
    })
}
