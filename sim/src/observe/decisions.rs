//! The decision log as a table.

use crate::engine::{Observer, Step};
use std::io::{self, Write};

/// The first line of the table.
pub const DECISIONS_HEADER: &str = "event,action,addr,size,stream";

/// Writes every decision as a line of CSV, and lets the device forget it. For refused requests `addr` is the
/// device's free memory. The device must keep a log.
pub struct Decisions<W> {
    out: W,
    failed: Option<io::Error>,
}

impl<W: Write> Decisions<W> {
    /// Writes the header.
    pub fn new(mut out: W) -> io::Result<Self> {
        writeln!(out, "{DECISIONS_HEADER}")?;
        Ok(Decisions { out, failed: None })
    }

    /// Flushes and gives the writer back, or the first error that writing met.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Observer for Decisions<W> {
    fn on_step(&mut self, step: &Step<'_>) {
        if self.failed.is_some() {
            return;
        }
        for d in step.log {
            let name = d.action.name();
            let line = match d.action {
                poolsim_core::Action::Oom => {
                    writeln!(self.out, "{},{name},{},{},{}", d.event, d.addr, d.size, d.stream)
                }
                _ => writeln!(self.out, "{},{name},{:#x},{},{}", d.event, d.addr, d.size, d.stream),
            };
            if let Err(error) = line {
                self.failed = Some(error);
                return;
            }
        }
    }

    fn drains_log(&self) -> bool {
        true
    }
}
