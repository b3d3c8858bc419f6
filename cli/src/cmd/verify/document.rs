//! A check as JSON.

use super::check::{Checked, Comparison, Statistic};
use poolsim_core::Entry;
use poolsim_core::record::Decision;
use poolsim_sim::parity::Mismatch;
use serde_json::{Value, json};

pub fn document(checked: &Checked) -> Value {
    let path = checked.path.display().to_string();
    match &checked.result {
        Ok(comparison) => compared(path, comparison),
        Err(refusal) => json!({
            "path": path,
            "equal": false,
            "skipped": refusal.skipped,
            "error": refusal.error,
            "entries_compared": 0,
            "mismatches": null,
            "first_mismatch": null,
        }),
    }
}

fn compared(path: String, comparison: &Comparison) -> Value {
    let (parity, machine) = (&comparison.parity, &comparison.machine);
    json!({
        "path": path,
        "equal": comparison.mismatches() == 0,
        "policy": comparison.policy,
        "policy_version": comparison.policy_version,
        "device_memory": machine.caps.total,
        "memory_fraction": machine.memory_fraction,
        "entries_compared": parity.entries_compared,
        "blocks_compared": parity.blocks_compared,
        "statistics_compared": comparison.stats_compared,
        "mismatches": comparison.mismatches(),
        "entry_mismatches": parity.entry_mismatches,
        "heap_mismatches": parity.heap_mismatches,
        "statistics_differing": statistics(&comparison.stats_differing),
        "statistics_without_trace": statistics(&comparison.stats_untraced),
        "first_mismatch": first_mismatch(comparison),
        "heap_differences": parity.heap_differences,
        "notes": comparison.notes,
    })
}

fn statistics(statistics: &[Statistic]) -> Vec<Value> {
    let one =
        |s: &Statistic| json!({ "name": s.name, "recorded": s.recorded, "simulated": s.simulated });
    statistics.iter().map(one).collect()
}

fn first_mismatch(comparison: &Comparison) -> Option<Value> {
    match &comparison.unexplained {
        Some(first) => Some(json!({ "entry": first.entry, "what": first.what })),
        None => comparison.parity.first_mismatch.as_ref().map(|m| mismatch(m, &comparison.state)),
    }
}

fn mismatch(mismatch: &Mismatch, state: &[String]) -> Value {
    json!({
        "entry": mismatch.index,
        "event": mismatch.event,
        "recorded": mismatch.recorded.as_ref().map(entry),
        "simulated": mismatch.simulated.as_ref().map(decision),
        "context": mismatch.context,
        "state": state,
    })
}

fn entry(e: &Entry) -> Value {
    json!({ "action": e.action, "address": e.addr, "bytes": e.size, "stream": e.stream })
}

fn decision(d: &Decision) -> Value {
    json!({ "action": d.action, "address": d.addr, "bytes": d.size, "stream": d.stream })
}
