//! `poolsim advise`: which setting would have been best.

mod cards;
mod document;
mod text;

use crate::args::AdviseArgs;
use crate::asked::{Asked, Files};
use crate::output::{self, Ending, Out};
use crate::profile;
use poolsim_advice::search::standard_budget;
use poolsim_advice::torch::SIMULATED;
use poolsim_advice::{Advice, Job, Measured, Options, Torch, Verdict, advise};
use poolsim_core::TraceError;
use rayon::prelude::*;
use std::path::PathBuf;

/// Everything that is to be said.
struct Answer {
    asked: Vec<Asked>,
    further: Vec<Asked>,
    torch: Torch,
    /// Nobody said the version.
    torch_assumed: bool,
    advice: Advice,
    /// By rank, where there are several: under the settings in force, and under the advised ones.
    ranks: Vec<[Measured; 2]>,
}

/// Searches and says what was found.
pub fn run(args: &AdviseArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let profile = profile::read(args.profile.as_deref())?;
    let files = Files {
        select: &args.select,
        machine: &args.machine,
        capacity: args.capacity,
        profile: &profile,
    };
    let (first, rest) = args.traces.split_first().expect("the command line has one");
    let read = |path: &PathBuf| -> anyhow::Result<Vec<Asked>> {
        Ok(files.read_all(path)?.into_iter().map(Asked::without_further_attempts).collect())
    };
    let asked = read(first)?;
    let mut further = Vec::new();
    for path in rest {
        further.extend(read(path)?);
    }
    for one in asked.iter().chain(&further) {
        one.remarks.iter().for_each(|remark| eprintln!("note: {remark}"));
    }
    if asked.iter().any(|one| one.job.starts_late()) {
        eprintln!(
            "note: the trace starts late: under every setting, what was held then is requested first, in an empty heap"
        );
    }
    if let Some(resolved) = &asked[0].job.recorded
        && resolved.def.name != "pytorch"
    {
        eprintln!(
            "note: the trace was recorded under `{}`; the comparison is with the defaults of PyTorch's own allocator",
            resolved.def.name
        );
    }
    let known = args.torch.or(asked[0].torch);
    let torch = known.unwrap_or(SIMULATED);
    let jobs: Vec<Job> = asked.iter().map(|one| one.job.clone()).collect();
    let others: Vec<Job> = further.iter().map(|one| one.job.clone()).collect();
    let options = Options { torch, budget: args.budget.map(|n| n as usize), seed: args.seed };
    let budget = options.budget.unwrap_or_else(|| standard_budget(&jobs)) as u64;
    let bar = output::progress(budget, 100, "trying settings");
    let advice = advise(&jobs, &others, &options, &|n| bar.inc(n))
        .map_err(|error| error.in_file(&asked[0].path))?;
    bar.finish_and_clear();
    let ranks = if jobs.len() > 1 { ranks(&jobs, &advice)? } else { Vec::new() };
    let torch_assumed = known.is_none();
    let answer = Answer { asked, further, torch, torch_assumed, advice, ranks };
    if args.json {
        out.json(&document::of(&answer))?;
    } else {
        text::write(&answer, out)?;
    }
    Ok(match answer.advice.verdict {
        Verdict::Set | Verdict::Keep => Ending::Fine,
        Verdict::Impossible | Verdict::NotFound => Ending::OutOfMemory,
    })
}

fn ranks(jobs: &[Job], advice: &Advice) -> Result<Vec<[Measured; 2]>, TraceError> {
    let both = |job: &Job| {
        let now = job.measure(&advice.now.setting.resolved)?;
        Ok([now, job.measure(&advice.setting.setting.resolved)?])
    };
    jobs.par_iter().map(both).collect()
}

impl Answer {
    /// The line to run.
    fn line(&self) -> String {
        let variable = self.torch.variable();
        match self.advice.setting.setting.conf() {
            "" => format!("unset {variable}"),
            conf => format!("export {variable}={conf}"),
        }
    }
}
