//! Arguments of the commands that read a trace and say, write or check what is in it.

use super::{MachineArgs, SelectArgs};
use clap::Args;
use clap::builder::PossibleValuesParser;
use poolsim_traces::export::EXPORTERS;
use std::path::PathBuf;

/// Arguments of `info`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim info run.pickle
  poolsim info run.pickle.zst --device 1 --json | jq .requests")]
pub struct InfoArgs {
    /// The trace, a PyTorch snapshot, RMM log, profiler trace, trace.json, .pst, … (docs/formats.md lists all); .gz, .zst and .xz are read through
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub select: SelectArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: MachineArgs,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `convert`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim convert run.pickle run.pst
  poolsim convert run.pickle run.json        # to read, to cut down for a bug report
  poolsim convert run.pickle run.jsonl.zst
  poolsim convert run.pst - --to native-jsonl | head
  poolsim convert run.pickle run.rmm.csv     # an RMM event log, for RMM's replay benchmark
  poolsim convert run.pickle run.trace.json  # a timeline for ui.perfetto.dev, with the allocator's own events
  poolsim convert run.pickle run.trace.json --beside profile.json.gz   # on that profile's clock

A converted file holds the requests, not the decisions: it can be replayed, but not verified.")]
pub struct ConvertArgs {
    /// The trace to read
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The file to write, or - for standard output; a file that is there is replaced
    ///
    /// The ending chooses the format: .pst, .json, .jsonl, .rmm.csv, .csv (minimalloc) or .trace.json (Perfetto); with .gz, .zst or .xz behind it, compressed.
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// The format to write, where the ending of OUT does not say it
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    pub to: Option<String>,
    /// Write a timeline's times on the clock of this profiler trace, to be loaded together with it
    #[arg(long, value_name = "PROFILE.json")]
    pub beside: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub select: SelectArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: MachineArgs,
    /// Print what was written as one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim verify run.pickle
  poolsim verify recordings/ --json | jq '.files[] | select(.mismatches > 0)'
  poolsim verify run.pickle --memory-fraction 0.5 --device-memory 80GiB

verify reads the requests out of each snapshot, replays them blind (with nothing but the addresses that
the driver gave), and compares every entry that the allocator wrote, every block of the final state and,
where a sidecar holds memory_stats, every statistic. Exit code 0 only if nothing differs.")]
pub struct VerifyArgs {
    /// PyTorch snapshots, or folders of them
    #[arg(value_name = "SNAPSHOT", required = true)]
    pub snapshots: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub select: SelectArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: MachineArgs,
    /// How many files to check at the same time [default: one a core]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Print one JSON document: {"files": [...]}
    #[arg(long)]
    pub json: bool,
}

fn formats() -> PossibleValuesParser {
    EXPORTERS.iter().map(|exporter| exporter.name).collect::<Vec<_>>().into()
}
