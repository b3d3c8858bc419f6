//! The command line of poolsim.
#![forbid(unsafe_code)]

mod args;
mod asked;
mod bounds;
mod choice;
mod cmd;
mod contents;
mod frontier;
mod gpu;
mod keep;
mod lab;
mod lacks;
mod load;
mod machine;
mod output;
mod profile;
mod runner;
mod sidecar;
mod size;
mod sweep;
mod trace_args;
mod watch;
mod waterfall;

use args::{Cli, Command};
use clap::Parser;
use output::{Ending, Out};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = Out::stdout();
    let result = run(cli, &mut out).and_then(|ending| {
        out.flush()?;
        Ok(ending)
    });
    match result {
        Ok(ending) => ending.into(),
        // The reader of a pipe has seen enough: that is its right, and no error.
        Err(error) if out.pipe_closed || output::is_broken_pipe(&error) => Ending::Fine.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            if error.is::<output::Usage>() { Ending::Usage.into() } else { Ending::Failed.into() }
        }
    }
}

fn run(cli: Cli, out: &mut Out) -> anyhow::Result<Ending> {
    match cli.command {
        Command::Capture(args) => cmd::capture::run(&args),
        Command::Info(args) => cmd::info::run(&args, out),
        Command::Convert(args) => cmd::convert::run(&args, out),
        Command::Replay(args) => cmd::replay::run(&args, out),
        Command::Calibrate(args) => cmd::calibrate::run(&args, out),
        Command::Compare(args) => cmd::compare::run(&args, out),
        Command::Trace(args) => cmd::trace::run(&args, out),
        Command::Report(args) => cmd::report::run(&args),
        Command::Verify(args) => cmd::verify::run(&args, out),
        Command::Advise(args) => cmd::advise::run(&args, out),
        Command::Check(args) => cmd::check::run(&args, out),
        Command::Explain(args) => cmd::explain::run(&args, out),
        Command::Bound(args) => cmd::bound::run(&args, out),
        Command::Waterfall(args) => cmd::waterfall::run(&args, out),
        Command::Frontier(args) => cmd::frontier::run(&args, out),
        Command::Sweep(args) => cmd::sweep::run(&args, out),
        Command::Bench(args) => cmd::bench::run(&args, out),
        Command::Policies(args) => cmd::policies::run(&args, out),
        Command::Synth(args) => cmd::synth::run(&args, out),
        Command::NewPolicy(args) => cmd::new_policy::run(&args, out),
        Command::Devices(args) => cmd::devices::run(&args, out),
        Command::Completions(args) => cmd::manual::completions(&args, out),
        Command::Man => cmd::manual::page(out),
    }
}
