//! Traces as RMM event logs, for RMM's own replay benchmark.

use super::names::Names;
use crate::import::rmm_csv::HEADER;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{Batch, EventKind, EventSource, Nanos, TraceError};
use std::io::{self, Write};

const US: Nanos = 1000;
const DAY_US: u64 = 24 * 3600 * 1_000_000;

/// The longest pause that a clock without a date can show so that a reader still knows midnight from a step back.
const LONGEST_PAUSE_US: u64 = 22 * 3600 * 1_000_000;

/// Writes what such a log can hold: requests, refusals and frees, their order and streams, and times in microseconds.
/// A free is written when the program freed, not when it was complete. Pointers are made up, each used once.
///
/// # Errors
/// Those of the source and of `out`; a pause of most of a day; a free of what is not live.
pub fn write_rmm_csv(out: &mut dyn Write, source: &mut dyn EventSource) -> Result<(), TraceError> {
    let failed = |e: io::Error| {
        TraceError::new(TraceErrorKind::Io, Place::Whole, format!("cannot be written: {e}"))
    };
    let mut names = Names::new(source.header());
    let start = source.header().start_unix_us.unwrap_or(0) % DAY_US;
    writeln!(out, "{HEADER}").map_err(failed)?;
    let mut batch = Batch::default();
    let (mut index, mut last) = (0, None);
    while source.fill(&mut batch)? {
        for event in &batch.events {
            let place = Place::Event(index);
            index += 1;
            let action = match event.kind() {
                EventKind::Alloc | EventKind::Preexisting => "allocate",
                EventKind::AllocRefused => "allocate failure",
                EventKind::Free | EventKind::FreeLater => "free",
                _ => continue,
            };
            let at = event.at / US;
            if last.is_some_and(|last| at - last > LONGEST_PAUSE_US) {
                let what = "comes more than 22 hours after the one before, and an RMM log has no dates; write the \
                            parts as logs of their own (poolsim trace slice)";
                return Err(TraceError::new(TraceErrorKind::Refused, place, what));
            }
            last = Some(at);
            let pointer = match event.kind() {
                EventKind::AllocRefused => "(nil)".to_string(),
                kind if kind.makes_live() => format!("{:#x}", names.begin(event)),
                _ => format!("{:#x}", names.end(event, place)?),
            };
            let (stream, size) = (names.stream(event.stream), event.size);
            let time = TimeOfDay((start + at) % DAY_US);
            writeln!(out, "1,{time},{action},{pointer},{size},{stream:#x}").map_err(failed)?;
        }
    }
    out.flush().map_err(failed)
}

/// Microseconds since midnight.
struct TimeOfDay(u64);

impl std::fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, us) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        write!(f, "{hours:02}:{minutes:02}:{:02}.{us:06}", seconds % 60)
    }
}
