//! One self-contained HTML page: no network, nothing to install.
//!
//! Words, tables and bars are written here, so that they are there without scripts, for print and for screen readers.
//! Curves, the address space and the icicle are drawn in the browser from a compressed payload.

mod lab;
mod ooms;
mod payload;
mod peak;
mod tables;

use crate::data::{RunSet, Source};
use crate::figure::{Labels, scatter_places, short};
use crate::quantity::show_nanos;
use crate::verdict::{not_measured, verdict};
use crate::{markdown, prose};
use minijinja::{AutoEscape, Environment, context};

const PAGE: &str = include_str!("../../assets/page/page.html");
const STYLE: &str = include_str!("../../assets/page/style.css");
const SCRIPTS: [&str; 6] = [
    include_str!("../../assets/page/data.js"),
    include_str!("../../assets/page/theme.js"),
    include_str!("../../assets/page/table.js"),
    include_str!("../../assets/page/charts.js"),
    include_str!("../../assets/page/heap.js"),
    include_str!("../../assets/page/icicle.js"),
];
const UPLOT: &str = include_str!("../../assets/uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../../assets/uplot/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("../../assets/uplot/LICENSE");

/// The page.
pub fn render(set: &RunSet) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("page.html", PAGE).expect("the template is well formed");
    let template = environment.get_template("page.html").expect("it was just added");
    let rows: Vec<_> = set.runs.iter().map(|run| (run.label.as_str(), &run.record)).collect();
    let warnings: Vec<_> = set
        .runs
        .iter()
        .flat_map(|run| run.record.warnings.iter().map(|text| (run.label.clone(), text.clone())))
        .collect();
    let page = template.render(context! {
        title => markdown::title(set),
        verdict => verdict(set),
        not_measured => not_measured(set),
        warnings,
        comparison => tables::comparison(set),
        groups => tables::groups(set),
        errors => tables::errors(set),
        losses => tables::losses(set),
        latency => tables::latency(set),
        scatter => scatter(set),
        waterfalls => lab::waterfalls(set),
        frontier => lab::frontier(set),
        modelled => set.runs.iter().flat_map(|run| &run.distributions).any(|d| d.source == Source::Modelled),
        has_series => set.runs.iter().any(|run| !run.series.is_empty()),
        has_calls => set.runs.iter().any(|run| !run.calls.is_empty()),
        has_heaps => set.runs.iter().any(|run| !run.keyframes.is_empty()),
        peaks => peak::peaks(set),
        ooms => ooms::ooms(set),
        provenance => prose::provenance(&rows, &set.machine),
        command => set.command.as_str(),
        style => STYLE,
        uplot_style => UPLOT_STYLE,
        uplot => UPLOT,
        uplot_licence => UPLOT_LICENCE.replace("*/", "* /"),
        scripts => SCRIPTS.join("\n"),
        payload => payload::encode(set),
    });
    page.expect("the template names only what it is given")
}

/// Policies by time in device calls and fragmentation, placed in a drawing of 640 by 360.
fn scatter(set: &RunSet) -> Option<minijinja::Value> {
    let places = scatter_places(set);
    if places.len() < 2 {
        return None;
    }
    let top = |values: &mut dyn Iterator<Item = f64>| values.fold(1e-9, f64::max) * 1.1;
    let time = top(&mut places.iter().map(|p| p.time));
    let share = top(&mut places.iter().map(|p| p.fragmentation));
    let x = |t: f64| 60.0 + t / time * 460.0;
    let y = |s: f64| 310.0 - s / share * 290.0;
    let mut front: Vec<(f64, f64)> =
        places.iter().filter(|p| p.best).map(|p| (x(p.time), y(p.fragmentation))).collect();
    front.sort_by(|a, b| a.partial_cmp(b).expect("places are numbers"));
    let mut labels = Labels::new(places.iter().map(|p| (x(p.time), y(p.fragmentation))).collect());
    let dots: Vec<_> = places
        .iter()
        .map(|p| {
            let label = short(&set.runs[p.run].label, 24);
            let place = (x(p.time), y(p.fragmentation));
            let label_y = place.1 + 4.0 + labels.place(place, &label);
            context! {
                x => x(p.time), y => y(p.fragmentation), best => p.best, run => p.run, label_y,
                label => set.runs[p.run].label.as_str(), short => label, time => show_nanos((p.time * 1e6) as u64),
                fragmentation => format!("{:.1} %", p.fragmentation),
            }
        })
        .collect();
    let ticks = |highest: f64, place: &dyn Fn(f64) -> f64, unit: fn(f64) -> String| {
        (0..=4)
            .map(|i| {
                let value = highest * f64::from(i) / 4.0;
                context! { at => place(value), text => unit(value) }
            })
            .collect::<Vec<_>>()
    };
    Some(context! {
        dots,
        front => front.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" "),
        x_ticks => ticks(time, &x, |ms| show_nanos((ms * 1e6) as u64)),
        y_ticks => ticks(share, &y, |share| format!("{share:.0} %")),
    })
}
