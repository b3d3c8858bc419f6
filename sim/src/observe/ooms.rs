//! Refused requests.

use crate::engine::{Observer, Step};
use poolsim_core::record::OomRecord;

/// As many refused requests as a record keeps.
pub const MAX_OOMS: usize = 1000;

/// The first refused requests, with the state in which each was refused.
#[derive(Clone, Debug, Default)]
pub struct Ooms(pub Vec<OomRecord>);

impl Observer for Ooms {
    #[inline(always)]
    fn on_step(&mut self, step: &Step<'_>) {
        if let Some(oom) = step.oom {
            self.keep(oom);
        }
    }
}

impl Ooms {
    #[cold]
    fn keep(&mut self, oom: &OomRecord) {
        if self.0.len() < MAX_OOMS {
            self.0.push(oom.clone());
        }
    }
}
