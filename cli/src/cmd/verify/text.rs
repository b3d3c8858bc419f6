//! Checks in words.

use super::check::{Checked, Comparison, Statistic, UNTRACED};
use crate::output::Out;
use poolsim_reports::quantity::{show_count, show_plural};
use poolsim_sim::parity::Mismatch;
use std::io::Write;

pub fn write(results: &[Checked], out: &mut Out) -> anyhow::Result<()> {
    for checked in results {
        let path = checked.path.display();
        match &checked.result {
            Ok(comparison) => {
                let word = if comparison.mismatches() == 0 { "equal" } else { "DIFFERS" };
                writeln!(out, "{word:<8}{path}: {}", what(comparison))?;
                details(comparison, out)?;
            }
            // The error names the file itself.
            Err(refusal) if refusal.skipped => writeln!(out, "skipped {}", refusal.error)?,
            Err(refusal) => writeln!(out, "ERROR   {}", refusal.error)?,
        }
    }
    if results.len() > 1 {
        writeln!(out, "{}", summary(results))?;
    }
    Ok(())
}

/// What was compared: `75,418 entries, 12 blocks, 122 statistics; 0 mismatches`.
fn what(c: &Comparison) -> String {
    let mut text = format!(
        "{}, {}",
        show_plural(c.parity.entries_compared, "entry"),
        show_plural(c.parity.blocks_compared, "final block"),
    );
    if c.stats_compared > 0 {
        text += &format!(", {} statistics", show_count(c.stats_compared));
    }
    let mismatches = c.mismatches();
    let noun = if mismatches == 1 { "mismatch" } else { "mismatches" };
    text + &format!("; {} {noun}", show_count(mismatches))
}

fn details(c: &Comparison, out: &mut Out) -> std::io::Result<()> {
    for s in &c.stats_untraced {
        let reason = UNTRACED.iter().find(|(name, _)| *name == s.name).map_or("", |(_, why)| why);
        writeln!(out, "        {}: {reason}", numbers(s))?;
    }
    if c.mismatches() == 0 {
        return Ok(());
    }
    writeln!(out, "        settings {}; {}", c.policy, c.machine.words())?;
    for note in &c.notes {
        writeln!(out, "        note: {note}")?;
    }
    if let Some(first) = &c.parity.first_mismatch {
        mismatch(first, &c.state, out)?;
    }
    for line in &c.parity.heap_differences {
        writeln!(out, "        heap: {line}")?;
    }
    for s in &c.stats_differing {
        writeln!(out, "        {}", numbers(s))?;
    }
    Ok(())
}

fn numbers(s: &Statistic) -> String {
    format!("{}: PyTorch {}, simulated {}", s.name, show(s.recorded), show(s.simulated))
}

fn show(n: i64) -> String {
    let sign = if n < 0 { "-" } else { "" };
    format!("{sign}{}", show_count(n.unsigned_abs()))
}

fn mismatch(m: &Mismatch, state: &[String], out: &mut Out) -> std::io::Result<()> {
    writeln!(out, "        first mismatch at entry {}", show_count(m.index))?;
    match &m.recorded {
        Some(e) => writeln!(
            out,
            "          PyTorch   {} {:#x} {} bytes stream {}",
            e.action.name(),
            e.addr,
            show_count(e.size),
            e.stream
        )?,
        None => writeln!(out, "          PyTorch   had done all that it recorded")?,
    }
    match &m.simulated {
        Some(d) => writeln!(
            out,
            "          simulated {} {:#x} {} bytes stream {}",
            d.action.name(),
            d.addr,
            show_count(d.size),
            d.stream
        )?,
        None => writeln!(out, "          simulated was at its end")?,
    }
    for line in state.iter().chain(&m.context) {
        writeln!(out, "          {line}")?;
    }
    Ok(())
}

fn summary(results: &[Checked]) -> String {
    let count = |f: &dyn Fn(&Checked) -> bool| results.iter().filter(|c| f(c)).count() as u64;
    let compared = || results.iter().filter_map(|c| c.result.as_ref().ok());
    let entries: u64 = compared().map(|c| c.parity.entries_compared).sum();
    let mismatches: u64 = compared().map(Comparison::mismatches).sum();
    let mut text = format!(
        "{}: {} equal, {} different",
        show_plural(results.len() as u64, "file"),
        count(&Checked::is_equal),
        count(&|c| c.result.as_ref().is_ok_and(|r| r.mismatches() > 0)),
    );
    let skipped = count(&|c| c.result.as_ref().is_err_and(|r| r.skipped));
    let failed = count(&|c| c.result.as_ref().is_err_and(|r| !r.skipped));
    if skipped > 0 {
        text += &format!(", {skipped} without a history");
    }
    if failed > 0 {
        text += &format!(", {failed} not readable");
    }
    text + &format!(
        "; {} compared, {} mismatches",
        show_plural(entries, "entry"),
        show_count(mismatches)
    )
}
