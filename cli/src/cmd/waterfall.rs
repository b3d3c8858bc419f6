//! `poolsim waterfall`: which rule of a policy costs how much.

use crate::args::WaterfallArgs;
use crate::choice::choose;
use crate::load::Input;
use crate::output::{self, Ending, Out, Usage};
use crate::runner::Setting;
use crate::waterfall::waterfall;
use poolsim_core::units::ShowBytes;
use poolsim_reports::data::Waterfall;
use poolsim_reports::quantity::{show_plural, show_signed};
use poolsim_reports::table::{finish, numbers_right, plain_table};
use poolsim_sim::DeviceProfile;
use serde_json::{Value, json};
use std::io::Write;

/// Measures the causes of one policy's reservation.
pub fn run(args: &WaterfallArgs, out: &mut Out) -> anyhow::Result<Ending> {
    if args.policies.len() > 1 {
        return Err(Usage("waterfall takes one --policy: it is about one run".into()).into());
    }
    let profile = DeviceProfile::h200();
    let input = Input::open(&args.trace, &args.select, &args.machine, &profile)?;
    let choices = choose(&args.policies, input.header(), &input.machine)?;
    let loaded = input.load()?;
    for remark in &loaded.remarks {
        eprintln!("note: {remark}");
    }
    let setting = Setting::new(&loaded, &profile, args.capacity)?;
    let found = waterfall(&setting, &choices[0], args.steps)?;
    if found.ooms > 0 {
        let refused = show_plural(found.ooms, "request");
        eprintln!(
            "warning: the run refuses {refused}, so that its reservation says little; give it more memory"
        );
    }
    if !loaded.events.header().knows.from_start {
        eprintln!(
            "note: the trace starts late: what was live then is requested first, in an empty heap"
        );
    }
    let spec = choices[0].resolved.spec().to_string();
    if args.json {
        out.json(&document(&loaded.path.display().to_string(), &loaded.digest, &spec, &found))?;
    } else {
        writeln!(out, "policy {spec}\n")?;
        text(&found, out)?;
    }
    Ok(Ending::Fine)
}

fn document(trace: &str, digest: &str, spec: &str, found: &Waterfall) -> Value {
    let causes = found.causes.iter().map(|measured| {
        json!({
            "cause": measured.cause,
            "bytes": measured.bytes,
            "peak_reserved_without_bytes": measured.peak,
            "counterfactual": measured.cause.counterfactual(),
        })
    });
    json!({
        "trace": trace,
        "trace_digest": digest,
        "policy": spec,
        "poolsim_version": env!("CARGO_PKG_VERSION"),
        "live_bytes": found.live,
        "causes": causes.collect::<Vec<_>>(),
        "interaction_bytes": found.interaction,
        "peak_reserved_bytes": found.peak,
        "ooms": found.ooms,
    })
}

fn text(found: &Waterfall, out: &mut Out) -> anyhow::Result<()> {
    let mut table = plain_table();
    table.set_header(["", "bytes", "of live"]);
    let share = |bytes: i64| format!("{:+.1} %", bytes as f64 * 100.0 / found.live.max(1) as f64);
    table.add_row(["live bound", &ShowBytes(found.live).to_string(), ""]);
    for measured in &found.causes {
        let (bytes, share) = match measured.peak {
            Some(_) => (show_signed(measured.bytes), share(measured.bytes)),
            None => ("not separable".into(), String::new()),
        };
        table.add_row([measured.cause.title().to_string(), bytes, share]);
    }
    let rest = [show_signed(found.interaction), share(found.interaction)];
    table.add_row(["interaction".to_string()].into_iter().chain(rest));
    table.add_row(["peak reserved", &ShowBytes(found.peak).to_string(), ""]);
    numbers_right(&mut table);
    write!(out, "{}", finish(&table))?;
    writeln!(
        out,
        "\nEach cause is what the peak falls by (with rounding: the bound rises by) in a replay without just it:"
    )?;
    for measured in &found.causes {
        let cause = measured.cause;
        let line = format!("{}: {}.", cause.title(), cause.counterfactual());
        out.write_all(output::paragraph(&line, 1).as_bytes())?;
    }
    let rest = "interaction: what only several causes together bring about (+), or what several of them claim (-).";
    out.write_all(output::paragraph(rest, 1).as_bytes())?;
    Ok(())
}
