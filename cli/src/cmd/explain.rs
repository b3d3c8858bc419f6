//! `poolsim explain`: why memory ran out, or why so much is reserved, and what would have helped.

mod document;
mod remedies;
mod tables;
mod text;

use crate::args::ExplainArgs;
use crate::asked::{Asked, Files};
use crate::output::{Ending, Out};
use crate::profile;
use poolsim_advice::Torch;
use poolsim_advice::explain::{Explanation, explain};
use poolsim_advice::torch::SIMULATED;
use rayon::prelude::*;

/// An explanation with where it came from.
struct Told {
    asked: Asked,
    torch: Torch,
    explanation: Explanation,
}

/// Explains one run, or of several ranks the worst one.
pub fn run(args: &ExplainArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let profile = profile::read(args.profile.as_deref())?;
    let files = Files {
        select: &args.select,
        machine: &args.machine,
        capacity: args.capacity,
        profile: &profile,
    };
    let mut ranks = files.read_all(&args.trace)?;
    let many = ranks.len();
    let worst = worst(&ranks, args)?;
    let asked = ranks.swap_remove(worst).without_further_attempts();
    asked.remarks.iter().for_each(|remark| eprintln!("note: {remark}"));
    if many > 1 {
        eprintln!("note: of {many} ranks this is the worst one");
    }
    let torch = args.torch.or(asked.torch).unwrap_or(SIMULATED);
    let setting = asked.setting(args.policy.as_deref())?;
    let explanation =
        explain(&asked.job, &setting, torch).map_err(|error| error.in_file(&asked.path))?;
    let told = Told { asked, torch, explanation };
    if args.json {
        out.json(&document::of(&told))?;
    } else {
        text::write(&told, out)?;
    }
    Ok(if told.explanation.measured.ooms > 0 { Ending::OutOfMemory } else { Ending::Fine })
}

/// The rank that is refused most, or reserves most.
fn worst(ranks: &[Asked], args: &ExplainArgs) -> anyhow::Result<usize> {
    if ranks.len() == 1 {
        return Ok(0);
    }
    let measured: Vec<(u64, u64)> = ranks
        .par_iter()
        .map(|asked| {
            let measured = asked.job.measure(&asked.setting(args.policy.as_deref())?.resolved)?;
            Ok((measured.ooms, measured.peak_reserved_bytes))
        })
        .collect::<anyhow::Result<_>>()?;
    let worst = measured.iter().max().copied().unwrap_or_default();
    Ok(measured.iter().position(|one| *one == worst).unwrap_or(0))
}
