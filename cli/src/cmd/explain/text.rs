//! The explanation for people.

use super::tables::{further, holdings, impossible, show_phases};
use super::{Told, remedies};
use crate::output::{Out, paragraph};
use poolsim_advice::explain::{Asked, Finding, Miss, Owner, Scene, Unusable};
use poolsim_core::Bytes;
use poolsim_core::error::OomCause;
use poolsim_core::units::ShowBytes;
use poolsim_reports::quantity::{show_count, show_nanos, show_plural};
use poolsim_reports::table::{finish, numbers_right, plain_table, words_left};
use std::io::{self, Write};

pub(super) fn para(text: &str, out: &mut Out) -> io::Result<()> {
    out.write_all(paragraph(text, 0).as_bytes())
}

pub(super) fn requests_are(n: u64) -> String {
    let verb = if n == 1 { "is" } else { "are" };
    format!("{} {verb}", show_plural(n, "request"))
}

pub(super) fn write(told: &Told, out: &mut Out) -> anyhow::Result<()> {
    head(told, out)?;
    let explanation = &told.explanation;
    for warning in &explanation.warnings {
        para(&format!("The setting itself: {warning}."), out)?;
    }
    if explanation.is_impossible() {
        impossible(told, out)?;
        return Ok(());
    }
    match (explanation.finding, explanation.scenes.first()) {
        (Finding::Refused, Some(scene)) => refused(told, scene, out)?,
        (Finding::FarAbove, Some(scene)) => far_above(told, scene, out)?,
        _ => fine(told, out)?,
    }
    if explanation.finding != Finding::Fine {
        writeln!(out, "\nWhat would have helped")?;
        remedies::write(told, out)?;
        writeln!(out, "\nWho holds the memory then (inferred)")?;
        holdings(told, out)?;
    }
    if let Some(phases) = &explanation.phases {
        writeln!(out, "\nPhases")?;
        show_phases(told, phases, out)?;
    }
    if explanation.ooms.len() > 1 {
        writeln!(out, "\nFurther refusals")?;
        further(told, out)?;
    }
    if told.asked.job.starts_late() {
        writeln!(out)?;
        para(
            "The trace starts late, and the run started from the recorded heap. Other settings and other places for tensors cannot be \
             tried from there: only what emptying the cache would have done. `poolsim advise` compares settings from an empty heap.",
            out,
        )?;
    }
    if !told.asked.job.trace.header.knows.stacks {
        writeln!(out)?;
        para(
            "The trace holds no stacks, so owners are told apart by size only; record with stacks=\"python\" to see who they are.",
            out,
        )?;
    }
    Ok(())
}

fn head(told: &Told, out: &mut Out) -> io::Result<()> {
    let asked = &told.asked;
    let events = show_plural(asked.job.trace.events.len() as u64, "event");
    let digest = asked.digest.get(..12).unwrap_or(&asked.digest);
    writeln!(out, "trace      {}, {events} (digest {digest})", asked.path.display())?;
    writeln!(out, "machine    {}", asked.machine)?;
    if let Some(capacity) = asked.job.capacity {
        writeln!(out, "capacity   {} of it are there for this job", ShowBytes(capacity))?;
    }
    writeln!(out, "settings   {}\n", told.explanation.setting.title())
}

/// Where in the program a scene is.
fn whereabouts(told: &Told, index: usize, scene: &Scene) -> String {
    let mut text = format!("event {}", show_count(scene.event));
    if told.asked.job.trace.header.knows.times {
        text += &format!(", {} into the trace", show_nanos(scene.at));
    }
    if let Some(Some((n, of))) = told.explanation.iterations.get(index) {
        text += &format!(", in iteration {n} of {of}");
    }
    if let Some(phase) = scene.phases.first() {
        text += &format!(", in {phase}");
    }
    text
}

