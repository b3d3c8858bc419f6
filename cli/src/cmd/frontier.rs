//! `poolsim frontier`: the smallest memory on which a job lives, by policy.

use crate::args::FrontierArgs;
use crate::bounds::Units;
use crate::choice::{Choice, choose};
use crate::frontier::{Found, frontier, number};
use crate::load::{Input, Loaded};
use crate::output::{self, Ending, Out};
use poolsim_core::metric::name;
use poolsim_core::units::ShowBytes;
use poolsim_core::{Bytes, RunRecord};
use poolsim_reports::data::Frontier;
use poolsim_reports::quantity::{show_count, show_nanos};
use poolsim_reports::table::{finish, numbers_right, plain_table};
use poolsim_sim::DeviceProfile;
use poolsim_sim::bound::{Bounds, Lifetimes};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::io::Write;

/// One policy and what was found out of it.
type Row<'a> = (&'a Choice, Found);

/// Looks for the frontier of every policy.
pub fn run(args: &FrontierArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let profile = DeviceProfile::h200();
    let input = Input::open(&args.trace, &args.select, &args.machine, &profile)?;
    let labels: Vec<String> = args.names.iter().chain(&args.policies).cloned().collect();
    let choices = choose(&labels, input.header(), &input.machine)?;
    let loaded = input.load()?;
    for remark in &loaded.remarks {
        eprintln!("note: {remark}");
    }
    let lifetimes = Lifetimes::read(&mut *loaded.events.source())
        .map_err(|error| error.in_file(&loaded.path))?;
    let units = Units::of(&loaded, None);
    let bounds = Bounds::of(&lifetimes, units.alignment, units.granule);
    let rows: Vec<Row<'_>> = choices
        .par_iter()
        .map(|choice| Ok((choice, frontier(&loaded, &profile, choice, &bounds, args.probes)?)))
        .collect::<anyhow::Result<_>>()?;
    if args.json {
        out.json(&document(&loaded, &bounds, &rows))?
    } else {
        text(&rows, &bounds, out)?
    }
    Ok(Ending::Fine)
}

fn document(loaded: &Loaded, bounds: &Bounds, rows: &[Row<'_>]) -> Value {
    let price = |record: &RunRecord| {
        json!({
            "device_time_ns": number(record, name::device_time_ns),
            "retries": number(record, name::retries),
            "peak_reserved_bytes": number(record, name::peak_reserved_bytes),
        })
    };
    let one = |(choice, found): &Row<'_>| {
        let f = &found.frontier;
        json!({
            "label": choice.label,
            "policy": choice.resolved.spec().to_string(),
            "smallest_bytes": f.smallest(),
            "safe_bytes": f.safe(),
            "monotone": f.is_monotone(),
            "uncertain": f.uncertain,
            "first_refused_below": found.fails,
            "unbounded": price(&found.free),
            "tight": found.tight.as_ref().map(price),
            "tried": f.tried.iter().map(|(c, lives)| json!({ "bytes": c, "lives": lives })).collect::<Vec<_>>(),
        })
    };
    json!({
        "trace": loaded.path.display().to_string(),
        "trace_digest": loaded.digest,
        "poolsim_version": env!("CARGO_PKG_VERSION"),
        "granule_bytes": loaded.machine.caps.granule,
        "live_bytes": bounds.live,
        "live_without_waiting_bytes": bounds.live_without_waiting,
        "frontiers": rows.iter().map(one).collect::<Vec<_>>(),
    })
}

fn text(rows: &[Row<'_>], bounds: &Bounds, out: &mut Out) -> anyhow::Result<()> {
    let hard = bounds.live_without_waiting;
    write!(out, "nothing lives on less than {}", ShowBytes(hard))?;
    if hard < bounds.live {
        let live = ShowBytes(bounds.live);
        write!(out, ", and on less than {live} only by waiting for frees of other streams")?;
    }
    writeln!(out)?;
    writeln!(out)?;
    let mut table = plain_table();
    table.set_header([
        "policy",
        "smallest\ncapacity",
        "above\nbound",
        "unbounded\npeak",
        "retries\nthere",
        "device time\nthere",
        "device time\nunbounded",
    ]);
    for (choice, found) in rows {
        let label = choice.label.replace(',', ",\n");
        let free = &found.free;
        let peak = ShowBytes(number(free, name::peak_reserved_bytes)).to_string();
        let unbounded = show_nanos(number(free, name::device_time_ns));
        let (Some(smallest), Some(tight)) = (found.frontier.smallest(), &found.tight) else {
            let none = || "-".to_string();
            table.add_row([label, "none".into(), none(), peak, none(), none(), unbounded]);
            continue;
        };
        let above = smallest as f64 / hard.max(1) as f64 - 1.0;
        table.add_row([
            label,
            ShowBytes(smallest).to_string(),
            format!("{:+.1} %", above * 100.0),
            peak,
            show_count(number(tight, name::retries)),
            show_nanos(number(tight, name::device_time_ns)),
            unbounded,
        ]);
    }
    numbers_right(&mut table);
    write!(out, "{}", finish(&table))?;
    for row in rows {
        writeln!(out)?;
        out.write_all(output::paragraph(&words(row), 0).as_bytes())?;
    }
    Ok(())
}

fn words((choice, found): &Row<'_>) -> String {
    let (label, f) = (&choice.label, &found.frontier);
    let mut text = match (&f.smallest(), &found.fails) {
        (None, _) => format!("{label}: does not live even with all of the device's memory"),
        (Some(_), None) => format!("{label}: lives on a single granule"),
        (Some(_), Some(_)) => format!("{label}: with one granule less it fails"),
    };
    if let Some(oom) = &found.fails {
        text += &format!(
            ", first at event {}, which asks for {} while {} are in use",
            show_count(oom.event),
            ShowBytes(oom.requested),
            ShowBytes(oom.active)
        );
    }
    text += ".";
    if let (Some(safe), false) = (f.safe(), f.is_monotone()) {
        let failing = between(f).map(|c| ShowBytes(c).to_string()).collect::<Vec<_>>();
        let shown = failing.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
        let more = if failing.len() > 4 { ", …" } else { "" };
        text += &format!(
            " It is not monotone: of the capacities that were tried, {} above the smallest fail ({shown}{more}); from {} on all suffice.",
            failing.len(),
            ShowBytes(safe)
        );
    } else if f.smallest().is_some() {
        text += &format!(
            " All {} capacities that were tried agree: less fails, more suffices.",
            f.tried.len()
        );
    }
    if f.uncertain {
        text += " Uncertain: at this capacity it hangs on where the driver puts memory.";
    }
    text
}

/// Capacities above the smallest sufficient one on which the job fails.
fn between(f: &Frontier) -> impl Iterator<Item = Bytes> {
    let smallest = f.smallest().unwrap_or(Bytes::MAX);
    f.tried.iter().filter(move |(c, lives)| **c > smallest && !**lives).map(|(&c, _)| c)
}
