//! `poolsim synth`: traces that nobody recorded.

use crate::args::{MachineArgs, SynthArgs};
use crate::load::Input;
use crate::output::{Ending, Out, Usage, paragraph};
use poolsim_core::Trace;
use poolsim_core::units::ShowBytes;
use poolsim_reports::quantity::{show_count, show_plural};
use poolsim_sim::DeviceProfile;
use poolsim_traces::Source;
use poolsim_traces::export::{self, OutputOptions};
use poolsim_traces::synth::{
    Change, Closeness, Fit, GENERATORS, Generator, KsTest, Order, closeness, find,
};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// Lists, describes, or makes.
pub fn run(args: &SynthArgs, out: &mut Out) -> anyhow::Result<Ending> {
    match (&args.program, &args.fit) {
        (_, Some(recording)) => fit(args, recording, out)?,
        (Some(name), _) => {
            let generator = find(name).map_err(|error| Usage(error.to_string()))?;
            match &args.out {
                Some(path) => generate(args, generator, path, out)?,
                None if args.set.is_empty() => describe(generator, args.json, out)?,
                None => return Err(Usage("say with -o where the trace is to go".into()).into()),
            }
        }
        (None, None) => list(args.json, out)?,
    }
    Ok(Ending::Fine)
}

fn list(json: bool, out: &mut Out) -> anyhow::Result<()> {
    if json {
        let all: Vec<Value> = GENERATORS.iter().map(|g| document(g)).collect();
        return out.json(&json!({ "programs": all }));
    }
    let width = GENERATORS.iter().map(|g| g.name.len()).max().unwrap_or(0) + 2;
    for generator in GENERATORS {
        let text = paragraph(generator.summary, width);
        writeln!(out, "{:<width$}{}", generator.name, text.trim())?;
    }
    writeln!(
        out,
        "\n`poolsim synth PROGRAM` says what can be set; with -o OUT it makes the trace."
    )?;
    writeln!(
        out,
        "`poolsim synth --fit TRACE -o OUT` makes longer and changed ones of a recording."
    )?;
    Ok(())
}

fn describe(generator: &Generator, json: bool, out: &mut Out) -> anyhow::Result<()> {
    if json {
        return out.json(&document(generator));
    }
    writeln!(out, "{}", generator.name)?;
    out.write_all(paragraph(&format!("{}.", generator.summary), 2).as_bytes())?;
    if !generator.hurts.is_empty() {
        out.write_all(paragraph(&format!("Hurts {}.", generator.hurts), 2).as_bytes())?;
    }
    writeln!(out, "\nSettings")?;
    for knob in generator.knobs {
        let (min, max) = knob.bounds;
        writeln!(out, "  {}, default {}, {min} to {max}", knob.key, knob.default)?;
        out.write_all(paragraph(knob.doc, 6).as_bytes())?;
    }
    Ok(())
}

fn document(generator: &Generator) -> Value {
    let knobs: Vec<Value> = generator
        .knobs
        .iter()
        .map(|k| {
            json!({ "key": k.key, "default": k.default, "min": k.bounds.0, "max": k.bounds.1, "doc": k.doc })
        })
        .collect();
    json!({
        "name": generator.name,
        "summary": generator.summary,
        "hurts": generator.hurts,
        "settings": knobs,
    })
}

fn generate(args: &SynthArgs, made: &Generator, path: &Path, out: &mut Out) -> anyhow::Result<()> {
    let trace = made.generate(&args.set, args.seed).map_err(|error| Usage(error.what))?;
    let what = trace.header.attributes.get("synth").cloned().unwrap_or_default();
    let events = trace.events.len() as u64;
    let peak = peak(&trace);
    write(trace, path)?;
    if args.json {
        return out.json(&json!({
            "output": path.display().to_string(), "made": what, "events": events, "peak_bytes": peak,
        }));
    }
    let (path, peak) = (path.display(), ShowBytes(peak));
    writeln!(out, "{path}: {}, at most {peak} in use", show_plural(events, "event"))?;
    writeln!(out, "made by {what}")?;
    Ok(())
}

