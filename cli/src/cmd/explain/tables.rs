//! Who holds the memory, phases, further refusals, and what would free enough.

use super::Told;
use super::text::{para, requests_are};
use crate::output::{Out, paragraph};
use poolsim_advice::Measured;
use poolsim_advice::explain::{Emptied, Estimate, Holding, Phases, Reset, cost};
use poolsim_core::Bytes;
use poolsim_core::units::ShowBytes;
use poolsim_reports::quantity::{show_count, show_nanos, show_plural};
use poolsim_reports::table::{finish, numbers_right, plain_table, words_left};
use std::io::{self, Write};

pub(super) fn impossible(told: &Told, out: &mut Out) -> io::Result<()> {
    let needs = &told.explanation.needs;
    let missing = needs.live_bytes.saturating_sub(needs.limit_bytes);
    let text = format!(
        "No setting can help: the program needs {} at once ({} bytes) and can have {} ({} bytes). {} ({} bytes) have to go, whatever the \
         allocator does.",
        ShowBytes(needs.live_bytes),
        show_count(needs.live_bytes),
        ShowBytes(needs.limit_bytes),
        show_count(needs.limit_bytes),
        ShowBytes(missing),
        show_count(missing),
    );
    para(&text, out)?;
    let at = told.explanation.most.unwrap_or(0);
    writeln!(
        out,
        "\nWho holds the memory when most is needed, at event {} (inferred)",
        show_count(at)
    )?;
    holdings(told, out)?;
    if told.explanation.estimates.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nWhat would free enough (estimates, computed from the sizes above)")?;
    for estimate in &told.explanation.estimates {
        let text = paragraph(&estimate_words(estimate, missing), 4);
        write!(out, "  - {}", text.trim_start())?;
    }
    Ok(())
}

fn estimate_words(estimate: &Estimate, missing: Bytes) -> String {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let enough = |enough: bool| if enough { "enough" } else { "not enough by itself" };
    match *estimate {
        Estimate::Checkpointing { held_bytes, share, .. } if share <= 1.0 => format!(
            "Activation checkpointing: {} of the {} of activations would have to be computed again instead of kept, {}.",
            ShowBytes(missing),
            ShowBytes(held_bytes),
            percent(share)
        ),
        Estimate::Checkpointing { held_bytes, .. } => format!(
            "Activation checkpointing is not enough by itself: activations hold only {}.",
            ShowBytes(held_bytes)
        ),
        Estimate::MicroBatch { largest_share: Some(share), held_bytes } => format!(
            "A smaller micro-batch: what grows with it holds {}; at most {} of the present size fits.",
            ShowBytes(held_bytes),
            percent(share)
        ),
        Estimate::MicroBatch { largest_share: None, held_bytes } => format!(
            "A smaller micro-batch is not enough by itself: what grows with it holds {}.",
            ShowBytes(held_bytes)
        ),
        Estimate::HalfPrecision { held_bytes, bytes, enough: is } => format!(
            "Half the precision of parameters, gradients and optimizer state ({} now) frees {}: {}.",
            ShowBytes(held_bytes),
            ShowBytes(bytes),
            enough(is)
        ),
        Estimate::Offload { category, bytes, enough: is } => format!(
            "Offloading all {} to the host frees {}: {}.",
            category.title(),
            ShowBytes(bytes),
            enough(is)
        ),
    }
}

pub(super) fn holdings(told: &Told, out: &mut Out) -> io::Result<()> {
    let mut table = plain_table();
    table.set_header(["what", "bytes", "blocks", "most of it by"]);
    for Holding { category, bytes, blocks, places } in &told.explanation.holdings {
        let names: Vec<&str> =
            places.iter().map(|o| o.place.as_str()).filter(|p| !p.is_empty()).collect();
        table.add_row([
            category.title().to_string(),
            ShowBytes(*bytes).to_string(),
            show_count(*blocks),
            names.first().map_or_else(String::new, ToString::to_string),
        ]);
    }
    numbers_right(&mut table);
    words_left(&mut table, 3);
    write!(out, "{}", finish(&table))
}

/// Iterations that are listed.
const LISTED: usize = 8;

