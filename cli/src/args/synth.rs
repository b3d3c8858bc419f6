//! Arguments of `synth`.

use super::{SelectArgs, parse_share};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `synth`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  poolsim synth                                  # the programs that there are
  poolsim synth train-moe                        # one of them, and what can be set
  poolsim synth train-moe --set layers=24 -o moe.pst
  poolsim synth --fit run.pickle --cycles 100 --order drawn -o longer.pst
  poolsim synth --fit run.pickle --sizes 0.05 --lengths 0.5..2 --seed 7 -o other.pst")]
pub struct SynthArgs {
    /// The program to make a trace of
    #[arg(value_name = "PROGRAM", conflicts_with = "fit")]
    pub program: Option<String>,
    /// Learn this trace, and make others of it
    #[arg(long, value_name = "TRACE")]
    pub fit: Option<PathBuf>,
    /// The file to write; a file that is there is replaced
    #[arg(short, long, value_name = "OUT")]
    pub out: Option<PathBuf>,
    /// The same seed makes the same trace
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// A setting of the program, as in layers=24; may be given several times
    #[arg(long, value_name = "KEY=N", value_parser = parse_setting, conflicts_with = "fit")]
    pub set: Vec<(String, u64)>,
    /// How many cycles to make [default: as many as were recorded]
    #[arg(long, value_name = "N", requires = "fit")]
    pub cycles: Option<usize>,
    /// Their order; the first, in which the job sets itself up, stays first
    #[arg(long, value_name = "ORDER", value_parser = ["recorded", "shuffled", "drawn"], default_value = "recorded")]
    pub order: String,
    /// Change every distinct size by a factor of its own, up to this share more or less, as in 0.05
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value_t = 0.0)]
    pub sizes: f64,
    /// Sequence lengths: multiply what does not last by a factor for each cycle, from these bounds, as in 0.5..2
    #[arg(long, value_name = "LOW..HIGH", value_parser = parse_bounds, requires = "fit")]
    pub lengths: Option<(f64, f64)>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub select: SelectArgs,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

fn parse_setting(text: &str) -> Result<(String, u64), String> {
    let wrong = || "write KEY=NUMBER, as in layers=24".to_string();
    let (key, value) = text.split_once('=').ok_or_else(wrong)?;
    Ok((key.into(), value.parse().map_err(|_| wrong())?))
}

fn parse_bounds(text: &str) -> Result<(f64, f64), String> {
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    match (low.parse::<f64>(), high.parse::<f64>()) {
        (Ok(low), Ok(high)) if low > 0.0 && low <= high && high <= 1000.0 => Ok((low, high)),
        _ => Err("write two numbers above 0 and up to 1000, as in 0.5..2".into()),
    }
}