fn refused(told: &Told, scene: &Scene, out: &mut Out) -> io::Result<()> {
    let Some(asked) = &scene.asked else { return Ok(()) };
    let [plain, rounded] = [asked.requested, asked.rounded].map(|n| ShowBytes(n).to_string());
    let rounded = if plain == rounded { String::new() } else { format!(" (rounded to {rounded})") };
    let who = if asked.place.is_empty() { String::new() } else { format!(" by {}", asked.place) };
    let pool = if asked.pool > 0 { format!(" from pool {}", asked.pool) } else { String::new() };
    let recorded = if asked.recorded { ", when it was recorded and here" } else { "" };
    let mut text = format!(
        "A request for {plain}{rounded} on stream {}{pool}{who} was refused{recorded}, at {}.",
        asked.stream,
        whereabouts(told, 0, scene)
    );
    text += &format!(
        " The program held {}; {} were reserved, and {}.",
        ShowBytes(scene.live),
        ShowBytes(scene.reserved),
        room(told, asked)
    );
    para(&text, out)?;
    para(&reason(scene), out)?;
    writeln!(out, "\nReserved but of no use to it")?;
    unusable(told, scene, out)?;
    if let Some(miss) = &scene.miss {
        writeln!(out)?;
        para(&miss_words(told, miss), out)?;
    } else {
        writeln!(out)?;
        let text = format!(
            "No range of its stream and pool came near to holding {}: only memory from the device could have served it.",
            ShowBytes(asked.rounded)
        );
        para(&text, out)?;
    }
    show_pinned(told, scene, out)
}

/// What the device could still give, and why that was not enough.
fn room(told: &Told, asked: &Asked) -> String {
    let left = ShowBytes(asked.room);
    let who = match asked.cause {
        OomCause::Limit if told.asked.job.memory_fraction.is_some() => {
            "the memory fraction allowed"
        }
        OomCause::Limit => "the limit allowed",
        _ => "the device had",
    };
    let enough = asked.room >= asked.rounded && asked.room < asked.segment;
    match asked.cause {
        OomCause::TooLarge => "no allocator of this kind serves so large a request".into(),
        _ if enough => format!(
            "{who} {left} more: enough for the request, but the allocator takes whole segments, of {} for this size",
            ShowBytes(asked.segment)
        ),
        _ => format!("{who} {left} more"),
    }
}

/// What most of the memory that is held and not used comes down to, in a sentence.
fn reason(scene: &Scene) -> String {
    let largest = scene.unusable.iter().max_by_key(|part| part.bytes);
    let free = largest.map_or(0, |part| part.bytes);
    if scene.pending > free.max(scene.rounding) {
        return format!(
            "Why: {} were freed already, but work on other streams still uses them (record_stream), so they cannot be used again yet.",
            ShowBytes(scene.pending)
        );
    }
    if scene.rounding > free {
        return format!(
            "Why: blocks are {} larger than what was asked for: that is rounding (roundup_power2_divisions), or blocks that are not \
             split.",
            ShowBytes(scene.rounding)
        );
    }
    let Some(largest) = largest else {
        return "Why: nothing that is held is free; there is just not enough memory for one more segment.".into();
    };
    let bytes = ShowBytes(largest.bytes);
    match largest.why {
        Unusable::Pieces => format!(
            "Why: {bytes} are free but lie in pieces, in ranges that also hold blocks in use. Such a range cannot be given back, and \
             its pieces are too small for larger requests."
        ),
        Unusable::SetAside => format!(
            "Why: {bytes} are free in blocks that max_split_size_mb keeps for requests of its size and more."
        ),
        Unusable::OtherStreams => format!(
            "Why: {bytes} are free, but in ranges of other streams; a stream only uses blocks of its own."
        ),
        Unusable::PrivatePools => format!(
            "Why: {bytes} are free, but belong to private pools (a MemPool, or a CUDA graph's), which other requests do not use."
        ),
        Unusable::OtherClass => format!(
            "Why: {bytes} are free, but in segments kept for requests up to 1 MiB, or for larger ones."
        ),
        Unusable::Idle => format!(
            "Why: {bytes} are cached ranges that nothing uses. A range serves only requests that are no larger than it, so a job whose \
             sizes change leaves more and more of them; they are given back when memory runs out, or by empty_cache."
        ),
    }
}

fn why(part: Unusable) -> &'static str {
    match part {
        Unusable::Pieces => "in pieces, between blocks in use",
        Unusable::SetAside => "set aside for larger requests (max_split_size_mb)",
        Unusable::OtherStreams => "of other streams",
        Unusable::PrivatePools => "of other pools",
        Unusable::OtherClass => "kept apart for small or for large requests",
        Unusable::Idle => "idle ranges (empty_cache would give them back)",
    }
}

