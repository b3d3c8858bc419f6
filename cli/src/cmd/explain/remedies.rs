//! What would have helped, in words.

use super::Told;
use crate::output::Out;
use poolsim_advice::explain::{Moved, Remedy, Tried};
use poolsim_core::EventKind;
use poolsim_core::units::ShowBytes;
use poolsim_reports::quantity::{show_count, show_nanos, show_plural};
use std::io::{self, Write};

/// The smallest change first, then the others by kind.
pub(super) fn write(told: &Told, out: &mut Out) -> io::Result<()> {
    let explanation = &told.explanation;
    let refused = explanation.measured.ooms > 0;
    let Some(first) = explanation.remedies.first() else {
        let text = if refused {
            "Nothing that was tried by itself lets it pass: a setting, an empty_cache() at an earlier moment, tensors moved, another \
             order. `poolsim advise` tries settings in combination."
        } else {
            "Nothing that was tried by itself lowers the peak by 1 %: a setting, an empty_cache() at an earlier moment, tensors moved, \
             another order."
        };
        return super::text::para(text, out);
    };
    let what = if refused { "would have let it pass" } else { "would have lowered the peak" };
    let text = format!("The smallest change that {what}: {}.", change(told, &first.remedy));
    super::text::para(&format!("{text} {}", outcome(told, first)), out)?;
    let mut shown = vec![kind(&first.remedy)];
    let mut others = Vec::new();
    for tried in &explanation.remedies[1..] {
        // The best of each kind, and of each option.
        if !shown.contains(&kind(&tried.remedy)) {
            shown.push(kind(&tried.remedy));
            others.push(format!("{}. {}", change(told, &tried.remedy), outcome(told, tried)));
        }
    }
    if !others.is_empty() {
        writeln!(out, "\nSo would, each by itself:")?;
        for words in others {
            let text = crate::output::paragraph(&words, 4);
            write!(out, "  - {}", text.trim_start())?;
        }
    }
    Ok(())
}

fn kind(remedy: &Remedy) -> &str {
    match remedy {
        Remedy::Setting { conf } => conf.split(':').next().unwrap_or(conf),
        Remedy::EmptyCache { .. } => "an empty_cache",
        Remedy::CompleteFrees => "frees",
        Remedy::Earlier(_) => "earlier",
        Remedy::Later(_) => "later",
        Remedy::Elsewhere(_) => "elsewhere",
        Remedy::WarmUp { .. } => "a warm-up",
        Remedy::LargestFirst => "another order",
    }
}

fn change(told: &Told, remedy: &Remedy) -> String {
    let variable = told.torch.variable();
    match remedy {
        Remedy::Setting { conf } if conf.is_empty() => format!("PyTorch's defaults (unset {variable})"),
        Remedy::Setting { conf } => format!("{variable}={conf}"),
        Remedy::EmptyCache { event } => {
            format!("torch.cuda.empty_cache() before event {}{}", show_count(*event), asks(told, *event))
        }
        Remedy::Earlier(moved) => format!("{} made before everything else", tensors(moved)),
        Remedy::Later(moved) => format!("{} made after the refused request", tensors(moved)),
        Remedy::Elsewhere(moved) => {
            format!("{} made in a pool of their own (torch.cuda.use_mem_pool)", tensors(moved))
        }
        Remedy::CompleteFrees => {
            "frees that do not wait for other streams: let the freeing stream wait for the others' work before the tensor goes, \
             instead of record_stream"
                .into()
        }
        Remedy::WarmUp { requests, bytes } => format!(
            "the largest needs first: a warm-up step that asks for {} ({}) and frees them before anything else",
            show_plural(*requests as u64, "tensor"),
            ShowBytes(*bytes)
        ),
        Remedy::LargestFirst => "the iterations with the largest needs first".into(),
    }
}

/// What an event asks for, if that says where in the program it is.
fn asks(told: &Told, event: u64) -> String {
    let trace = &told.asked.job.trace;
    let stack = trace.event_stacks.get(event as usize).copied().unwrap_or_default();
    let place = poolsim_advice::explain::place(trace, stack);
    if !place.is_empty() {
        return format!(" (at {place})");
    }
    let Some(event) = trace.events.get(event as usize) else { return String::new() };
    let size = ShowBytes(event.size);
    match event.kind() {
        EventKind::Alloc | EventKind::AllocRefused => format!(" (which asks for {size})"),
        EventKind::Free | EventKind::FreeLater => format!(" (which frees {size})"),
        _ => String::new(),
    }
}

fn tensors(moved: &Moved) -> String {
    let who = if moved.place.is_empty() { String::new() } else { format!(" of {}", moved.place) };
    match moved.tensors {
        1 => format!(
            "one tensor{who}, {}, asked for at event {},",
            ShowBytes(moved.bytes),
            show_count(moved.event)
        ),
        n => format!(
            "{} tensors{who}, {} together, the first asked for at event {},",
            show_count(n as u64),
            ShowBytes(moved.bytes),
            show_count(moved.event)
        ),
    }
}

fn outcome(told: &Told, tried: &Tried) -> String {
    let before = &told.explanation.measured;
    let m = &tried.measured;
    let peak = ShowBytes(m.peak_reserved_bytes);
    let time = match m.device_time_ns.checked_sub(before.device_time_ns) {
        Some(0) => String::new(),
        Some(more) => format!(", {} more in device calls", show_nanos(more)),
        None => format!(
            ", {} less in device calls",
            show_nanos(before.device_time_ns - m.device_time_ns)
        ),
    };
    match (before.ooms, m.ooms) {
        (0, _) => {
            format!("Peak {peak} instead of {}{time}.", ShowBytes(before.peak_reserved_bytes))
        }
        (_, 0) => format!("No request is refused then; peak {peak}{time}."),
        (_, n) => {
            format!("{} still refused later; peak {peak}{time}.", super::text::requests_are(n))
        }
    }
}
