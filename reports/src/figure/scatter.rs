//! Policies by what they cost in time and in memory.

use super::{Drawn, LABEL, colour, font, short, words};
use crate::data::RunSet;
use plotters::coord::Shift;
use plotters::prelude::*;
use poolsim_core::metric::name;

/// A policy's place: time in device calls (ms) and fragmentation (%).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    /// Index of the run.
    pub run: usize,
    /// Milliseconds in device calls.
    pub time: f64,
    /// Fragmentation in per cent.
    pub fragmentation: f64,
    /// Whether no other run is at least as good in both and better in one.
    pub best: bool,
}

/// Every run that has both numbers and finished its job.
pub(crate) fn places(set: &RunSet) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for (run, data) in set.runs.iter().enumerate() {
        let metric = |name: &str| data.record.metric(name).map(|value| value.as_f64());
        let both = metric(name::device_time_ns).zip(metric(name::fragmentation));
        // A job that was refused memory got away with less of both.
        if let Some((time, fragmentation)) = both.filter(|_| data.verdict != "out_of_memory") {
            let (time, fragmentation) = (time / 1e6, fragmentation * 100.0);
            places.push(Place { run, time, fragmentation, best: false });
        }
    }
    let beats = |a: &Place, b: &Place| {
        a.time <= b.time
            && a.fragmentation <= b.fragmentation
            && (a.time < b.time || a.fragmentation < b.fragmentation)
    };
    let all = places.clone();
    for place in &mut places {
        place.best = !all.iter().any(|other| beats(other, place));
    }
    places
}

/// Labels right of dots, moved up or down where they would lie on one another or on another dot.
pub(crate) struct Labels {
    dots: Vec<(f64, f64)>,
    /// Left end, right end, height.
    placed: Vec<(f64, f64, f64)>,
}

impl Labels {
    /// Pixels between a dot and its label.
    pub(crate) const GAP: f64 = 10.0;

    /// For these dots, in pixels.
    pub(crate) fn new(dots: Vec<(f64, f64)>) -> Labels {
        Labels { dots, placed: Vec::new() }
    }

    /// How far below its best place a label of the dot at `(x, y)` goes.
    pub(crate) fn place(&mut self, (x, y): (f64, f64), label: &str) -> f64 {
        // The text is at most so wide, and a line so high.
        let (left, right) = (x + Labels::GAP, x + Labels::GAP + 7.5 * label.chars().count() as f64);
        let free = |at: f64| {
            let dot = |&(dx, dy): &(f64, f64)| dx > x && dx < right + 8.0 && (dy - at).abs() < 14.0;
            let text =
                |&(l, r, h): &(f64, f64, f64)| left < r && l < right && (h - at).abs() < 14.0;
            !self.dots.iter().any(dot) && !self.placed.iter().any(text)
        };
        let ways = (0..16).map(|n| f64::from((n + 1) / 2) * if n % 2 == 0 { 15.0 } else { -15.0 });
        let moved = ways.into_iter().find(|by| free(y + by)).unwrap_or(0.0);
        self.placed.push((left, right, y + moved));
        moved
    }
}

/// Draws them, with the front.
pub fn scatter<DB: DrawingBackend>(set: &RunSet, area: &DrawingArea<DB, Shift>) -> Drawn {
    let places = places(set);
    if places.len() < 2 {
        return Ok(false);
    }
    let top = |get: fn(&Place) -> f64| places.iter().map(get).fold(1e-9, f64::max) * 1.15;
    area.fill(&WHITE).map_err(words)?;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(120)
        .x_label_area_size(44)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..top(|p| p.time), 0.0..top(|p| p.fragmentation))
        .map_err(words)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .label_style(font(13))
        .axis_desc_style(font(14))
        .x_desc("time in device calls, ms")
        .y_desc("fragmentation, %")
        .draw()
        .map_err(words)?;
    let mut front: Vec<(f64, f64)> =
        places.iter().filter(|p| p.best).map(|p| (p.time, p.fragmentation)).collect();
    front.sort_by(|a, b| a.partial_cmp(b).expect("metrics are numbers"));
    let grey = RGBColor(120, 120, 120).stroke_width(1);
    chart.draw_series(LineSeries::new(front, grey)).map_err(words)?;
    let pixel = |p: &Place| chart.backend_coord(&(p.time, p.fragmentation));
    let pixels = places.iter().map(pixel).map(|(x, y)| (x.into(), y.into())).collect::<Vec<_>>();
    let mut labels = Labels::new(pixels.clone());
    for (place, pixel) in places.iter().zip(pixels) {
        let (n, at) = (place.run, (place.time, place.fragmentation));
        let label = short(&set.runs[n].label, LABEL);
        let style = if place.best { colour(n).filled() } else { colour(n).stroke_width(2) };
        let down = labels.place(pixel, &label) as i32 - 7;
        let point = EmptyElement::at(at)
            + Circle::new((0, 0), 6, style)
            + Text::new(label, (Labels::GAP as i32, down), font(13));
        chart.draw_series([point]).map_err(words)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Run;
    use poolsim_core::record::Value;

    #[test]
    fn the_front_is_what_nobody_beats_in_both() {
        let run = |time: u64, fragmentation: f64, verdict: &str| {
            let mut run = Run { verdict: verdict.into(), ..Run::default() };
            run.record.set(name::device_time_ns, Value::Int(time));
            run.record.set(name::fragmentation, Value::Real(fragmentation));
            run
        };
        let runs = vec![
            run(10, 0.5, "fits"),
            run(20, 0.1, "fits"),
            run(20, 0.2, "fits"),
            run(1, 0.0, "out_of_memory"),
            run(10, 0.5, "uncertain"),
        ];
        let set = RunSet { runs, ..RunSet::default() };
        let best: Vec<usize> = places(&set).iter().filter(|p| p.best).map(|p| p.run).collect();
        assert_eq!(best, [0, 1, 4]);
    }
}
