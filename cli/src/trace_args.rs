//! The command line of `poolsim trace`.

use crate::args::{MachineArgs, SelectArgs};
use crate::size::parse_size;
use clap::{Args, Subcommand, ValueEnum};
use poolsim_core::{Bytes, Nanos};
use poolsim_traces::quantity::parse_nanos;
use poolsim_traces::transform::Factor;
use std::path::PathBuf;

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// What to do.
    #[command(subcommand)]
    pub tool: Tool,
}

/// The tools.
#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Cut a part out of a trace, with what was live before it
    Slice(SliceArgs),
    /// Make one trace of several
    Merge(MergeArgs),
    /// Multiply sizes or times
    Scale(ScaleArgs),
    /// Leave out what an allocator does not see, or part of what it sees
    Strip(StripArgs),
    /// Find the smallest trace that still shows something, for a bug report
    Shrink(ShrinkArgs),
    /// Leave out everything that says whose job it was
    Anonymize(AnonymizeArgs),
}

/// What every tool reads and writes.
#[derive(Debug, Args, Clone)]
pub struct InOut {
    /// The trace to read
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The file to write; a file that is there is replaced
    ///
    /// The ending chooses the format, as for `poolsim convert`. A .pst is written in constant memory.
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub select: SelectArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: MachineArgs,
}

/// Arguments of `trace slice`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim trace slice run.pickle step.pst --span \"ProfilerStep#3\"
  poolsim trace slice run.pst part.pst --from 1.5s --to 2s
  poolsim trace slice run.pst part.json --first-event 1000 --last-event 1999")]
pub struct SliceArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub files: InOut,
    /// Earliest time, since the start of the trace, as in 1.5s or 20ms
    #[arg(long, value_name = "TIME", value_parser = parse_nanos)]
    pub from: Option<Nanos>,
    /// Time from which on nothing is kept
    #[arg(long, value_name = "TIME", value_parser = parse_nanos)]
    pub to: Option<Nanos>,
    /// The first event that is kept, counted from 0
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to", "span"])]
    pub first_event: Option<u64>,
    /// The last event that is kept
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to", "span"])]
    pub last_event: Option<u64>,
    /// The time of the first annotation with this name
    #[arg(long, value_name = "NAME", conflicts_with_all = ["from", "to"])]
    pub span: Option<String>,
}

/// How times of several traces lie to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AlignArg {
    /// By their wall clocks
    Clock,
    /// All start at once
    Start,
    /// Each starts when the one before ends
    After,
}

/// Arguments of `trace merge`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim trace merge train.pst eval.pst --output both.pst
  poolsim trace merge state.pickle run.pst --output warm.pst   # what a state holds, then the run
  poolsim trace merge thread1.csv thread2.csv --same-streams --output job.pst

The result is that of one program with one allocator that makes all requests.")]
pub struct MergeArgs {
    /// The traces to read
    #[arg(value_name = "IN", required = true)]
    pub inputs: Vec<PathBuf>,
    /// The file to write; a file that is there is replaced
    #[arg(long, short, value_name = "OUT")]
    pub output: PathBuf,
    /// How their times lie to each other [default: clock if all have one, else start]
    #[arg(long, value_enum)]
    pub align: Option<AlignArg>,
    /// Streams with the same number are the same, as of threads of one program
    #[arg(long)]
    pub same_streams: bool,
}

/// Arguments of `trace scale`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim trace scale run.pst larger.pst --size 1.5 --at-least 1MiB   # as if the batch were larger
  poolsim trace scale run.pst slower.pst --time 2")]
pub struct ScaleArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub files: InOut,
    /// Multiply sizes by this
    #[arg(long, value_name = "FACTOR", value_parser = Factor::parse)]
    pub size: Option<Factor>,
    /// Only sizes of at least this
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
    pub at_least: Bytes,
    /// Multiply times by this
    #[arg(long, value_name = "FACTOR", value_parser = Factor::parse)]
    pub time: Option<Factor>,
}

/// Arguments of `trace strip`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim trace strip run.pst small.pst                  # stacks, annotations, notes
  poolsim trace strip run.pst one-stream.pst --streams   # what if all work were on one stream?

Without any of the flags: --stacks --annotations --notes.")]
pub struct StripArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub files: InOut,
    /// Leave out call stacks
    #[arg(long)]
    pub stacks: bool,
    /// Leave out named spans
    #[arg(long)]
    pub annotations: bool,
    /// Leave out notes and attributes
    #[arg(long)]
    pub notes: bool,
    /// Leave out the heap before the first event
    #[arg(long)]
    pub heap: bool,
    /// Leave out times; the order stays
    #[arg(long)]
    pub times: bool,
    /// Put all requests on one stream; uses on other streams and waits of frees are left out
    #[arg(long)]
    pub streams: bool,
    /// Put all requests into the default pool
    #[arg(long)]
    pub pools: bool,
}

/// Arguments of `trace shrink`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim trace shrink run.pickle oom.json --oom recorded --capacity 40GiB
  poolsim trace shrink run.pst case.json --better expandable --than pytorch --by 5

The same trace and property give the same result. What is left is checked again after it is written.")]
pub struct ShrinkArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub files: InOut,
    /// Keep this: under this policy some request is refused
    #[arg(
        long,
        value_name = "POLICY",
        required_unless_present = "better",
        conflicts_with = "better"
    )]
    pub oom: Option<String>,
    /// Keep this: under this policy less memory is reserved at the peak …
    #[arg(long, value_name = "POLICY", requires = "than")]
    pub better: Option<String>,
    /// … than under this one …
    #[arg(long, value_name = "POLICY", requires = "better")]
    pub than: Option<String>,
    /// … by at least this many percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = parse_percent)]
    pub by: f64,
    /// Bytes of the device that the job can have
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub capacity: Option<Bytes>,
    /// Stop after this many replays
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub most_replays: u64,
}

/// Arguments of `trace anonymize`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  poolsim trace anonymize run.pickle to-share.pst

Stacks, names, paths, settings, the device's name, the clock, stream handles and pool ids are left out; sizes, order,
times since the start, streams and pools stay.")]
pub struct AnonymizeArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub files: InOut,
}

fn parse_percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(share) if (0.0..=100.0).contains(&share) => Ok(share),
        _ => Err("give a number from 0 to 100, as in 5".into()),
    }
}
