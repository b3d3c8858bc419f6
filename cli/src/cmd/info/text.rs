//! The facts in words.

use super::layers::Used;
use super::{Facts, Recorded};
use crate::lacks::lacks;
use crate::output::{Out, paragraph};
use poolsim_core::units::ShowBytes;
use poolsim_reports::quantity::{show_count, show_nanos, show_plural};
use std::io::Write;

pub fn write(facts: &Facts, out: &mut Out) -> anyhow::Result<()> {
    writeln!(out, "{}", facts.path)?;
    head(facts, out)?;
    if facts.contents.events > 0 {
        events(facts, out)?;
    }
    layers(facts, out)?;
    if let Some(recorded) = &facts.recorded {
        recording(recorded, out)?;
    }
    let lacking = if facts.contents.events > 0 { lacks(&facts.header) } else { Vec::new() };
    list("Not known", lacking.into_iter(), out)?;
    list("Notes", facts.header.notes.iter().map(String::as_str), out)
}

/// Sentences under a heading; nothing if there are none.
fn list<'t>(
    heading: &str,
    lines: impl Iterator<Item = &'t str>,
    out: &mut Out,
) -> anyhow::Result<()> {
    for (n, text) in lines.enumerate() {
        if n == 0 {
            writeln!(out, "\n{heading}")?;
        }
        writeln!(out, "  - {}", paragraph(text, 4).trim())?;
    }
    Ok(())
}

fn line(out: &mut Out, name: &str, text: impl std::fmt::Display) -> std::io::Result<()> {
    writeln!(out, "  {name:<16}{text}")
}

fn head(facts: &Facts, out: &mut Out) -> anyhow::Result<()> {
    let header = &facts.header;
    let compressed =
        facts.compression.map(|c| format!(", compressed with {c}")).unwrap_or_default();
    line(out, "format", format_args!("{}{compressed}", facts.format))?;
    let framework = header.framework.as_ref().map(|f| format!(", {f}")).unwrap_or_default();
    let source = if header.source.is_empty() { "not said" } else { &header.source };
    line(out, "source", format_args!("{source}{framework}"))?;
    line(out, "device", device(facts))?;
    line(out, "machine", facts.machine.words())?;
    line(
        out,
        "settings",
        match header.settings.as_deref() {
            None => "not recorded",
            Some("") => "PyTorch's defaults",
            Some(settings) => settings,
        },
    )?;
    if let Some((start, end)) = facts.contents.span {
        let since =
            header.start_unix_us.map(|us| format!(" from {}", date(us))).unwrap_or_default();
        line(out, "time", format_args!("{}{since}", show_nanos(end - start)))?;
    }
    line(out, "history", history(facts))?;
    let stacks = match facts.stacks {
        0 => "none".into(),
        n => format!("{} distinct", show_count(n)),
    };
    line(out, "stacks", stacks)?;
    line(out, "annotations", show_count(facts.annotations))?;
    Ok(())
}

fn device(facts: &Facts) -> String {
    let chosen = facts.header.device;
    let others: Vec<String> = facts
        .devices
        .iter()
        .filter(|d| d.index != chosen && (d.entries > 0 || d.segments > 0))
        .map(|d| format!("{} ({})", d.index, show_plural(d.entries, "entry")))
        .collect();
    if others.is_empty() {
        return chosen.to_string();
    }
    format!("{chosen}; the file also holds {}: choose with --device", others.join(", "))
}

fn history(facts: &Facts) -> String {
    if facts.contents.events == 0 {
        return "none: the file holds a state only, there is nothing to replay".into();
    }
    if facts.header.knows.from_start {
        return "from an empty allocator on".into();
    }
    format!(
        "starts late (ring buffer cut, or recording switched on mid-run): {} before its first event, {} of them \
         freed in it",
        show_plural(facts.contents.preexisting, "live allocation"),
        show_count(facts.contents.preexisting_freed)
    )
}

