//! Arguments of the commands that run policies and show what came of it.

use super::{MachineArgs, SelectArgs};
use crate::gpu::{GpuArgs, Target};
use crate::lab::Lab;
use crate::size::parse_size;
use clap::Args;
use poolsim_core::Bytes;
use std::path::PathBuf;

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

    /// When to add the waterfall and the frontier to what -o and --out write
    ///
    /// Which rule of each policy costs how much memory, and on how little memory the job lives: `poolsim waterfall` and
    /// `poolsim frontier` say the same.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t)]
    pub lab: Lab,

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

    /// Where to run: sim, gpu or both [default: sim,gpu, and where no GPU can be used sim]
    #[arg(long, value_enum, value_name = "WHERE", value_delimiter = ',')]
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

    /// When to add the waterfall and the frontier of each policy, in simulation, to what -o writes
    #[arg(long, value_enum, value_name = "WHEN", default_value_t)]
    pub lab: Lab,

    /// Print one JSON document: {"runs": [...], "comparisons": [...]}
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
