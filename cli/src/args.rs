//! The command line: syntax only. What the arguments mean together is each command's second step.

mod advice;
mod capture;
mod lab;
mod runs;
mod setup;
mod synth;
mod traces;

pub use advice::{AdviseArgs, CheckArgs, ExplainArgs};
pub use capture::{CaptureArgs, Every, Via};
pub use lab::{BoundArgs, FrontierArgs, SweepArgs, WaterfallArgs};
pub use runs::{BenchArgs, CompareArgs, ReplayArgs, ReportArgs};
pub use setup::{CalibrateArgs, CompletionsArgs, DevicesArgs, NewPolicyArgs, PoliciesArgs};
pub use synth::SynthArgs;
pub use traces::{ConvertArgs, InfoArgs, VerifyArgs};

use crate::size::parse_size;
use crate::trace_args::TraceArgs;
use clap::{Args, Parser, Subcommand};
use poolsim_core::Bytes;

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
Exit codes (`capture` ends as its job does):
  0  fine
  1  an error; or `verify` found a difference, or a budget of `check` does not hold
  2  the command line was wrong
  3  `replay`, `explain`: the simulated job ran out of memory; `advise`: no setting carries the job";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Record a PyTorch job from outside, with nothing changed in it
    Capture(CaptureArgs),
    /// Say what is in a trace
    Info(InfoArgs),
    /// Write a trace in another format
    Convert(ConvertArgs),
    /// Replay a trace through one or more policies and compare them
    Replay(ReplayArgs),
    /// Make a page, tables or figures of runs that were kept
    Report(ReportArgs),
    /// Run policies in simulation and on a real GPU and say how far apart they are
    Compare(CompareArgs),
    /// Cut, merge, scale, strip, shrink or anonymize traces
    Trace(TraceArgs),
    /// Check that the pytorch policy decides what PyTorch decided, entry for entry
    Verify(VerifyArgs),
    /// Find the allocator setting that suits a job best, and say how sure that is
    Advise(AdviseArgs),
    /// Say why a job ran out of memory, or reserves so much, and what would have helped
    Explain(ExplainArgs),
    /// Hold a run against a budget and a baseline, for CI
    Check(CheckArgs),
    /// Say how little memory a trace could do with, and find a placement that does
    Bound(BoundArgs),
    /// Say which rule of a policy costs how much memory
    Waterfall(WaterfallArgs),
    /// Find the smallest memory on which the job lives, for each policy
    Frontier(FrontierArgs),
    /// Run many policies on many traces, and go on after an interruption
    Sweep(SweepArgs),
    /// Measure how fast the simulator replays a trace
    Bench(BenchArgs),
    /// Measure what memory calls cost on a GPU, as a profile for the simulation
    Calibrate(CalibrateArgs),
    /// List the policies, or describe one with its parameters
    Policies(PoliciesArgs),
    /// Make a trace that nobody recorded, or longer and changed ones of a recording
    Synth(SynthArgs),
    /// Write the file that a policy of your own starts from
    NewPolicy(NewPolicyArgs),
    /// List the GPUs of this machine
    Devices(DevicesArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man,
}

/// Which part of a trace.
#[derive(Debug, Args, Clone)]
pub struct SelectArgs {
    /// Which device, where a file holds several
    ///
    /// Numbered as in the recorded process. Without it, the one with the most entries is taken.
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Reads a damaged or unfinished .pst up to its last complete frame
    ///
    /// What was lost is said as a note.
    #[arg(long)]
    pub recover: bool,
}

/// What snapshots do not say of the device.
#[derive(Debug, Args, Clone, Default)]
pub struct MachineArgs {
    /// Total memory of the device, as in 80GiB
    ///
    /// PyTorch's snapshots do not hold it. Without it: the sidecar (FILE.json beside FILE.pickle), else
    /// what the trace says, else the device of the built-in profile.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub device_memory: Option<Bytes>,

    /// Share of the device's memory that the allocator may take, from 0 to 1
    ///
    /// What torch.cuda.set_per_process_memory_fraction was called with. Snapshots do not hold it. Without
    /// it: the sidecar, else what the trace says, else no limit.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub memory_fraction: Option<f64>,
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("give a number from 0 to 1, as in 0.8".into()),
    }
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
