//! Folds over steps: what a run measured.
//!
//! A [`RunRecord`](poolsim_core::RunRecord) needs [`Totals`] and [`Ooms`] from the run itself, and a [`PeakState`] from a second, shorter
//! run: where memory was lost can only be said of one moment, the first at which reserved bytes reached their
//! peak, and which moment that was is known when the run is over.

mod calls;
mod keyframes;
mod ooms;
mod peak;
mod record;
mod series;
mod totals;

pub use calls::Calls;
pub use keyframes::Keyframes;
pub use ooms::{MAX_OOMS, Ooms};
pub use peak::{PeakLosses, PeakState, peak_state};
pub use record::{RunFacts, run_record};
pub use series::{Samples, Series, sample};
pub use totals::Totals;
