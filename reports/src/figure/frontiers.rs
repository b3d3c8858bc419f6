//! On how little memory a job lives, by policy.

use super::{BAR, Drawn, GIB, LABEL, PALETTE, font, short, words};
use crate::data::RunSet;
use plotters::coord::Shift;
use plotters::prelude::*;
use poolsim_core::metric::name;

/// Draws every capacity that was tried between the bound and the greediest policy's peak.
pub fn draw<DB: DrawingBackend>(set: &RunSet, area: &DrawingArea<DB, Shift>) -> Drawn {
    let known: Vec<_> =
        set.runs.iter().filter_map(|run| Some((run, run.frontier.as_ref()?))).collect();
    let Some(bound) = known.iter().map(|(_, found)| found.bound).min() else { return Ok(false) };
    let peaks = known.iter().filter_map(|(run, _)| run.record.metric(name::peak_reserved_bytes));
    let most = peaks.map(|peak| peak.as_f64()).fold(bound as f64, f64::max) / GIB;
    let bound = bound as f64 / GIB;
    let (low, high) = (bound * 0.9, (most * 1.03).max(bound * 0.9 + 1e-9));
    let rows = known.len() as f64;
    area.fill(&WHITE).map_err(words)?;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_left(220)
        .margin_right(24)
        .x_label_area_size(44)
        .build_cartesian_2d(low..high, 0.0..rows)
        .map_err(words)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(WHITE)
        .label_style(font(13))
        .axis_desc_style(font(14))
        .x_desc("memory that the job can have, GiB")
        .draw()
        .map_err(words)?;
    let line = [(bound, 0.0), (bound, rows)];
    chart.draw_series(LineSeries::new(line, BLACK.stroke_width(2))).map_err(words)?;
    for (n, (run, found)) in known.iter().enumerate() {
        let y = rows - n as f64 - 0.5;
        let tried = found.tried.iter().map(|(&bytes, &lives)| (bytes as f64 / GIB, lives));
        for (gib, lives) in tried.filter(|(gib, _)| *gib >= low && *gib <= high) {
            let drawn = if lives {
                chart.draw_series([Circle::new((gib, y), 3, PALETTE[2].filled())]).map(|_| ())
            } else {
                chart.draw_series([Cross::new((gib, y), 4, PALETTE[1].stroke_width(2))]).map(|_| ())
            };
            drawn.map_err(words)?;
        }
        let label = short(&run.label, LABEL);
        let (width, _) = area.estimate_text_size(&label, &font(13)).map_err(words)?;
        let (_, middle) = chart.backend_coord(&(low, y));
        let at = ((210 - width as i32).max(4), middle - 7);
        area.draw(&Text::new(label, at, font(13))).map_err(words)?;
    }
    Ok(true)
}

/// A row a run, and the axis.
pub fn height(set: &RunSet) -> u32 {
    80 + BAR * set.runs.iter().filter(|run| run.frontier.is_some()).count() as u32
}
