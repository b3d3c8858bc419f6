//! `poolsim bound`: how little memory a trace could do with.

use crate::args::BoundArgs;
use crate::bounds::{Bound, Units};
use crate::load::{Input, Loaded};
use crate::output::{Ending, Out};
use anyhow::Context;
use poolsim_core::Bytes;
use poolsim_core::units::ShowBytes;
use poolsim_reports::quantity::show_plural;
use poolsim_reports::table::{finish, numbers_right, plain_table};
use poolsim_sim::DeviceProfile;
use poolsim_sim::bound::{Budget, Proof};
use serde_json::json;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Computes the bounds of a trace and packs it.
pub fn run(args: &BoundArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let input = Input::open(&args.trace, &args.select, &args.machine, &DeviceProfile::h200())?;
    // Made before the work starts, so that a wrong path fails at once.
    let mut offsets = match &args.offsets {
        Some(path) => Some((
            path,
            File::create(path).map(BufWriter::new).with_context(|| path.display().to_string())?,
        )),
        None => None,
    };
    let loaded = input.load()?;
    for remark in &loaded.remarks {
        eprintln!("note: {remark}");
    }
    let limit = args.time_limit.map(Duration::from_secs);
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let budget = Budget { steps: args.steps, deadline };
    let bound = Bound::of(&loaded, Units::of(&loaded, args.align), budget)?;
    if let Some((path, file)) = &mut offsets {
        write_offsets(&bound, file).with_context(|| path.display().to_string())?;
    }
    if args.json {
        out.json(&document(args, &loaded, &bound))?
    } else {
        text(&loaded, &bound, out)?
    }
    Ok(Ending::Fine)
}

fn write_offsets(bound: &Bound, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "id,lower,upper,size,offset")?;
    for (id, (item, offset)) in bound.lifetimes.items.iter().zip(&bound.packing.offsets).enumerate()
    {
        let size = item.size.next_multiple_of(bound.units.alignment);
        writeln!(out, "{id},{},{},{size},{offset}", item.lower, item.upper)?;
    }
    out.flush()
}

/// How far `bytes` are above the live bytes.
fn above(bytes: Bytes, bound: &Bound) -> f64 {
    let live = bound.bounds.live;
    if live == 0 { 0.0 } else { bytes as f64 / live as f64 - 1.0 }
}

fn document(args: &BoundArgs, loaded: &Loaded, bound: &Bound) -> serde_json::Value {
    let packing = &bound.packing;
    json!({
        "trace": loaded.path.display().to_string(),
        "trace_digest": loaded.digest,
        "poolsim_version": env!("CARGO_PKG_VERSION"),
        "lifetimes": bound.lifetimes.items.len(),
        "alignment_bytes": bound.units.alignment,
        "granule_bytes": bound.units.granule,
        "live_bytes": bound.bounds.live,
        "live_without_waiting_bytes": bound.bounds.live_without_waiting,
        "rounded_bytes": bound.bounds.rounded,
        "granular_bytes": bound.bounds.granular,
        "packing": {
            "bytes": packing.height,
            "granular_bytes": bound.packed(),
            "least_bytes": packing.least,
            "gap": gap(bound),
            "proof": packing.proof,
            "steps": args.steps,
        },
    })
}

/// How far the packing is above what is shown to be the least.
fn gap(bound: &Bound) -> f64 {
    let least = bound.packing.least.max(1);
    (bound.packing.height - bound.packing.least.min(bound.packing.height)) as f64 / least as f64
}

fn text(loaded: &Loaded, bound: &Bound, out: &mut Out) -> anyhow::Result<()> {
    let path: &Path = &loaded.path;
    let count = show_plural(bound.lifetimes.items.len() as u64, "allocation");
    writeln!(out, "trace      {}, {count} (digest {})", path.display(), short(&loaded.digest))?;
    writeln!(out)?;
    let mut table = plain_table();
    table.set_header(["memory", "bytes", "above live"]);
    let bounds = &bound.bounds;
    let mut row = |name: String, bytes: Bytes| {
        let above = format!("{:+.2} %", above(bytes, bound) * 100.0);
        table.add_row([name, ShowBytes(bytes).to_string(), above]);
    };
    if bounds.live_without_waiting != bounds.live {
        row("live, if no free waited".into(), bounds.live_without_waiting);
    }
    row("live".into(), bounds.live);
    if bound.units.alignment > 1 {
        row(format!("rounded to {}", plain(bound.units.alignment)), bounds.rounded);
    }
    if bound.units.granule > 1 {
        row(format!("in granules of {}", plain(bound.units.granule)), bounds.granular);
    }
    row("packed offline".into(), bound.packed());
    numbers_right(&mut table);
    write!(out, "{}", finish(&table))?;
    writeln!(out)?;
    out.write_all(crate::output::paragraph(&words(bound), 0).as_bytes())?;
    Ok(())
}

/// A size that is a setting, without a fraction where it has none.
fn plain(bytes: Bytes) -> String {
    ShowBytes(bytes).to_string().replace(".00", "")
}

fn words(bound: &Bound) -> String {
    let gap = gap(bound) * 100.0;
    match bound.packing.proof {
        Proof::Proven => "The packing is proven: no placement is lower.".into(),
        Proof::BestFound => format!(
            "The packing is the best found: at most {gap:.2} % above the least possible. More --steps may find a lower one."
        ),
        Proof::TimedOut => format!(
            "The search timed out: the packing is at most {gap:.2} % above the least possible, and another run may find \
             another one."
        ),
    }
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}
