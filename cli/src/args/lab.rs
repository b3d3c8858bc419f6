//! Arguments of the commands that ask how good a policy can be, with many runs.

use super::{MachineArgs, SelectArgs};
use crate::size::parse_size;
use clap::Args;
use poolsim_core::Bytes;
use std::path::PathBuf;

/// Arguments of `bound`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim bound run.pickle
  poolsim bound run.pickle --offsets plan.csv     # the placement, as minimalloc writes it
  poolsim bound minimalloc.csv --json | jq .packing

`packed offline` is a placement of every allocation that knows the whole trace, in one range of addresses.
It is *proven* if no placement is lower, else the *best found* in the steps that were allowed, or *timed out*.")]
pub struct BoundArgs {
    /// The trace, or buffer lifetimes as minimalloc's CSV
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub select: SelectArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: MachineArgs,
    /// Round sizes up to multiples of this [default: 512; minimalloc's CSV: its own alignment]
    #[arg(long, value_name = "SIZE", value_parser = parse_alignment)]
    pub align: Option<Bytes>,
    /// Work that the search may do; the same steps find the same placement
    #[arg(long, value_name = "N", default_value_t = poolsim_sim::bound::DEFAULT_STEPS)]
    pub steps: u64,
    /// Seconds after which the search stops whatever steps are left
    #[arg(long, value_name = "SECONDS")]
    pub time_limit: Option<u64>,
    /// Write the placement: minimalloc's CSV with an offset for every allocation
    #[arg(long, value_name = "FILE.csv")]
    pub offsets: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `waterfall`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim waterfall run.pickle --policy recorded
  poolsim waterfall run.pickle --policy expandable --json | jq .causes

Each cause is measured by a replay of its own in which just that cause is absent. As causes overlap, their
sum is not the whole: what is left is called interaction.")]
pub struct WaterfallArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// The policy [default: recorded]
    #[arg(long = "policy", short = 'p', value_name = "SPEC")]
    pub policies: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub select: SelectArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: MachineArgs,
    /// Bytes of the device that this job can have, in every replay
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub capacity: Option<Bytes>,
    /// Work that packing the blocks may do; the same steps find the same packing
    #[arg(long, value_name = "N", default_value_t = poolsim_sim::bound::DEFAULT_STEPS)]
    pub steps: u64,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `frontier`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim frontier run.pickle --policies recorded,expandable,best-fit
  poolsim frontier run.pickle -p \"pytorch,max_split_size_mb:128\" --probes 100 --json

The smallest capacity is found by bisection, to one granule (2 MiB). Not every policy that lives on some
memory lives on more, so capacities below and above are tried too, and it is said where they disagree.")]
pub struct FrontierArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Policies by their names, with commas between them
    #[arg(long = "policies", value_name = "A,B", value_delimiter = ',')]
    pub names: Vec<String>,
    /// A policy with parameters; may be given several times [default: recorded]
    #[arg(long = "policy", short = 'p', value_name = "SPEC")]
    pub policies: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub select: SelectArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: MachineArgs,
    /// How many capacities to try below and above the one that is found
    #[arg(long, value_name = "N", default_value_t = crate::lab::PROBES, value_parser = clap::value_parser!(u64).range(..100_000))]
    pub probes: u64,
    /// Print one JSON document: {"frontiers": [...]}
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sweep`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example of an experiment (docs/lab.md says all that it may hold):

  traces = [\"recordings/*.pickle\"]
  policies = [\"recorded\", \"expandable\", \"best-fit\"]
  capacities = [\"device\", \"40GiB\"]
  [[grid]]
  policy = \"pytorch\"
  params.max_split_size_mb = [32, 64, 128]

Examples:
  poolsim sweep experiment.toml
  poolsim sweep experiment.toml --out results --jobs 8 --budget 3600

Each run is written down when it is over. After a kill, or when the budget is used up, the same command
goes on from there. The results are the same bytes on any number of threads.")]
pub struct SweepArgs {
    /// What to run
    #[arg(value_name = "EXPERIMENT.toml")]
    pub experiment: PathBuf,
    /// Folder for the results [default: beside the experiment, ending in .sweep]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// How many runs at the same time [default: one a core]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Seconds after which no further run is started
    #[arg(long, value_name = "SECONDS")]
    pub budget: Option<u64>,
    /// Print one JSON document: {"results": [...]}
    #[arg(long)]
    pub json: bool,
}

fn parse_alignment(text: &str) -> Result<Bytes, String> {
    match parse_size(text)? {
        n @ 1..=0x4000_0000 => Ok(n),
        _ => Err("give a size from 1 to 1GiB".into()),
    }
}
