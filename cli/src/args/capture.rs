//! The command line of `capture`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// How the driver's calls may be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// CUPTI, else interposed functions
    Auto,
    /// CUPTI alone
    Cupti,
    /// Interposed functions alone
    Preload,
}

/// Arguments of `poolsim capture`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim capture -o run.pickle -- python train.py --epochs 1
  poolsim capture -o run.pickle --every 5m -- torchrun --nproc-per-node 8 train.py
  poolsim capture -o run.pst --stacks -- python train.py
  poolsim capture --driver -o app.pst -- ./any-cuda-program
  poolsim capture -o run.pickle --finish run.pickle.capture   # after poolsim itself was killed

The command's output and exit code are its own. Each process that used CUDA gets a file: run.pickle, or run.rank0.pickle, \
run.rank1.pickle, … (run.pid1234.pickle without ranks), and beside it a .json with what a snapshot does not hold. A snapshot is \
written when a process ends, is refused memory, gets SIGTERM or SIGUSR1, and at every --every; of a process killed by SIGKILL the \
last one is kept. docs/capture.md says what is recorded and what not.")]
pub struct CaptureArgs {
    /// Where the trace goes: a PyTorch snapshot, which `verify` can check, or .pst, .json, … as `convert` writes
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Record the memory calls at the CUDA driver instead, of any program
    ///
    /// Of processes that use CUDA each gets a file; --via says how the calls are seen.
    #[arg(long, conflicts_with_all = ["stacks", "every", "max_entries", "finish"])]
    pub driver: bool,

    /// How to see the driver's calls
    #[arg(long, value_enum, value_name = "WAY", default_value = "auto", requires = "driver")]
    pub via: Via,

    /// Keep the driver call logs beside the traces: they hold every call, also those that are no events
    #[arg(long, requires = "driver")]
    pub keep_calls: bool,

    /// Record Python stacks too; this costs time in every request
    #[arg(long)]
    pub stacks: bool,

    /// Write a snapshot so often, as in 30s, 5m, 1h or 100steps, against losing all if the job is killed
    #[arg(long, value_name = "TIME|STEPS", value_parser = parse_every)]
    pub every: Option<Every>,

    /// Most history entries that a process keeps in memory; of longer runs the last ones are captured
    #[arg(long, value_name = "N", default_value_t = 2_000_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub max_entries: u64,

    /// Make the files of a capture whose poolsim was killed, from the folder that it left
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["command", "stacks", "every"])]
    pub finish: Option<PathBuf>,

    /// The job: a command with its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "finish")]
    pub command: Vec<std::ffi::OsString>,
}

/// How often a process writes a snapshot on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// After so much time.
    Time(Duration),
    /// After so many steps of its optimizers.
    Steps(u64),
}

fn parse_every(text: &str) -> Result<Every, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: Option<u64> = text[..digits].parse().ok();
    let unit = match &text[digits..] {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "step" | "steps" => {
            let steps = number.filter(|n| (1..=1_000_000_000).contains(n));
            return steps.map(Every::Steps).ok_or_else(|| format!("{text}: 1 to a billion steps"));
        }
        _ => return Err("give a whole number with s, m, h or steps, as in 5m or 100steps".into()),
    };
    let number = number.ok_or_else(|| format!("{text:?} has no number"))?;
    match number.checked_mul(unit) {
        Some(seconds @ 1..=2_592_000) => Ok(Every::Time(Duration::from_secs(seconds))),
        _ => Err(format!("{text}: at least 1s, at most 720h")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_steps_have_units() {
        assert_eq!(parse_every("30s"), Ok(Every::Time(Duration::from_secs(30))));
        assert_eq!(parse_every("5m"), Ok(Every::Time(Duration::from_secs(300))));
        assert_eq!(parse_every("100steps"), Ok(Every::Steps(100)));
        let wrong = ["", "5", "m", "0s", "-1s", "721h", "99999999999999999999h", "0steps", "steps"];
        for text in wrong {
            assert!(parse_every(text).is_err(), "{text}");
        }
    }
}