pub(super) fn show_phases(told: &Told, phases: &Phases, out: &mut Out) -> io::Result<()> {
    let mut table = plain_table();
    table.set_header([
        "iteration",
        "from event",
        "in use\n(peak)",
        "reserved\n(peak)",
        "reserved\nat its end",
    ]);
    let all = &phases.phases;
    let mut order: Vec<usize> = (0..all.len()).collect();
    // The first, the last, and those with the highest reservations.
    order.sort_by_key(|&i| (i != 0 && i + 1 != all.len(), std::cmp::Reverse(all[i].reserved), i));
    order.truncate(LISTED);
    order.sort_unstable();
    for phase in order.iter().map(|&i| &all[i]) {
        table.add_row([
            phase.iteration.to_string(),
            show_count(phase.from),
            ShowBytes(phase.active).to_string(),
            ShowBytes(phase.reserved).to_string(),
            ShowBytes(phase.reserved_at_end).to_string(),
        ]);
    }
    numbers_right(&mut table);
    write!(out, "{}", finish(&table))?;
    let number = |event: u64| all.iter().find(|p| p.from == event).map_or(0, |p| p.iteration);
    let mut text = format!("Told apart by {}.", phases.told_apart_by);
    let refused = told.explanation.measured.ooms;
    let effect = |e: &Emptied| {
        let saved = ShowBytes(e.saves_bytes.unsigned_abs());
        let what = match (refused, e.measured.ooms) {
            (0, _) if e.saves_bytes >= 0 => format!("lowers the peak by {saved}"),
            (0, _) => format!("raises the peak by {saved}"),
            (_, 0) => "lets every request through".into(),
            (before, n) => format!(
                "leaves {} refused instead of {}",
                show_plural(n, "request"),
                show_count(before)
            ),
        };
        format!("{what}, at {} more in device calls", show_nanos(cost(e)))
    };
    if let Some(everywhere) = &phases.everywhere {
        let word = if everywhere.pays { "pays" } else { "hurts" };
        text += &format!(
            " torch.cuda.empty_cache() between all iterations {word}: it {}.",
            effect(everywhere)
        );
    }
    match phases.once.first().filter(|e| e.pays) {
        Some(best) => {
            text += &format!(
                " Once, before iteration {}, it {}.",
                number(best.event.unwrap_or(0)),
                effect(best)
            );
        }
        None => text += " Once, before any single iteration that was tried, it does not pay.",
    }
    if let Some(reset) = phases.resets.first() {
        text += &reset_words(told, reset);
    }
    para(&text, out)
}

/// A setting that helps only until it is reset.
fn reset_words(told: &Told, reset: &Reset) -> String {
    let said = |m: &Measured| match told.explanation.measured.ooms {
        0 => format!("a peak of {}", ShowBytes(m.peak_reserved_bytes)),
        _ => format!("{} refused", show_plural(m.ooms, "request")),
    };
    format!(
        " {} helps only at first: in force up to iteration {}, then reset by torch.cuda.memory._set_allocator_settings(\"\"), it \
         comes to {}; throughout to {}, without it to {}.",
        reset.conf,
        reset.iteration,
        said(&reset.measured),
        said(&reset.throughout),
        said(&told.explanation.measured)
    )
}

/// Refusals that are listed.
const REFUSALS: usize = 8;

pub(super) fn further(told: &Told, out: &mut Out) -> io::Result<()> {
    let ooms = &told.explanation.ooms;
    let mut table = plain_table();
    table.set_header([
        "event",
        "asked",
        "in use",
        "reserved",
        "largest\nfree",
        "pinned at the\nnearest miss",
    ]);
    for oom in ooms.iter().skip(1).take(REFUSALS) {
        let scene = told.explanation.scenes.iter().find(|scene| scene.event == oom.event);
        let pinned = scene.and_then(|s| s.miss.as_ref()).map(|miss| miss.pinned_bytes);
        table.add_row([
            show_count(oom.event),
            ShowBytes(oom.requested).to_string(),
            ShowBytes(oom.active).to_string(),
            ShowBytes(oom.reserved).to_string(),
            ShowBytes(oom.largest_free).to_string(),
            pinned.map_or("-".into(), |bytes| ShowBytes(bytes).to_string()),
        ]);
    }
    numbers_right(&mut table);
    write!(out, "{}", finish(&table))?;
    let all = told.explanation.measured.ooms;
    para(&format!("{} refused in all.", requests_are(all)), out)
}
