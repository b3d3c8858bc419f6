//! How long calls took: the share that took no longer, by time on a logarithmic axis.

use super::{Drawn, LABEL, colour, font, short, words};
use crate::data::{Distribution, RunSet, Source};
use crate::quantity::show_nanos;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::collections::BTreeMap;

/// Kinds of calls that are shown: those that took most time together.
const KINDS: usize = 4;

/// Draws a chart for each of the kinds.
pub fn draw<DB: DrawingBackend>(set: &RunSet, area: &DrawingArea<DB, Shift>) -> Drawn {
    let mut totals: BTreeMap<&str, u128> = BTreeMap::new();
    for kind in set.runs.iter().flat_map(|run| &run.distributions) {
        let time = kind.steps.iter().map(|(ns, calls)| u128::from(*ns) * u128::from(*calls));
        *totals.entry(&kind.call).or_default() += time.sum::<u128>();
    }
    let mut kinds: Vec<_> = totals.into_iter().collect();
    kinds.sort_by_key(|(call, time)| (std::cmp::Reverse(*time), *call));
    kinds.truncate(KINDS);
    if kinds.is_empty() {
        return Ok(false);
    }
    area.fill(&WHITE).map_err(words)?;
    let parts = area.split_evenly((kinds.len().div_ceil(2), kinds.len().min(2)));
    for ((call, _), part) in kinds.iter().zip(parts) {
        chart(set, call, &part)?;
    }
    Ok(true)
}

/// Two kinds a row.
pub fn height(set: &RunSet) -> u32 {
    let calls = set.runs.iter().flat_map(|run| &run.distributions).map(|kind| &kind.call);
    let kinds = calls.collect::<std::collections::BTreeSet<_>>().len().min(KINDS);
    300 * kinds.div_ceil(2).max(1) as u32
}

/// Marks that fit an axis.
const MARKS: usize = 6;

/// 1, 2 or 5 times a power of ten, no higher, or no lower, than this.
fn round(ns: f64, up: bool) -> f64 {
    let size = 10f64.powf(ns.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * size);
    let found = if up {
        steps.into_iter().find(|step| *step >= ns)
    } else {
        steps.into_iter().rfind(|step| *step <= ns)
    };
    found.unwrap_or(ns)
}

/// As many round values between two as fit.
fn marks(low: f64, high: f64) -> Vec<f64> {
    let all = |steps: &'static [f64]| {
        let sizes = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
        let values = sizes.flat_map(|size| steps.iter().map(move |step| step * 10f64.powi(size)));
        values.filter(|ns| *ns >= low * 0.999 && *ns <= high * 1.001).collect::<Vec<f64>>()
    };
    let fine = all(&[1.0, 2.0, 5.0]);
    if fine.len() <= MARKS { fine } else { all(&[1.0]) }
}

fn chart<DB: DrawingBackend>(
    set: &RunSet,
    call: &str,
    area: &DrawingArea<DB, Shift>,
) -> Result<(), String> {
    let curves: Vec<(usize, &Distribution)> = (0..)
        .zip(&set.runs)
        .flat_map(|(n, run)| run.distributions.iter().map(move |kind| (n, kind)))
        .filter(|(_, kind)| kind.call == call)
        .collect();
    let times = || curves.iter().flat_map(|(_, kind)| kind.steps.iter().map(|(ns, _)| *ns));
    let low = round(times().min().unwrap_or(1).max(1) as f64 / 1.2, false);
    let high = round(times().max().unwrap_or(1).max(1) as f64 * 1.2, true);
    let axis = (low..high).log_scale().with_key_points(marks(low, high));
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(24)
        .caption(call, font(14))
        .x_label_area_size(40)
        .y_label_area_size(52)
        .build_cartesian_2d(axis, 0.0..104.0)
        .map_err(words)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .label_style(font(12))
        .axis_desc_style(font(13))
        .x_labels(MARKS)
        .x_label_formatter(&|ns| show_nanos(ns.round() as u64).replacen(".00 ", " ", 1))
        .y_desc("calls that took no longer, %")
        .draw()
        .map_err(words)?;
    for (n, kind) in &curves {
        let (all, mut sum) = (kind.calls().max(1) as f64, 0);
        let mut points = vec![(low, 0.0)];
        for (ns, calls) in &kind.steps {
            let at = (*ns).max(1) as f64;
            points.push((at, sum as f64 / all * 100.0));
            sum += calls;
            points.push((at, sum as f64 / all * 100.0));
        }
        points.push((high, 100.0));
        let style = colour(*n).stroke_width(2);
        let modelled = if kind.source == Source::Modelled { " (modelled)" } else { "" };
        let label = short(&set.runs[*n].label, LABEL - modelled.len()) + modelled;
        let series = chart.draw_series(LineSeries::new(points, style)).map_err(words)?;
        series.label(label).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font(font(12))
        .draw()
        .map_err(words)
}
