//! `poolsim completions` and `poolsim man`: what shells and `man` are told of the command line.

use crate::args::{Cli, CompletionsArgs};
use crate::output::{Ending, Out};
use clap::CommandFactory;
use std::io::Write;

/// Prints a shell's completions.
pub fn completions(args: &CompletionsArgs, out: &mut Out) -> anyhow::Result<Ending> {
    // Written to memory first: the library takes a closed pipe for a broken program.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "poolsim", &mut text);
    out.write_all(&text)?;
    Ok(Ending::Fine)
}

/// Prints the manual page, with every command's own after it.
pub fn page(out: &mut Out) -> anyhow::Result<Ending> {
    let mut command = Cli::command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(out)?;
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        clap_mangen::Man::new(sub.clone()).render(out)?;
    }
    Ok(Ending::Fine)
}
