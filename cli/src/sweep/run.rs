//! Runs the cells of a plan, several at a time.

use super::{Cell, Journal, Plan};
use crate::args::SelectArgs;
use crate::bounds::{Bound, Units};
use crate::choice::choose;
use crate::load::{Input, Loaded};
use crate::runner::Setting;
use indicatif::ProgressBar;
use poolsim_sim::DeviceProfile;
use poolsim_sim::bound::Budget;
use rayon::prelude::*;
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What bounds a sweep.
pub struct Limits {
    /// Threads; 0 for one a core.
    pub jobs: usize,
    /// When to start no further cell.
    pub deadline: Option<Instant>,
}

/// A result for each cell, in the plan's order; `None` for those that the deadline left out.
pub type Results = Vec<Option<Value>>;

/// A trace, read once for all of its cells and forgotten after the last.
struct Shared {
    /// `None` before it is read and after it is forgotten.
    read: Mutex<Option<Arc<Read>>>,
    left: AtomicUsize,
}

/// A trace with its bound, or why it cannot be read.
type Read = Result<(Loaded, Option<Bound>), String>;

/// Runs what the journal does not have yet.
///
/// # Errors
/// The journal cannot be written; threads cannot be had.
pub fn run(
    plan: &Plan,
    journal: &Journal,
    limits: &Limits,
    bar: &ProgressBar,
) -> anyhow::Result<Results> {
    let mut left = vec![0; plan.traces.len()];
    for cell in plan.cells.iter().filter(|cell| !journal.done.contains_key(&cell.key)) {
        left[cell.trace] += 1;
    }
    let shared: Vec<Shared> = left
        .into_iter()
        .map(|n| Shared { read: Mutex::new(None), left: AtomicUsize::new(n) })
        .collect();
    let profile = DeviceProfile::h200();
    let one = |cell: &Cell| -> anyhow::Result<Option<Value>> {
        if let Some(done) = journal.done.get(&cell.key) {
            bar.inc(1);
            return Ok(Some(done.clone()));
        }
        if limits.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(None);
        }
        let trace = &shared[cell.trace];
        let read = trace.get(|| read(plan, cell, &profile));
        let result = result(plan, cell, &read, &profile);
        drop(read);
        trace.finished();
        let result = journal.add(&cell.key, &result)?;
        bar.inc(1);
        Ok(Some(result))
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(limits.jobs).build()?;
    // One cell after the other, so that as few traces as possible are in memory at a time.
    let cells = plan.cells.par_iter().with_max_len(1);
    pool.install(|| cells.map(one).collect())
}

impl Shared {
    fn get(&self, read: impl FnOnce() -> Read) -> Arc<Read> {
        let mut slot = self.read.lock().expect("reading panics are caught");
        Arc::clone(slot.get_or_insert_with(|| Arc::new(read())))
    }

    fn finished(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            *self.read.lock().expect("reading panics are caught") = None;
        }
    }
}

fn read(plan: &Plan, cell: &Cell, profile: &DeviceProfile) -> Read {
    let path = &plan.traces[cell.trace].path;
    let select = SelectArgs { device: None, recover: false };
    let read = || -> anyhow::Result<(Loaded, Option<Bound>)> {
        let loaded = Input::open(path, &select, &plan.machine, profile)?.load()?;
        let bound = match plan.bound_steps {
            Some(steps) => {
                let budget = Budget { steps, deadline: None };
                Some(Bound::of(&loaded, Units::of(&loaded, None), budget)?)
            }
            None => None,
        };
        Ok((loaded, bound))
    };
    caught(read)
}

fn caught<T>(work: impl FnOnce() -> anyhow::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| format!("{error:#}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("a bug, please report it: {}", text.unwrap_or("panicked")))
        }
    }
}

/// What is known of a cell when it is over: a run record, or why there is none.
fn result(plan: &Plan, cell: &Cell, read: &Read, profile: &DeviceProfile) -> Value {
    let trace = &plan.traces[cell.trace];
    let outcome = match read {
        Ok((loaded, bound)) => caught(|| record(cell, loaded, bound.as_ref(), profile)),
        Err(error) => Err(error.clone()),
    };
    let mut result = match outcome {
        Ok(record) => record,
        Err(error) => json!({ "error": error }),
    };
    result["trace"] = json!(trace.name);
    result["label"] = json!(cell.policy);
    result["capacity"] = json!(cell.capacity);
    result["seed"] = json!(trace.seed);
    result
}

fn record(
    cell: &Cell,
    loaded: &Loaded,
    bound: Option<&Bound>,
    profile: &DeviceProfile,
) -> anyhow::Result<Value> {
    let labels = [cell.policy.clone()];
    let choices = choose(&labels, loaded.events.header(), &loaded.machine)?;
    let setting = Setting::new(loaded, profile, cell.capacity)?;
    let mut finished = setting.run(&choices[0], &mut (), false)?;
    if let Some(bound) = bound {
        bound.set(&mut finished.record);
    }
    let mut value = json!(finished.record);
    value["verdict"] = json!(finished.verdict);
    Ok(value)
}
