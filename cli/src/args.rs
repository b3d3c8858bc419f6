//! The command line: syntax only. What the arguments mean together is each command's second step.

use crate::gpu::{GpuArgs, Target};
mod synth;

pub use synth::SynthArgs;

use crate::size::parse_size;
use crate::trace_args::TraceArgs;
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use poolsim_core::Bytes;
use poolsim_traces::export::EXPORTERS;
use std::path::PathBuf;

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

/// Arguments of `replay`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim replay run.pickle --policy recorded --policy expandable
  poolsim replay run.pickle --policy \"max_split_size_mb:128,garbage_collection_threshold:0.8\"
  poolsim replay run.pickle --policy recorded --device-memory 40GiB   # would it fit a 40 GiB GPU?
  poolsim replay run.pickle --policy expandable --snapshot-out what-if.pickle
  poolsim replay run.pickle --json | jq '.runs[].metrics.peak_reserved_bytes'
  poolsim replay run.pickle --on gpu -p pytorch -p cuda-async --repeat 10   # on a real GPU, measured

Exit code 3 says that the job ran out of memory under at least one of the policies (a request that
the trace says was refused when it was recorded counts only if it is refused again).")]
pub struct ReplayArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// A policy; may be given several times [default: recorded]
    ///
    /// A name with parameters (`pytorch,max_split_size_mb:128`), a preset (`expandable`), a
    /// PYTORCH_CUDA_ALLOC_CONF string as it is, or `recorded` for the settings that the trace was recorded
    /// with. `poolsim policies` lists what there is.
    #[arg(long = "policy", short = 'p', value_name = "SPEC")]
    pub policies: Vec<String>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub select: SelectArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: MachineArgs,

    /// Bytes of the device that this job can have; the rest is taken by others
    ///
    /// Unlike --device-memory it leaves the device's size, and with it what a memory fraction means, as
    /// it is.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub capacity: Option<Bytes>,

    /// Prices of device calls for the simulation, as `calibrate` writes them [default: an H200's]
    #[arg(long, value_name = "PROFILE.toml")]
    pub profile: Option<PathBuf>,

    /// Keep the runs in a folder of Parquet tables, for `report` and for other tools
    ///
    /// Results, memory and device calls over time, the heap at chosen events, stacks, annotations.
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,

    /// Write a report; may be given several times
    ///
    /// As `poolsim report` does, without keeping the runs.
    #[arg(short = 'o', long = "report", value_name = "FILE")]
    pub reports: Vec<PathBuf>,

    /// Write every decision of the policies to a file, as CSV or (with the ending .parquet) Parquet
    #[arg(long, value_name = "FILE")]
    pub decisions: Option<PathBuf>,

    /// Write memory after every event to a file, as CSV or (with the ending .parquet) Parquet
    #[arg(long, value_name = "FILE")]
    pub series: Option<PathBuf>,

    /// Write the simulated run as a PyTorch snapshot, which memory_viz can plot; needs exactly one policy
    #[arg(long, value_name = "FILE.pickle")]
    pub snapshot_out: Option<PathBuf>,

    /// Show how far each run is from the least memory that the trace could do with
    ///
    /// `poolsim bound` says more of it.
    #[arg(long)]
    pub bound: bool,

    /// Print what torch.cuda.memory_summary() would print after the simulated run
    #[arg(long, conflicts_with = "json")]
    pub summary: bool,

    /// Print what torch.cuda.memory_stats() would return after the simulated run
    ///
    /// With --json each run has a `native_stats` object instead.
    #[arg(long)]
    pub stats: bool,

    /// Print one JSON document: {"runs": [...]}
    #[arg(long)]
    pub json: bool,

    /// Where to run
    ///
    /// On a GPU, policies take real memory through the CUDA driver; `cuda-async` is a real cudaMallocAsync pool there
    /// and `cuda-malloc` is cudaMalloc and cudaFree. Latencies are measured.
    #[arg(long, value_enum, value_name = "WHERE", default_value_t)]
    pub on: Target,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub gpu: GpuArgs,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim compare run.pickle --policies pytorch,cuda-async
  poolsim compare run.pickle -p \"max_split_size_mb:128\" -p best-fit --repeat 10 --json | jq .comparisons