fn events(facts: &Facts, out: &mut Out) -> anyhow::Result<()> {
    let contents = &facts.contents;
    writeln!(out, "\nEvents            {}", show_count(contents.events))?;
    for (kind, count) in &contents.by_kind {
        line(out, kind, show_count(*count))?;
    }
    writeln!(out, "\nRequests")?;
    line(out, "peak live", ShowBytes(contents.peak_live))?;
    let curve = contents.curve.line(contents.peak_live);
    line(out, "live over time", curve.trim_end())?;
    line(out, "live at end", ShowBytes(contents.final_live))?;
    line(out, "largest", ShowBytes(contents.largest_request))?;
    line(out, "in all", ShowBytes(contents.requested_in_all))?;
    for (stream, requests) in &contents.by_stream {
        let handle = match facts.header.streams.get(usize::from(*stream)) {
            Some(0) => " (the default stream)".to_string(),
            Some(handle) => format!(" (handle {handle:#x})"),
            None => String::new(),
        };
        let name = format!("stream {stream}");
        line(out, &name, format_args!("{}{handle}", show_plural(*requests, "request")))?;
    }
    if contents.by_pool.keys().any(|pool| *pool != 0) {
        for (pool, requests) in &contents.by_pool {
            let info = facts.header.pools.get(usize::from(*pool)).cloned().unwrap_or_default();
            let flags = match (info.flags.no_split, info.flags.use_on_oom) {
                (true, true) => ", no_split, use_on_oom",
                (true, false) => ", no_split",
                (false, true) => ", use_on_oom",
                (false, false) => "",
            };
            let name = format!("pool {pool}");
            let requests = show_plural(*requests, "request");
            line(out, &name, format_args!("{requests} (id {}, {}{flags})", info.id.0, info.id.1))?;
        }
    }
    Ok(())
}

/// Whose memory it is, and what of the device's memory that explains.
fn layers(facts: &Facts, out: &mut Out) -> anyhow::Result<()> {
    if facts.layers.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nMemory by library that called the driver")?;
    for layer in &facts.layers {
        writeln!(
            out,
            "  {:<28}{} at most, {} when all together held most, {} at the end; {}",
            layer.library,
            ShowBytes(layer.peak),
            ShowBytes(layer.at_peak),
            ShowBytes(layer.last),
            show_plural(layer.requests, "request"),
        )?;
    }
    if let Some(host) =
        facts.header.attributes.get("host memory peak").and_then(|text| text.parse().ok())
    {
        line(out, "pinned host", format_args!("{} at most, beside the device's", ShowBytes(host)))?;
    }
    let Some(used) = Used::of(&facts.header) else { return Ok(()) };
    let peak = facts.contents.peak_live;
    let rest = used.peak.saturating_sub(used.first).saturating_sub(peak);
    writeln!(out, "\nThe device's memory, as nvidia-smi shows it")?;
    line(
        out,
        "at the start",
        format_args!("{}: other processes, before this one's context", ShowBytes(used.first)),
    )?;
    line(out, "calls above", format_args!("{} at most", ShowBytes(peak)))?;
    line(
        out,
        "the rest",
        format_args!(
            "{}: context, modules, rounding, and what other processes took meanwhile",
            ShowBytes(rest)
        ),
    )?;
    line(out, "at most", ShowBytes(used.peak))?;
    line(out, "at the end", ShowBytes(used.last))?;
    Ok(())
}

fn recording(recorded: &Recorded, out: &mut Out) -> anyhow::Result<()> {
    writeln!(out, "\nRecorded          {}", show_plural(recorded.entries, "entry"))?;
    for (action, count) in &recorded.by_action {
        line(out, action, show_count(*count))?;
    }
    writeln!(out, "\nHeap at the end")?;
    line(out, "segments", show_count(recorded.segments))?;
    line(out, "reserved", ShowBytes(recorded.reserved))?;
    line(out, "allocated", ShowBytes(recorded.allocated))?;
    if recorded.pending > 0 {
        line(out, "pending", ShowBytes(recorded.pending))?;
    }
    line(out, "free", ShowBytes(recorded.free))?;
    Ok(())
}

/// Microseconds since 1970 as `2026-11-30 22:05:17 UTC`.
fn date(us: u64) -> String {
    let seconds = us / 1_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Gregorian calendar from a day count, with years that start in March so that leap days come last.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates_follow_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_164_800, "2024-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(date(seconds * 1_000_000), text);
        }
    }
}
