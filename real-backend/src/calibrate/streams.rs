//! Events and host waits.

use super::{Bench, State};
use crate::call::Result;

const ROUNDS: usize = 4000;

impl Bench {
    /// The calls themselves on idle streams; the time that a host waits for work is the work's.
    pub(super) fn streams(&mut self) -> Result<()> {
        let event = self.context.event()?;
        let result = self.on_event(event);
        let _ = self.context.destroy_event(event);
        result
    }

    fn on_event(&mut self, event: cudarc::driver::sys::CUevent) -> Result<()> {
        let (stream, other) = (self.stream, self.other);
        for _ in 0..ROUNDS {
            self.time("cuEventRecord", State::Again, 1, |c| c.record(event, stream))?;
            self.time("cuStreamWaitEvent", State::Again, 1, |c| c.wait(other, event))?;
            self.context.synchronize_event(event)?;
            self.time("cuEventQuery", State::Again, 1, |c| c.is_done(event))?;
        }
        self.context.synchronize()?;
        for _ in 0..ROUNDS {
            self.time("cuCtxSynchronize", State::Again, 1, |c| c.synchronize())?;
        }
        Ok(())
    }
}
