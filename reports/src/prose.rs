//! What a table cannot say: why a request failed, and where the numbers come from.

use crate::quantity::{show_count, show_nanos, show_plural};
use poolsim_core::error::OomCause;
use poolsim_core::record::{OomRecord, Provenance, RunRecord};
use poolsim_core::units::ShowBytes;

/// Why the job ran out of memory: a paragraph on the first refused request, a sentence on the rest.
/// Empty if nothing was refused.
pub fn ooms(label: &str, record: &RunRecord) -> String {
    let Some(first) = record.ooms.first() else { return String::new() };
    let total = record.metric("ooms").map_or(record.ooms.len() as u64, |v| v.as_f64() as u64);
    let mut text = format!("{label}: {}", one_oom(first, &record.provenance));
    if total > 1 {
        text += &format!(" {} were refused in all", show_plural(total, "request"));
        let known = record.ooms.iter().filter(|o| o.recorded).count() as u64;
        if known > 0 && record.ooms.len() as u64 == total {
            text += &format!(", {} of them in the recorded run too", show_count(known));
        }
        text.push('.');
    }
    text.push('\n');
    text
}

fn one_oom(oom: &OomRecord, provenance: &Provenance) -> String {
    let (requested, rounded) =
        (ShowBytes(oom.requested).to_string(), ShowBytes(oom.rounded).to_string());
    let asked = if rounded == requested {
        requested
    } else {
        format!("{requested} (rounded to {rounded})")
    };
    let pool =
        if oom.pool.is_private() { format!(" from pool {}", oom.pool) } else { String::new() };
    let mut text = format!(
        "out of memory at event {}, {} into the trace: {asked} asked on stream {}{pool}.",
        show_count(oom.event),
        show_nanos(oom.at),
        oom.stream
    );
    text += &format!(
        " {} were reserved: {} in use and {} free",
        ShowBytes(oom.reserved),
        ShowBytes(oom.active),
        ShowBytes(oom.cached)
    );
    text += &if oom.cached == 0 {
        ".".to_string()
    } else if oom.largest_free < oom.rounded {
        format!(
            ", but the largest free block had {}{}.",
            ShowBytes(oom.largest_free),
            if oom.cached >= oom.rounded {
                ": enough memory, in pieces that are too small"
            } else {
                ""
            }
        )
    } else {
        // A free block of another stream, or one that the policy's rules keep for larger requests.
        format!(
            ". A free block of {} was large enough, but the policy's rules kept it from this request \
             (another stream's, or set aside for larger requests).",
            ShowBytes(oom.largest_free)
        )
    };
    text + " " + &why_no_more(oom, provenance)
}

fn why_no_more(oom: &OomRecord, provenance: &Provenance) -> String {
    match oom.cause {
        OomCause::DeviceFull => {
            format!("The device had {} left.", ShowBytes(oom.device_free))
        }
        OomCause::Limit => {
            let bound = match (provenance.memory_fraction, &provenance.device) {
                (Some(fraction), Some(device)) => format!(
                    "the memory fraction allows {}",
                    ShowBytes((fraction * device.total as f64) as u64)
                ),
                _ => "the policy has a limit of its own".into(),
            };
            format!("More could not be taken from the device: {bound}.")
        }
        OomCause::TooLarge => "The policy can never serve a request of this size.".into(),
    }
}

/// Where the numbers come from: trace, machine, policies, profile, placement. One line each. `machine` says what
/// was simulated and who said so.
pub fn provenance(runs: &[(&str, &RunRecord)], machine: &str) -> String {
    let Some((_, first)) = runs.first() else { return String::new() };
    let p = &first.provenance;
    let counts: Vec<String> = ["events", "allocs"]
        .iter()
        .filter_map(|name| Some((name, first.metric(name)?)))
        .map(|(name, value)| format!("{} {name}", show_count(value.as_f64() as u64)))
        .collect();
    let mut lines = vec![
        format!(
            "trace      {}, {} (digest {})",
            p.trace,
            counts.join(", "),
            short(&p.trace_digest)
        ),
        format!("machine    {machine}"),
    ];
    if let Some(capacity) = p.capacity {
        lines.push(format!("capacity   {} of it are there for this job", ShowBytes(capacity)));
    }
    lines.push(format!("placement  {}", placement(runs)));
    lines.push(match &first.measured {
        None => format!("times      profile {}", p.device_profile),
        Some(m) => format!(
            "times      {}; means of {} after {} to warm up, {}",
            p.device_profile,
            show_plural(m.repeats.into(), "run"),
            m.warmup,
            m.mode
        ),
    });
    for (label, run) in runs {
        let p = &run.provenance;
        let mut line = format!("policy     {}", p.policy);
        if *label != p.policy {
            line += &format!(" (as {label})");
        }
        if !p.policy_version.is_empty() {
            line += &format!(", rules of {}", p.policy_version);
        }
        lines.push(line);
    }
    lines.push(format!("poolsim    {}", p.poolsim_version));
    lines.join("\n") + "\n"
}

fn placement(runs: &[(&str, &RunRecord)]) -> String {
    let mut kinds: Vec<&str> = runs.iter().map(|(_, r)| r.provenance.placement.as_str()).collect();
    kinds.dedup();
    let words = kinds.into_iter().map(|kind| match kind {
        "recorded" => "addresses as recorded",
        "driver-model" => "addresses by the driver model",
        "driver" => "addresses by the driver",
        other => other,
    });
    words.collect::<Vec<_>>().join("; ")
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolsim_core::record::Value;
    use poolsim_core::units::{GIB, MIB, PoolId, StreamId};

    fn refused(cause: OomCause) -> RunRecord {
        let oom = OomRecord {
            event: 1672,
            at: 7_100_000_000,
            requested: 448 * MIB,
            rounded: 448 * MIB,
            stream: StreamId(0),
            pool: PoolId::DEFAULT,
            cause,
            active: 11_661_000_000,
            reserved: 13_331_595_264,
            device_free: 113 * GIB,
            largest_free: 320 * MIB,
            cached: 1_670_595_264,
            recorded: true,
        };
        let mut record = RunRecord { ooms: vec![oom], ..RunRecord::default() };
        record.set("ooms", Value::Int(29));
        record
    }

    #[test]
    fn an_oom_says_what_was_asked_what_was_free_and_why_it_did_not_fit() {
        insta::assert_snapshot!(ooms("pow2d4", &refused(OomCause::Limit)), @"pow2d4: out of memory at event 1,672, 7.10 s into the trace: 448.00 MiB asked on stream 0. 12.42 GiB were reserved: 10.86 GiB in use and 1.56 GiB free, but the largest free block had 320.00 MiB: enough memory, in pieces that are too small. More could not be taken from the device: the policy has a limit of its own. 29 requests were refused in all.");
        let device_full = ooms("pow2d4", &refused(OomCause::DeviceFull));
        assert!(device_full.contains("The device had 113.00 GiB left."), "{device_full}");
    }
}
