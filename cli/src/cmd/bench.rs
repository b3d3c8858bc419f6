//! `poolsim bench`: how fast the simulator is on this machine.

use crate::args::BenchArgs;
use crate::choice::choose;
use crate::load::Input;
use crate::output::{self, Ending, Out};
use crate::runner::Setting;
use poolsim_reports::json;
use poolsim_reports::quantity::{show_count, show_nanos};
use poolsim_reports::statistics;
use poolsim_reports::table::{finish, numbers_right, plain_table};
use poolsim_sim::observe::{Ooms, Totals};
use poolsim_sim::{DeviceProfile, Placement, ReplayOptions, replay};
use serde_json::{Value, json};
use std::io::Write;
use std::time::{Duration, Instant};

/// What one policy took.
struct Timed {
    label: String,
    spec: String,
    /// A round each.
    rounds: Vec<Duration>,
    events: u64,
}

/// How long reading took.
struct Reading {
    open: Duration,
    load: Duration,
    bytes: u64,
}

/// Times reading and replaying.
pub fn run(args: &BenchArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let profile = DeviceProfile::h200();
    let start = Instant::now();
    let input = Input::open(&args.trace, &args.select, &args.machine, &profile)?;
    let open = start.elapsed();
    let choices = choose(&args.policies, input.header(), &input.machine)?;
    let start = Instant::now();
    let loaded = input.load()?;
    let load = start.elapsed();
    let bytes = std::fs::metadata(&args.trace).map_or(0, |m| m.len());
    let reading = Reading { open, load, bytes };

    let setting = Setting::new(&loaded, &profile, None)?;
    let mut results: Vec<Timed> = choices
        .iter()
        .map(|choice| Timed {
            label: choice.label.clone(),
            spec: choice.resolved.spec().to_string(),
            rounds: Vec::new(),
            events: 0,
        })
        .collect();
    let bar = output::progress(u64::from(args.rounds), 2, "measuring");
    for _ in 0..args.rounds {
        // In turn, so that a busy moment of the machine does not fall on one policy alone.
        for (choice, timed) in choices.iter().zip(&mut results) {
            let mut policy = setting.policy(choice);
            let mut device = setting.device(Placement::Driver, false);
            let mut observer = (Totals::default(), Ooms::default());
            let mut source = loaded.events.source();
            let options =
                ReplayOptions { restore: setting.restore(choice), ..ReplayOptions::default() };
            let start = Instant::now();
            let end = replay(&mut *source, &mut *policy, &mut device, &mut observer, &options)?;
            timed.rounds.push(start.elapsed());
            timed.events = end.events;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    results.iter_mut().for_each(|timed| timed.rounds.sort());
    if args.json {
        out.json(&document(&results, &reading))?;
    } else {
        write(&results, &reading, out)?;
    }
    Ok(Ending::Fine)
}

impl Timed {
    fn ns_per_event(&self, round: Duration) -> f64 {
        round.as_nanos() as f64 / self.events.max(1) as f64
    }

    /// Nanoseconds per event of every round.
    fn samples(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| self.ns_per_event(*round)).collect()
    }

    fn min(&self) -> f64 {
        self.ns_per_event(self.rounds[0])
    }

    fn median(&self) -> f64 {
        self.ns_per_event(self.rounds[self.rounds.len() / 2])
    }
}

fn document(results: &[Timed], reading: &Reading) -> Value {
    let one = |t: &Timed| {
        json!({
            "policy": t.spec,
            "label": t.label,
            "ns_per_event": t.min(),
            "ns_per_event_median": t.median(),
            "ns_per_event_median_95": statistics::median(&t.samples()).map(|e| [e.low, e.high]),
            "events_per_second": 1e9 / t.min(),
            "events": t.events,
            "rounds": t.rounds.len(),
        })
    };
    let mut document = json::list("results", &results.iter().map(one).collect::<Vec<_>>());
    let against = results.iter().skip(1).map(|t| {
        let difference = statistics::difference(&results[0].samples(), &t.samples());
        json!({ "label": t.label, "against": results[0].label, "difference": difference })
    });
    document["differences"] = against.collect();
    document["reading"] = json!({
        "file_bytes": reading.bytes,
        "open_ns": reading.open.as_nanos() as u64,
        "infer_and_digest_ns": reading.load.as_nanos() as u64,
    });
    document
}

fn write(results: &[Timed], reading: &Reading, out: &mut Out) -> anyhow::Result<()> {
    writeln!(
        out,
        "read in {}, requests inferred in {} ({} bytes)",
        show_nanos(reading.open.as_nanos() as u64),
        show_nanos(reading.load.as_nanos() as u64),
        show_count(reading.bytes)
    )?;
    let mut table = plain_table();
    table.set_header([
        "policy",
        "min\nns/event",
        "median\nns/event",
        "M events/s",
        "events",
        "rounds",
    ]);
    for t in results {
        table.add_row([
            t.label.clone(),
            format!("{:.1}", t.min()),
            format!("{:.1}", t.median()),
            format!("{:.1}", 1e3 / t.min()),
            show_count(t.events),
            t.rounds.len().to_string(),
        ]);
    }
    numbers_right(&mut table);
    out.write_all(finish(&table).as_bytes())?;
    for t in results.iter().skip(1) {
        let difference = statistics::difference(&results[0].samples(), &t.samples());
        let words = statistics::words(&results[0].label, &t.label, difference.as_ref());
        writeln!(out)?;
        out.write_all(output::paragraph(&words, 0).as_bytes())?;
    }
    Ok(())
}
