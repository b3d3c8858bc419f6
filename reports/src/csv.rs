//! Long results as CSV, a row per sample or decision.

use poolsim_core::record::{Decision, Sample};
use std::io;

/// Writes CSV rows of several runs into one file; the first column says which run.
pub struct CsvWriter<W: io::Write> {
    out: csv::Writer<W>,
}

impl<W: io::Write> CsvWriter<W> {
    /// Starts a file of samples (`--series`).
    pub fn series(out: W) -> io::Result<Self> {
        Self::start(
            out,
            &["policy", "event", "at_ns", "requested", "allocated", "active", "reserved"],
        )
    }

    /// Starts a file of decisions (`--decisions`).
    pub fn decisions(out: W) -> io::Result<Self> {
        Self::start(out, &["policy", "event", "action", "address", "bytes", "stream"])
    }

    fn start(out: W, header: &[&str]) -> io::Result<Self> {
        let mut out = csv::Writer::from_writer(out);
        out.write_record(header)?;
        Ok(CsvWriter { out })
    }

    /// Adds a sample of a run.
    pub fn sample(&mut self, policy: &str, s: &Sample) -> io::Result<()> {
        let numbers = [s.event, s.at, s.requested, s.allocated, s.active, s.reserved];
        let numbers = numbers.map(|n| n.to_string());
        self.out.write_record(std::iter::once(policy).chain(numbers.iter().map(String::as_str)))?;
        Ok(())
    }

    /// Adds a decision of a run. For `oom` the address column holds the device's free memory, as in
    /// PyTorch's own trace.
    pub fn decision(&mut self, policy: &str, d: &Decision) -> io::Result<()> {
        let (event, address, bytes) = (d.event.to_string(), d.addr.to_string(), d.size.to_string());
        let stream = d.stream.to_string();
        self.out.write_record([policy, &event, d.action.name(), &address, &bytes, &stream])?;
        Ok(())
    }

    /// Writes out what is buffered.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolsim_core::recording::Action;
    use poolsim_core::units::StreamId;

    #[test]
    fn specs_with_commas_are_quoted() {
        let mut bytes = Vec::new();
        let mut file = CsvWriter::decisions(&mut bytes).unwrap();
        let decision = Decision {
            event: 7,
            action: Action::SegmentAlloc,
            addr: 4096,
            size: 512,
            stream: StreamId(1),
        };
        file.decision("pytorch,max_split_size_mb:128", &decision).unwrap();
        file.finish().unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "policy,event,action,address,bytes,stream\n\
             \"pytorch,max_split_size_mb:128\",7,segment_alloc,4096,512,1\n"
        );
    }
}
