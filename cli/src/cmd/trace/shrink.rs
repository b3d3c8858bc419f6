//! `poolsim trace shrink`.

use super::{exporter, load, write};
use crate::choice::{Choice, choose};
use crate::output::{Ending, Out, Usage};
use crate::trace_args::ShrinkArgs;
use anyhow::{Context, bail};
use poolsim_core::units::ShowBytes;
use poolsim_core::{Bytes, Trace, TraceError, TraceReader};
use poolsim_reports::quantity::{show_count, show_plural};
use poolsim_sim::{DeviceProfile, Placement, ReplayOptions, RunEnd, SimConfig, SimDevice, replay};
use poolsim_traces::transform::{Flow, Shrunk, shrink};
use poolsim_traces::{OpenOptions, Source, open};
use std::io::Write;
use std::sync::Arc;

/// What is to be kept, and the world in which it is asked for.
struct Property {
    choices: Vec<Choice>,
    /// Percent by which the first policy must need less than the second one; `None` to ask for a refusal.
    by: Option<f64>,
    machine: crate::machine::Machine,
    profile: DeviceProfile,
    capacity: Option<Bytes>,
}

/// Shrinks a trace.
pub fn run(args: &ShrinkArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let exporter = exporter(&args.files.output, std::slice::from_ref(&args.files.input))?;
    let loaded = load(&args.files)?;
    let labels: Vec<String> = match (&args.oom, &args.better, &args.than) {
        (Some(policy), ..) => vec![policy.clone()],
        (None, Some(better), Some(than)) => vec![better.clone(), than.clone()],
        _ => {
            return Err(
                Usage("say what to keep: --oom POLICY, or --better A --than B".into()).into()
            );
        }
    };
    let stated = loaded.events.header().attributes.get("capacity");
    let capacity = args.capacity.or_else(|| stated.and_then(|text| text.parse().ok()));
    let property = Property {
        choices: choose(&labels, loaded.events.header(), &loaded.machine)?,
        by: args.oom.is_none().then_some(args.by),
        machine: loaded.machine.clone(),
        profile: DeviceProfile::h200(),
        capacity,
    };
    let trace = Flow::of(loaded.events.into_source())?.collect()?;
    let found = shrink(&trace, args.most_replays, &mut |trace| property.holds(trace))?;
    let Some(Shrunk { mut trace, tests, minimal }) = found else {
        bail!("{}", property.denial(&trace)?)
    };
    if let Some(capacity) = capacity {
        trace.header.attributes.insert("capacity".into(), capacity.to_string());
    }
    trace.header.device_memory = Some(property.machine.caps.total);
    trace.header.notes.push(format!("shrunk, such that {}", property.words()));
    let events = trace.events.len() as u64;
    let smaller = Flow::of(Source::Trace(Box::new(trace)))?;
    write(smaller, exporter, &args.files.output, out)?;
    property.check_file(&args.files.output)?;
    let end = if minimal {
        "nothing more can be left out"
    } else {
        "the replays ran out before it was known that nothing more can be left out (--most-replays)"
    };
    let replays = show_plural(tests, "replay");
    writeln!(out, "{} left after {replays}; {end}", show_plural(events, "event"))?;
    writeln!(out, "it still holds that {}", property.words())?;
    Ok(Ending::Fine)
}

impl Property {
    fn holds(&self, trace: &Trace) -> Result<bool, TraceError> {
        let trace = Arc::new(trace.clone());
        let Some(by) = self.by else { return Ok(self.run(&trace, 0)?.ooms > 0) };
        let peak = |n| self.run(&trace, n).map(|end| end.stats.reserved.peak);
        let (better, other) = (peak(0)?, peak(1)?);
        Ok(other > 0 && better as f64 <= other as f64 * (1.0 - by / 100.0))
    }

    fn run(&self, trace: &Arc<Trace>, choice: usize) -> Result<RunEnd, TraceError> {
        let mut device = SimDevice::new(SimConfig {
            caps: self.machine.caps.clone(),
            profile: self.profile.clone(),
            capacity: self.capacity,
            placement: Placement::Driver,
            keep_log: false,
        });
        let built = self.choices[choice].resolved.build(&self.machine.env());
        let mut policy = built.expect("it was built once when it was chosen").policy;
        let mut source = TraceReader::new(Arc::clone(trace));
        replay(&mut source, &mut policy, &mut device, &mut (), &ReplayOptions::default())
    }

    fn words(&self) -> String {
        let first = &self.choices[0].label;
        match self.by {
            None => format!("`{first}` refuses a request{}", self.within()),
            Some(by) => format!(
                "`{first}` reserves at least {by} % less at its peak than `{}`{}",
                self.choices[1].label,
                self.within()
            ),
        }
    }

    fn within(&self) -> String {
        let total = self.capacity.unwrap_or(self.machine.caps.total);
        format!(" on a device with {}", ShowBytes(total))
    }

    /// Why the whole trace does not have the property.
    fn denial(&self, trace: &Trace) -> anyhow::Result<String> {
        let trace = Arc::new(trace.clone());
        let mut peaks = Vec::new();
        for (n, choice) in self.choices.iter().enumerate() {
            let end = self.run(&trace, n)?;
            let ooms = show_count(end.ooms);
            let peak = ShowBytes(end.stats.reserved.peak);
            peaks.push(format!("`{}` reserves {peak} and refuses {ooms}", choice.label));
        }
        Ok(format!(
            "the trace does not show that {}: {}; state what it shows, or give another --capacity",
            self.words(),
            peaks.join(", ")
        ))
    }

    /// Reads what was written and asks once more.
    fn check_file(&self, path: &std::path::Path) -> anyhow::Result<()> {
        let trace = open(path, &OpenOptions::default())?.source.into_trace()?;
        let held = self.holds(&trace).with_context(|| path.display().to_string())?;
        anyhow::ensure!(
            held,
            "{}: the property is lost in this format; write a .pst or .json",
            path.display()
        );
        Ok(())
    }
}
