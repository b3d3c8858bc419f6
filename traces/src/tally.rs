//! What a trailer says about events, counted while they pass.

use crate::digest::Digester;
use crate::format::Trailer;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{Bytes, Event, EventKind, TraceError};

/// Counts events into a trailer.
#[derive(Default)]
pub(crate) struct Tally {
    /// Everything but the digest is up to date.
    pub trailer: Trailer,
    live: Bytes,
    digester: Digester,
}

impl Tally {
    /// Takes the next events: all of them, or none if one is not legal.
    pub fn add(&mut self, events: &[Event]) -> Result<(), TraceError> {
        let (mut live, mut peak, mut end) = (self.live, self.trailer.peak_live, self.trailer.end);
        for (index, event) in (self.trailer.events..).zip(events) {
            let illegal =
                |what| TraceError::new(TraceErrorKind::Illegal, Place::Event(index), what);
            if event.at < end {
                let what = format!("time runs backwards, from {end} to {} ns", event.at);
                return Err(illegal(what));
            }
            end = event.at;
            if u64::from(event.slot.0) > index {
                let what =
                    format!("slot {} is not dense: at most {index} were used before", event.slot);
                return Err(illegal(what));
            }
            match event.kind() {
                kind if kind.makes_live() => {
                    let sum = live.checked_add(event.size);
                    live = sum.ok_or_else(|| illegal("live bytes exceed 2^64 - 1".into()))?;
                    peak = peak.max(live);
                }
                EventKind::Free | EventKind::FreeDone => live = live.saturating_sub(event.size),
                _ => {}
            }
        }
        (self.live, self.trailer.peak_live, self.trailer.end) = (live, peak, end);
        for event in events {
            self.trailer.kinds[event.kind() as usize] += 1;
            self.trailer.slots = self.trailer.slots.max(event.slot.0.saturating_add(1));
        }
        self.trailer.events += events.len() as u64;
        self.digester.update(events);
        Ok(())
    }

    /// The trailer, with its digest.
    pub fn finish(&mut self) -> Trailer {
        let mut trailer = std::mem::take(&mut self.trailer);
        trailer.digest = std::mem::take(&mut self.digester).finish();
        trailer
    }
}
