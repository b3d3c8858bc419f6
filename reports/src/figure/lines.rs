//! Quantities over time.

use super::{Drawn, GIB, LABEL, WIDTH, colour, font, short, words};
use crate::data::{RunSet, coarser};
use plotters::coord::Shift;
use plotters::prelude::*;

/// A line's points.
type Line = Vec<(f64, f64)>;

/// Reserved bytes of every run; the bytes asked for behind them.
pub fn memory<DB: DrawingBackend>(set: &RunSet, area: &DrawingArea<DB, Shift>) -> Drawn {
    let times = has_times(set);
    let line = |run: &crate::data::Run, reserved: bool| -> Line {
        let step = run.series.len().div_ceil(WIDTH as usize).max(1);
        let points = coarser(&run.series, step);
        let both = points.iter().flat_map(|p| {
            let get = |l: &poolsim_core::Levels| if reserved { l.reserved } else { l.requested };
            let x = if times { p.first_at as f64 / 1e9 } else { p.first_event as f64 };
            let end = if times { p.last_at as f64 / 1e9 } else { p.last_event as f64 };
            [(x, get(&p.high)), (x, get(&p.low)), (end, get(&p.last))]
        });
        both.map(|(x, bytes)| (x, bytes as f64 / GIB)).collect()
    };
    let lines: Vec<Line> = set.runs.iter().map(|run| line(run, true)).collect();
    let asked = set.runs.iter().find(|r| !r.series.is_empty()).map(|r| line(r, false));
    let x = if times { "time in s" } else { "event" };
    chart(area, set, &lines, asked.as_ref(), [x, "reserved, GiB"])
}

/// Device calls of every run, summed up.
pub fn calls<DB: DrawingBackend>(set: &RunSet, area: &DrawingArea<DB, Shift>) -> Drawn {
    let times = has_times(set);
    let line = |run: &crate::data::Run| -> Line {
        let x = |p: &poolsim_core::CallsPoint| {
            if times { p.last_at as f64 / 1e9 } else { p.last_event as f64 }
        };
        run.calls.iter().map(|p| (x(p), p.calls.iter().sum::<u64>() as f64)).collect()
    };
    let lines: Vec<Line> = set.runs.iter().map(line).collect();
    let x = if times { "time in s" } else { "event" };
    chart(area, set, &lines, None, [x, "device calls so far"])
}

/// Whether the trace takes time.
fn has_times(set: &RunSet) -> bool {
    set.runs.iter().flat_map(|run| run.series.last()).any(|point| point.last_at > 0)
}

fn chart<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    set: &RunSet,
    lines: &[Line],
    behind: Option<&Line>,
    [x_title, y_title]: [&str; 2],
) -> Drawn {
    let points = || lines.iter().flatten().chain(behind.into_iter().flatten());
    if points().next().is_none() {
        return Ok(false);
    }
    let (left, right) = points().fold((f64::MAX, f64::MIN), |(l, r), p| (l.min(p.0), r.max(p.0)));
    let top = points().fold(0.0f64, |top, p| top.max(p.1)).max(1e-9) * 1.05;
    area.fill(&WHITE).map_err(words)?;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(left..right.max(left + 1e-9), 0.0..top)
        .map_err(words)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .label_style(font(13))
        .axis_desc_style(font(14))
        .x_desc(x_title)
        .y_desc(y_title)
        .draw()
        .map_err(words)?;
    if let Some(behind) = behind {
        let grey = RGBColor(150, 150, 150);
        // The border keeps a spike one event long, whose area has no width.
        let area = AreaSeries::new(behind.iter().copied(), 0.0, grey.mix(0.35))
            .border_style(grey.stroke_width(1));
        let series = chart.draw_series(area).map_err(words)?;
        series.label("requested").legend(move |(x, y)| {
            Rectangle::new([(x, y - 5), (x + 18, y + 5)], grey.mix(0.35).filled())
        });
    }
    for (n, (line, run)) in lines.iter().zip(&set.runs).enumerate() {
        let style = colour(n).stroke_width(2);
        let series = chart.draw_series(LineSeries::new(line.iter().copied(), style));
        series
            .map_err(words)?
            .label(short(&run.label, LABEL))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font(font(13))
        .draw()
        .map_err(words)?;
    Ok(true)
}
