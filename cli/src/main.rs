//! The command line of poolsim.
#![forbid(unsafe_code)]

mod args;
mod cmd;
mod output;

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
        Err(error) if output::is_broken_pipe(&error) => Ending::Fine.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            if error.is::<output::Usage>() { Ending::Usage.into() } else { Ending::Failed.into() }
        }
    }
}

fn run(cli: Cli, out: &mut Out) -> anyhow::Result<Ending> {
    match cli.command {
        Command::Policies(args) => cmd::policies::run(&args, out),
        Command::Devices(args) => cmd::devices::run(&args, out),
    }
}