For policies of poolsim's own, the GPU's decisions must be those of a simulation in which the driver answers
the same; for `cuda-async`, the simulated pool must return the real pool's pointers (counted from the first)
and reserve as much after each event. Exit code 1 if they part.")]
pub struct CompareArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// A policy, as `replay` takes it; may be given several times [default: recorded]
    #[arg(long = "policy", short = 'p', value_name = "SPEC")]
    pub policies: Vec<String>,

    /// Several policies without parameters, separated by commas
    #[arg(long = "policies", value_name = "A,B,C", value_delimiter = ',')]
    pub names: Vec<String>,

    /// Where to run: sim, gpu or both
    #[arg(
        long,
        value_enum,
        value_name = "WHERE",
        value_delimiter = ',',
        default_value = "sim,gpu"
    )]
    pub on: Vec<Target>,

    /// Prices of device calls for the simulation, as `calibrate` writes them [default: an H200's]
    #[arg(long, value_name = "PROFILE.toml")]
    pub profile: Option<PathBuf>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub select: SelectArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: MachineArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub gpu: GpuArgs,

    /// Write a report, as `poolsim report` does; may be given several times
    #[arg(short = 'o', long = "report", value_name = "FILE")]
    pub reports: Vec<PathBuf>,

    /// Print one JSON document: {"runs": [...], "comparisons": [...]}
    #[arg(long)]
    pub json: bool,
}

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
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(..100_000))]
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

/// Arguments of `report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim replay run.pickle -p recorded -p expandable --out runs/first
  poolsim report runs/first -o report.html
  poolsim report runs/first runs/second -o report.md -o 'figs/*.svg'
  poolsim report runs/first -o figs/memory.png

The ending chooses what is written: .html a page that stands alone, .md text with figures beside it, .csv and
.parquet one row a run, .svg and .png a figure. A figure is named by its file; * stands for every figure. The
trace is not needed any more.")]
pub struct ReportArgs {
    /// Folders that `replay --out` wrote
    #[arg(value_name = "RUNS", required = true)]
    pub runs: Vec<PathBuf>,
    /// What to write; may be given several times
    #[arg(short = 'o', long = "output", value_name = "FILE", required = true)]
    pub outputs: Vec<PathBuf>,
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

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim bench run.pickle
  poolsim bench run.pst --policy pytorch --policy best-fit --rounds 50 --json

What is timed: the replay of the loaded trace with all metrics on, in rounds that take the policies in
turn, on one thread. Reading the trace is timed apart; building the policy and the device is not timed.")]
pub struct BenchArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// A policy; may be given several times [default: recorded]
    #[arg(long = "policy", short = 'p', value_name = "SPEC")]
    pub policies: Vec<String>,
    /// Rounds; each replays the trace once under every policy
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub select: SelectArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub machine: MachineArgs,
    /// Print one JSON document: {"results": [...]}
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `calibrate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim calibrate -o my-gpu.toml
  poolsim replay run.pickle --profile my-gpu.toml

It takes about half a minute and holds at most half of the memory that is free. With -o, the new prices are
shown beside those of the built-in profile.")]
pub struct CalibrateArgs {
    /// Which GPU, as `poolsim devices` numbers them [default: 0]
    #[arg(long, value_name = "N")]
    pub gpu: Option<u32>,
    /// The file to write; without it the profile goes to standard output
    #[arg(long, short = 'o', value_name = "PROFILE.toml")]
    pub output: Option<PathBuf>,
    /// The profile's short name
    #[arg(long, value_name = "NAME", default_value = "calibrated")]
    pub name: String,
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

/// Arguments of `new-policy`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim new-policy my-pool
  poolsim new-policy my-pool --outside --dir src")]
pub struct NewPolicyArgs {
    /// Its name in specs: lower-case letters, digits and -
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Write it for a crate of your own, which registers it beside the built-in policies
    #[arg(long)]
    pub outside: bool,
    /// The folder to write to [default: policies/src of this clone, or the current one with --outside]
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim completions bash > ~/.local/share/bash-completion/completions/poolsim
  poolsim completions fish > ~/.config/fish/completions/poolsim.fish")]
pub struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
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

fn formats() -> PossibleValuesParser {
    EXPORTERS.iter().map(|exporter| exporter.name).collect::<Vec<_>>().into()
}

fn parse_alignment(text: &str) -> Result<Bytes, String> {
    match parse_size(text)? {
        n @ 1..=0x4000_0000 => Ok(n),
        _ => Err("give a size from 1 to 1GiB".into()),
    }
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
