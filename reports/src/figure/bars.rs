//! Runs as bars.

use super::{BAR, Drawn, GIB, LABEL, PALETTE, WIDTH, font, short, words};
use crate::data::RunSet;
use plotters::coord::Shift;
use plotters::prelude::*;
use poolsim_core::metric::name;

/// The bars' titles and metrics, and whether each starts where the one before it ends.
struct Bars<'a> {
    parts: &'a [(&'a str, &'a str)],
    stacked: bool,
}

/// Requested, active and reserved bytes, each over the other.
pub fn peaks<DB: DrawingBackend>(set: &RunSet, area: &DrawingArea<DB, Shift>) -> Drawn {
    let parts = [
        ("reserved", name::peak_reserved_bytes),
        ("active", name::peak_active_bytes),
        ("requested", name::peak_requested_bytes),
    ];
    Bars { parts: &parts, stacked: false }.draw(set, area)
}

/// The bytes of the peak reservation by what they were.
pub fn losses<DB: DrawingBackend>(set: &RunSet, area: &DrawingArea<DB, Shift>) -> Drawn {
    let parts = [
        ("lost to rounding", name::lost_to_rounding_bytes),
        ("stranded", name::lost_to_stranded_bytes),
        ("in free ranges", name::lost_to_free_ranges_bytes),
    ];
    Bars { parts: &parts, stacked: true }.draw(set, area)
}

/// A row a run.
pub fn height(set: &RunSet) -> u32 {
    64 + BAR * set.runs.len() as u32
}

impl Bars<'_> {
    fn draw<DB: DrawingBackend>(&self, set: &RunSet, area: &DrawingArea<DB, Shift>) -> Drawn {
        let value = |run: &crate::data::Run, name: &str| {
            run.record.metric(name).map(|value| value.as_f64() / GIB)
        };
        let rows: Vec<(String, Vec<f64>)> = set
            .runs
            .iter()
            .filter_map(|run| {
                let values: Option<Vec<f64>> =
                    self.parts.iter().map(|(_, name)| value(run, name)).collect();
                Some((short(&run.label, LABEL), values?))
            })
            .collect();
        if rows.is_empty() {
            return Ok(false);
        }
        let length = |values: &[f64]| match self.stacked {
            true => values.iter().sum::<f64>(),
            false => values.iter().copied().fold(0.0, f64::max),
        };
        let longest = rows.iter().map(|(_, v)| length(v)).fold(1e-9, f64::max);
        area.fill(&WHITE).map_err(words)?;
        let (left, right, top) = (240i32, WIDTH as i32 - 110, 46i32);
        let x = |gib: f64| left + (gib / longest * f64::from(right - left)) as i32;
        self.legend(area, left)?;
        for (n, (label, values)) in rows.iter().enumerate() {
            let y = top + n as i32 * BAR as i32;
            let middle = y + BAR as i32 / 2;
            let style = font(14);
            let (width, _) = area.estimate_text_size(label, &style).map_err(words)?;
            let at = ((left - 10 - width as i32).max(4), middle - 8);
            area.draw(&Text::new(label.clone(), at, style.clone())).map_err(words)?;
            let mut start = 0.0;
            for (part, value) in values.iter().enumerate() {
                let shrink = if self.stacked { 0 } else { 4 * part as i32 };
                let (from, to) = (x(start), x(start + value));
                let corners = [(from, y + 5 + shrink), (to, y + BAR as i32 - 5 - shrink)];
                area.draw(&Rectangle::new(corners, PALETTE[PART[part]].filled())).map_err(words)?;
                start += if self.stacked { *value } else { 0.0 };
            }
            let text = format!("{:.2} GiB", length(values));
            let at = (x(length(values)) + 8, middle - 8);
            area.draw(&Text::new(text, at, style)).map_err(words)?;
        }
        Ok(true)
    }

    fn legend<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        left: i32,
    ) -> Result<(), String> {
        let mut at = left;
        for (part, (title, _)) in self.parts.iter().enumerate() {
            let square = [(at, 16), (at + 14, 30)];
            area.draw(&Rectangle::new(square, PALETTE[PART[part]].filled())).map_err(words)?;
            let style = font(14);
            let (width, _) = area.estimate_text_size(title, &style).map_err(words)?;
            area.draw(&Text::new(*title, (at + 20, 15), style)).map_err(words)?;
            at += 48 + width as i32;
        }
        Ok(())
    }
}

/// Colours of the parts: neighbours must differ in lightness too.
const PART: [usize; 3] = [0, 4, 5];
