//! From the live bound to the peak reservation, a bar a cause.

use super::{Drawn, LABEL, PALETTE, WIDTH, colour, font, short, words};
use crate::data::{RunSet, Waterfall};
use crate::quantity::show_signed;
use plotters::coord::Shift;
use plotters::prelude::*;
use poolsim_core::units::ShowBytes;

/// Pixels that a bar takes, and that a run's name takes.
const ROW: i32 = 22;

/// Where bars start, and how much room their numbers have.
const SIDES: (i32, i32) = (240, 130);

/// A bar of a waterfall.
struct Step {
    title: &'static str,
    from: i64,
    to: i64,
    text: String,
    /// Whether it is the bound or the peak.
    end: bool,
}

/// The bars of a waterfall, each starting where the one before it ends.
fn steps(found: &Waterfall) -> Vec<Step> {
    let whole = |title, bytes: u64| {
        let text = ShowBytes(bytes).to_string();
        Step { title, from: 0, to: bytes as i64, text, end: true }
    };
    let mut at = found.live as i64;
    let mut steps = vec![whole("live bound", found.live)];
    let causes = found.causes.iter().map(|m| (m.cause.title(), m.peak.map(|_| m.bytes)));
    for (title, bytes) in causes.chain([("interaction", Some(found.interaction))]) {
        let (from, text) = (at, bytes.map_or("not separable".into(), show_signed));
        at += bytes.unwrap_or(0);
        steps.push(Step { title, from, to: at, text, end: false });
    }
    steps.push(whole("peak reserved", found.peak));
    steps
}

/// Pixels that all of them take.
pub fn height(set: &RunSet) -> u32 {
    let known = set.runs.iter().filter_map(|run| run.waterfall.as_ref());
    known.map(|found| (steps(found).len() as u32 + 2) * ROW as u32).sum::<u32>() + 24
}

/// Draws one for each run that has one.
pub fn draw<DB: DrawingBackend>(set: &RunSet, area: &DrawingArea<DB, Shift>) -> Drawn {
    let known = set.runs.iter().enumerate();
    let known: Vec<_> = known.filter_map(|(n, r)| Some((n, r, r.waterfall.as_ref()?))).collect();
    if known.is_empty() {
        return Ok(false);
    }
    let all: Vec<Step> = known.iter().flat_map(|(_, _, found)| steps(found)).collect();
    let ends = || all.iter().flat_map(|step| [step.from, step.to]);
    let (low, high) = (ends().min().unwrap_or(0).min(0), ends().max().unwrap_or(1).max(1));
    let (left, right) = (SIDES.0, WIDTH as i32 - SIDES.1);
    let x = |bytes: i64| {
        left + ((bytes - low) as f64 / (high - low) as f64 * f64::from(right - left)) as i32
    };
    area.fill(&WHITE).map_err(words)?;
    let mut top = 12;
    for (n, run, found) in known {
        let ink = colour(n);
        let style = font(15).color(&ink);
        area.draw(&Text::new(short(&run.label, LABEL), (12, top), style)).map_err(words)?;
        for Step { title, from, to, text, end } in steps(found) {
            top += ROW;
            let fill = match (end, to < from) {
                (true, _) => PALETTE[6],
                (false, false) => PALETTE[1],
                (false, true) => PALETTE[2],
            };
            let (start, stop) = (x(from.min(to)), x(from.max(to)).max(x(from.min(to)) + 1));
            let corners = [(start, top + 3), (stop, top + ROW - 3)];
            area.draw(&Rectangle::new(corners, fill.filled())).map_err(words)?;
            let (width, _) = area.estimate_text_size(title, &font(13)).map_err(words)?;
            let at = (left - 10 - width as i32, top + 4);
            area.draw(&Text::new(title, at, font(13))).map_err(words)?;
            area.draw(&Text::new(text, (right + 10, top + 4), font(13))).map_err(words)?;
        }
        top += 2 * ROW;
    }
    Ok(true)
}