fn unusable(told: &Told, scene: &Scene, out: &mut Out) -> io::Result<()> {
    let mut table = plain_table();
    table.set_header(["", "bytes", "ranges"]);
    let mut row = |name: &str, bytes: Bytes, ranges: String| {
        table.add_row([name.to_string(), ShowBytes(bytes).to_string(), ranges]);
    };
    for part in &scene.unusable {
        row(&format!("free, {}", why(part.why)), part.bytes, show_count(part.ranges));
    }
    if scene.pending > 0 {
        row("freed, but other streams still use it", scene.pending, String::new());
    }
    if scene.rounding > 0 {
        row("blocks above what was asked for", scene.rounding, String::new());
    }
    row("held by the program", scene.live, String::new());
    row("reserved", scene.reserved, String::new());
    if let Some(outside) = told.asked.outside.filter(|&bytes| bytes > 0) {
        row("beside it: taken outside the allocator", outside, String::new());
    }
    numbers_right(&mut table);
    write!(out, "{}", finish(&table))
}

fn owner_words(told: &Told, owner: &Owner) -> String {
    let end = told.asked.job.trace.events.len() as u64;
    let until = match owner.freed {
        None => "kept to the end".to_string(),
        Some(event) if event >= end => "kept to the end".into(),
        Some(event) => format!("freed by event {}", show_count(event)),
    };
    let since = owner.births.first().map_or("from before the trace".into(), |event| {
        format!("since event {}", show_count(*event))
    });
    let what = show_plural(owner.blocks, "block");
    let place = if owner.place.is_empty() { String::new() } else { format!(" of {}", owner.place) };
    format!("{what}{place}, {} ({since}, {until})", ShowBytes(owner.bytes))
}

fn miss_words(told: &Told, miss: &Miss) -> String {
    if miss.pins.is_empty() {
        return format!(
            "Nearest miss: a free stretch of {} was long enough; the rules of the settings kept it from this request.",
            ShowBytes(miss.free_bytes)
        );
    }
    let named: Vec<String> =
        miss.pins.iter().take(3).map(|owner| owner_words(told, owner)).collect();
    let more = match miss.pins.len() {
        0..=3 => String::new(),
        n => format!(", and {}", show_plural(n as u64 - 3, "further owner")),
    };
    format!(
        "Nearest miss: in a range of {}, {} in use pin {} of free memory; without them the request had fitted. They are {}{more}.",
        ShowBytes(miss.range_bytes),
        ShowBytes(miss.pinned_bytes),
        ShowBytes(miss.free_bytes),
        named.join("; ")
    )
}

fn show_pinned(told: &Told, scene: &Scene, out: &mut Out) -> io::Result<()> {
    if scene.pinned.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nRanges with most memory that is free and pinned")?;
    let mut table = plain_table();
    table.set_header(["range", "free", "pinned by"]);
    for range in &scene.pinned {
        let owner = range.owners.first().map_or_else(String::new, |o| owner_words(told, o));
        let more = match range.owners.len() {
            0 | 1 => String::new(),
            n => format!("; {} more", show_plural(n as u64 - 1, "owner")),
        };
        table.add_row([
            ShowBytes(range.range_bytes).to_string(),
            ShowBytes(range.free_bytes).to_string(),
            format!("{owner}{more}"),
        ]);
    }
    numbers_right(&mut table);
    words_left(&mut table, 2);
    write!(out, "{}", finish(&table))
}

fn far_above(told: &Told, scene: &Scene, out: &mut Out) -> io::Result<()> {
    let m = &told.explanation.measured;
    let text = format!(
        "Nothing was refused, but {} were reserved at the peak, while the program never held more than {} at once. The peak was at {}.",
        ShowBytes(m.peak_reserved_bytes),
        ShowBytes(told.explanation.needs.live_bytes),
        whereabouts(told, 0, scene)
    );
    para(&text, out)?;
    para(&reason(scene), out)?;
    writeln!(out, "\nReserved then")?;
    unusable(told, scene, out)?;
    show_pinned(told, scene, out)
}

fn fine(told: &Told, out: &mut Out) -> io::Result<()> {
    let m = &told.explanation.measured;
    let retries = match m.retries {
        0 => String::new(),
        n => format!(
            " The cache had to be given back {} for that, which costs time: {} in device calls.",
            show_plural(n, "time"),
            show_nanos(m.device_time_ns)
        ),
    };
    let text = format!(
        "Nothing was refused, and {} reserved at the peak are close to the {} that the program held: there is nothing to explain.\
         {retries} With --capacity it says what would happen on less memory.",
        ShowBytes(m.peak_reserved_bytes),
        ShowBytes(told.explanation.needs.live_bytes)
    );
    para(&text, out)
}
