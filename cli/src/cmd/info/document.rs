//! The facts as JSON.

use super::layers::Used;
use super::{Facts, Recorded};
use serde_json::{Value, json};

pub fn document(facts: &Facts) -> Value {
    let (header, contents) = (&facts.header, &facts.contents);
    let devices: Vec<Value> = facts
        .devices
        .iter()
        .map(|d| json!({ "index": d.index, "entries": d.entries, "segments": d.segments }))
        .collect();
    let streams: Vec<Value> = contents
        .by_stream
        .iter()
        .map(|(stream, requests)| {
            let handle = header.streams.get(usize::from(*stream));
            json!({ "stream": stream, "handle": handle, "requests": requests })
        })
        .collect();
    let pools: Vec<Value> = contents
        .by_pool
        .iter()
        .map(|(pool, requests)| {
            let info = header.pools.get(usize::from(*pool)).cloned().unwrap_or_default();
            json!({
                "pool": pool,
                "id": info.id,
                "no_split": info.flags.no_split,
                "use_on_oom": info.flags.use_on_oom,
                "requests": requests,
            })
        })
        .collect();
    json!({
        "path": facts.path,
        "format": facts.format,
        "compression": facts.compression,
        "source": header.source,
        "framework": header.framework,
        "trace_digest": facts.digest,
        "devices": devices,
        "device": header.device,
        "machine": {
            "name": facts.machine.caps.name,
            "total_bytes": facts.machine.caps.total,
            "total_bytes_said_by": facts.machine.memory_said,
            "memory_fraction": facts.machine.memory_fraction,
            "memory_fraction_said_by": facts.machine.fraction_said,
            "sidecar": facts.sidecar,
        },
        "settings": header.settings,
        "attributes": header.attributes,
        "start_unix_us": header.start_unix_us,
        "span_ns": contents.span.map(|(start, end)| end - start),
        "knows": header.knows,
        "lacks": crate::lacks::lacks(header),
        "starts_empty": header.knows.from_start,
        "preexisting": contents.preexisting,
        "preexisting_freed": contents.preexisting_freed,
        "stacks": facts.stacks,
        "annotations": facts.annotations,
        "streams": streams,
        "pools": pools,
        "events": { "total": contents.events, "by_kind": contents.by_kind },
        "layers": layers(facts),
        "device_used": Used::of(header).map(|used| {
            json!({ "first_bytes": used.first, "peak_bytes": used.peak, "last_bytes": used.last })
        }),
        "requests": {
            "peak_live_bytes": contents.peak_live,
            "final_live_bytes": contents.final_live,
            "requested_in_all_bytes": contents.requested_in_all,
            "largest_bytes": contents.largest_request,
        },
        "recording": facts.recorded.as_ref().map(recording),
        "notes": header.notes,
    })
}

fn recording(recorded: &Recorded) -> Value {
    json!({
        "entries": recorded.entries,
        "by_action": recorded.by_action,
        "unexplained_from": recorded.unexplained_from,
        "final_heap": {
            "segments": recorded.segments,
            "reserved_bytes": recorded.reserved,
            "allocated_bytes": recorded.allocated,
            "pending_bytes": recorded.pending,
            "free_bytes": recorded.free,
        },
    })
}

fn layers(facts: &Facts) -> Vec<Value> {
    let row = |layer: &super::layers::Layer| {
        json!({
            "library": layer.library,
            "requests": layer.requests,
            "requested_bytes": layer.requested,
            "frees": layer.frees,
            "peak_bytes": layer.peak,
            "at_peak_bytes": layer.at_peak,
            "final_bytes": layer.last,
        })
    };
    facts.layers.iter().map(row).collect()
}
