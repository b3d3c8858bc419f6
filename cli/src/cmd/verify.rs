//! `poolsim verify`: does the pytorch policy decide what PyTorch decided?

mod check;
mod document;
mod files;
mod state;
mod text;

use crate::args::VerifyArgs;
use crate::output::{self, Ending, Out};
use check::{Checked, Checker};
use poolsim_reports::json;
use rayon::prelude::*;

/// Checks every file, several at a time; results come in the order of the arguments.
pub fn run(args: &VerifyArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let files = files::expand(&args.snapshots)?;
    let checker = Checker::new(args);
    let bar = output::progress(files.len() as u64, 8, "verifying");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(args.jobs.unwrap_or(0)).build()?;
    let results: Vec<Checked> = pool.install(|| {
        files
            .par_iter()
            .map(|file| {
                let checked = checker.check(file);
                bar.inc(1);
                checked
            })
            .collect()
    });
    bar.finish_and_clear();
    if args.json {
        let files: Vec<_> = results.iter().map(document::document).collect();
        out.json(&json::list("files", &files))?;
    } else {
        text::write(&results, out)?;
    }
    let fine = results.iter().all(Checked::is_fine) && results.iter().any(Checked::is_equal);
    Ok(if fine { Ending::Fine } else { Ending::Failed })
}
