//! The command line: syntax only. What the arguments mean together is each command's second step.

use clap::{Args, Parser, Subcommand};

/// Replays GPU allocation traces through allocator policies.
///
/// A trace says what a program asked of its GPU memory allocator. poolsim replays it through any
/// policy, PyTorch's own among them, and says how much memory that would have taken, what was
/// lost where, and whether the job would have run out of memory.
///
/// Start with `poolsim info TRACE`, ask with `poolsim replay TRACE --policy …`, and see with
/// `poolsim verify SNAPSHOT` that the `pytorch` policy decides what PyTorch decided.
#[derive(Debug, Parser)]
#[command(name = "poolsim", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  fine
  1  an error; or `verify` found a difference
  2  the command line was wrong
  3  `replay`: the simulated job ran out of memory";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the policies, or describe one with its parameters
    Policies(PoliciesArgs),
    /// List the GPUs of this machine
    Devices(DevicesArgs),
}

/// Arguments of `policies`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim policies
  poolsim policies pytorch")]
pub struct PoliciesArgs {
    /// Describe this policy
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print one JSON document: {"policies": [...]}
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `devices`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  poolsim devices --json")]
pub struct DevicesArgs {
    /// Print one JSON document: {"devices": [...]}
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
