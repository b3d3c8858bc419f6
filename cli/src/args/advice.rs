//! Arguments of the commands that say what would have saved a run.

use super::{MachineArgs, SelectArgs};
use crate::size::parse_size;
use clap::Args;
use poolsim_advice::Torch;
use poolsim_core::Bytes;
use std::path::PathBuf;

/// Arguments of `advise`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim advise run.pickle                         # which setting reserves least?
  poolsim advise run.pickle --capacity 40GiB        # which one carries the job on 40 GiB?
  poolsim advise run.pickle other-run.pickle        # and does it hold on another recording?
  poolsim advise ranks/                             # one setting for all ranks of a folder
  eval \"$(poolsim advise run.pickle | tail -1)\"

The last line is the one to run. Every number is the outcome of a replay. Settings are tried on changed
recordings too, and those that win on one recording only are not advised; docs/advice.md says how.

Exit code 3 says that no setting carries the job.")]
pub struct AdviseArgs {
    /// The trace, or a folder with one snapshot for each rank; further files are other recordings of the same job
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub select: SelectArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: MachineArgs,
    /// Bytes of the device that this job can have; the rest is taken by others
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub capacity: Option<Bytes>,
    /// The version of PyTorch that the line is for, as in 2.11 [default: the recording's, else 2.11]
    ///
    /// It decides the variable's name and which options there are. The rules simulated are those of 2.11.
    #[arg(long, value_name = "VERSION", value_parser = parse_torch)]
    pub torch: Option<Torch>,
    /// How many settings to try at most [default: as many as replay 60 million events, from 48 to 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub budget: Option<u32>,
    /// Of everything that is drawn at random; the same seed gives the same advice
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Prices of device calls, as `calibrate` writes them [default: an H200's]
    #[arg(long, value_name = "PROFILE.toml")]
    pub profile: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim explain run.pickle                        # why did it run out of memory?
  poolsim explain run.pickle --capacity 40GiB       # why would it, on 40 GiB?
  poolsim explain ranks/                            # of several ranks, the worst
  poolsim explain run.pickle --json | jq .remedies

Of what would have helped, each is a replay of its own. If the program needs more at once than there is, that
is said first, with who holds it.

Exit code 3 says that the job ran out of memory.")]
pub struct ExplainArgs {
    /// The trace, or a folder with one snapshot for each rank
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Settings of PyTorch's allocator [default: recorded]
    #[arg(long, short = 'p', value_name = "SPEC")]
    pub policy: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub select: SelectArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: MachineArgs,
    /// Bytes of the device that this job can have; the rest is taken by others
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub capacity: Option<Bytes>,
    /// The version of PyTorch whose options may be named [default: the recording's, else 2.11]
    #[arg(long, value_name = "VERSION", value_parser = parse_torch)]
    pub torch: Option<Torch>,
    /// Prices of device calls, as `calibrate` writes them [default: an H200's]
    #[arg(long, value_name = "PROFILE.toml")]
    pub profile: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim check run.pickle --budget 'reserved<=70GiB, ooms==0'
  poolsim check run.pickle --baseline main.pickle --budget 'reserved<=baseline+2%, retries<=baseline'
  poolsim check run.pickle --budget 'ooms==0' --capacity 40GiB --junit memory.xml

A budget compares metrics of a replay: reserved, allocated, active, requested (their peaks), ooms, retries,
fragmentation, device_time, and every metric by its name in `replay --json`.

Exit code 0 says that the budget holds, 1 that it does not.")]
pub struct CheckArgs {
    /// The trace, or a folder with one snapshot for each rank
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// What the run may come to [default: ooms==0; with --baseline also reserved<=baseline+1%]
    #[arg(long, value_name = "BUDGET")]
    pub budget: Option<String>,
    /// The trace of another run to compare with; of a folder, its files of the same names
    #[arg(long, value_name = "RUN")]
    pub baseline: Option<PathBuf>,
    /// Settings of PyTorch's allocator [default: recorded]
    #[arg(long, short = 'p', value_name = "SPEC")]
    pub policy: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub select: SelectArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: MachineArgs,
    /// Bytes of the device that this job can have; the rest is taken by others
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub capacity: Option<Bytes>,
    /// Write the outcome as JUnit XML too, which CI systems show
    #[arg(long, value_name = "FILE.xml")]
    pub junit: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

fn parse_torch(text: &str) -> Result<Torch, String> {
    text.parse().map_err(|error: poolsim_core::ConfigError| error.0)
}