fn peak(trace: &Trace) -> u64 {
    use poolsim_core::EventKind;
    let (mut now, mut peak) = (0, 0);
    for event in &trace.events {
        match event.kind() {
            kind if kind.makes_live() => now += event.size,
            EventKind::Free | EventKind::FreeDone => now -= event.size,
            _ => {}
        }
        peak = peak.max(now);
    }
    peak
}

fn write(trace: Trace, path: &Path) -> anyhow::Result<()> {
    let exporter = export::find(None, path).map_err(|error| Usage(error.to_string()))?;
    let source = Source::Trace(Box::new(trace));
    Ok(export::write_file(&source, exporter, path, OutputOptions { overwrite: true })?)
}

fn fit(args: &SynthArgs, recording: &Path, out: &mut Out) -> anyhow::Result<()> {
    if let Some(path) = &args.out {
        export::find(None, path).map_err(|error| Usage(error.to_string()))?;
    }
    let profile = DeviceProfile::h200();
    let loaded = Input::open(recording, &args.select, &MachineArgs::default(), &profile)?.load()?;
    for remark in &loaded.remarks {
        eprintln!("note: {remark}");
    }
    let trace = loaded.events.into_source().into_trace()?;
    let fit = Fit::of(&trace).map_err(|error| error.in_file(recording))?;
    let change = Change {
        cycles: args.cycles,
        order: match args.order.as_str() {
            "shuffled" => Order::Shuffled,
            "drawn" => Order::Drawn,
            _ => Order::Recorded,
        },
        sizes: args.sizes,
        lengths: args.lengths,
    };
    let made = fit.make(&change, args.seed).map_err(|error| Usage(error.what))?;
    let close = closeness(&trace, &made);
    let (events, cycles) = (made.events.len() as u64, made.annotations.len() as u64);
    if let Some(path) = &args.out {
        write(made, path)?;
    }
    if args.json {
        return out.json(&json!({
            "trace": recording.display().to_string(),
            "recorded_cycles": fit.cycles(),
            "told_apart_by": fit.found().to_string(),
            "output": args.out.as_ref().map(|path| path.display().to_string()),
            "cycles": cycles,
            "events": events,
            "closeness": close_document(&close),
        }));
    }
    let learned = show_plural(fit.cycles() as u64, "cycle");
    writeln!(out, "{}: {learned}, told apart by {}", recording.display(), fit.found())?;
    let to = args.out.as_ref().map_or("(not written)".into(), |path| path.display().to_string());
    writeln!(out, "{to}: {}, {}", show_plural(cycles, "cycle"), show_plural(events, "event"))?;
    closeness_text(&close, out)
}

fn close_document(close: &Closeness) -> Value {
    let test = |t: &KsTest| json!({ "distance": t.distance, "p": t.p, "values": [t.counts.0, t.counts.1] });
    json!({
        "sizes": test(&close.sizes),
        "lifetimes": test(&close.lifetimes),
        "peak_ratio": close.peak_ratio,
        "mean_ratio": close.mean_ratio,
        "lasting": [close.lasting.0, close.lasting.1],
    })
}

fn closeness_text(close: &Closeness, out: &mut Out) -> anyhow::Result<()> {
    writeln!(out, "\nHow close it is to the recording (two-sample Kolmogorov-Smirnov tests)")?;
    for (name, test) in [("sizes", &close.sizes), ("lifetimes", &close.lifetimes)] {
        let [one, other] = [test.counts.0, test.counts.1].map(|n| show_count(n as u64));
        writeln!(
            out,
            "  {name:<10} distance {:.3}, p {:.3}  ({one} recorded, {other} made)",
            test.distance, test.p
        )?;
    }
    writeln!(
        out,
        "  in use     peak {:.3}, mean {:.3} of the recording's",
        close.peak_ratio, close.mean_ratio
    )?;
    let (one, other) = (100.0 * close.lasting.0, 100.0 * close.lasting.1);
    writeln!(out, "  never freed {one:.2} % recorded, {other:.2} % made")?;
    Ok(())
}
