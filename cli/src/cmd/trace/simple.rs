//! Tools of one trace that stream it: slice, scale, strip.

use super::{exporter, flow, load, write};
use crate::output::{Ending, Out, Usage};
use crate::trace_args::{ScaleArgs, SliceArgs, StripArgs};
use poolsim_core::Nanos;
use poolsim_traces::transform::{Factor, Flow, Span, Strip, scale, slice, strip};

/// `poolsim trace slice`.
pub fn run_slice(args: &SliceArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let exporter = exporter(&args.files.output, std::slice::from_ref(&args.files.input))?;
    let flow = flow(load(&args.files)?)?;
    let span = span(args, &flow)?;
    write(slice(flow, span)?, exporter, &args.files.output, out)
}

fn span(args: &SliceArgs, flow: &Flow) -> Result<Span, Usage> {
    let by_number = args.first_event.is_some() || args.last_event.is_some();
    let by_time = args.from.is_some() || args.to.is_some();
    let span = match &args.span {
        Some(name) => named(name, flow)?,
        None if by_number => Span::Events {
            from: args.first_event.unwrap_or(0),
            to: args.last_event.map_or(u64::MAX, |last| last.saturating_add(1)),
        },
        None if by_time => {
            Span::Time { from: args.from.unwrap_or(0), to: args.to.unwrap_or(Nanos::MAX) }
        }
        None => {
            let text =
                "say which part: --span NAME, --from and --to, or --first-event and --last-event";
            return Err(Usage(text.into()));
        }
    };
    let (Span::Events { from, to } | Span::Time { from, to }) = span;
    if from >= to {
        return Err(Usage("the part ends before it starts".into()));
    }
    Ok(span)
}

/// The time of the first annotation with a name.
fn named(name: &str, flow: &Flow) -> Result<Span, Usage> {
    let spans = &flow.tables.annotations;
    if let Some(found) = spans.iter().find(|span| span.name == name) {
        let to = found.end.map_or(Nanos::MAX, |end| end.max(found.start + 1));
        return Ok(Span::Time { from: found.start, to });
    }
    let mut names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    names.dedup();
    let there = match names.as_slice() {
        [] => "the trace has no annotations".to_string(),
        names => format!("there are {}", names[..names.len().min(10)].join(", ")),
    };
    Err(Usage(format!("no annotation is named `{name}`; {there}")))
}

/// `poolsim trace scale`.
pub fn run_scale(args: &ScaleArgs, out: &mut Out) -> anyhow::Result<Ending> {
    if args.size.is_none() && args.time.is_none() {
        return Err(Usage("say by how much: --size FACTOR or --time FACTOR".into()).into());
    }
    let exporter = exporter(&args.files.output, std::slice::from_ref(&args.files.input))?;
    let (size, time) = (args.size.unwrap_or(Factor::ONE), args.time.unwrap_or(Factor::ONE));
    let flow = scale(flow(load(&args.files)?)?, size, args.at_least, time);
    write(flow, exporter, &args.files.output, out)
}

/// `poolsim trace strip`.
pub fn run_strip(args: &StripArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let exporter = exporter(&args.files.output, std::slice::from_ref(&args.files.input))?;
    let &StripArgs { stacks, annotations, notes, heap, times, streams, pools, .. } = args;
    let mut what = Strip { stacks, annotations, heap, notes, times, streams, pools };
    if what == Strip::default() {
        what = Strip { stacks: true, annotations: true, notes: true, ..what };
    }
    write(strip(flow(load(&args.files)?)?, what), exporter, &args.files.output, out)
}
