//! Arguments of runs on a real GPU.

use clap::{Args, ValueEnum};
use poolsim_core::Nanos;
use poolsim_real_backend::Busy;
use std::path::PathBuf;

/// Where to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Target {
    /// In simulation
    #[default]
    Sim,
    /// On a real GPU
    Gpu,
}

/// How a replay on a GPU is done.
#[derive(Debug, Args, Clone, Default)]
#[command(next_help_heading = "On a GPU (--on gpu)")]
pub struct GpuArgs {
    /// Which GPU, as `poolsim devices` numbers them [default: 0]
    #[arg(long, value_name = "N")]
    pub gpu: Option<u32>,

    /// Let recorded time pass between events; without it they follow each other as fast as possible
    #[arg(long)]
    pub paced: bool,

    /// Keep streams busy after each allocation and each use: so long, as in 20us, or `recorded`
    ///
    /// `recorded` keeps them busy as long as the recording took since the work before. With work in flight, frees
    /// wait for the GPU instead of the recorded completions, so that runs may differ.
    #[arg(long, value_name = "TIME", value_parser = parse_busy)]
    pub work: Option<Busy>,

    /// Write every allocation, and check before its free that nothing else wrote there
    #[arg(long)]
    pub touch: bool,

    /// Runs to measure [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,

    /// Runs before them, which are not measured [default: 1]
    ///
    /// The first of them writes --series and --decisions.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub warmup: Option<u32>,

    /// Let `cuda-async` use the device's default pool instead of a pool of its own
    #[arg(long)]
    pub default_pool: bool,

    /// Write every driver call of the measured runs as CSV: how long it took, and what the device profile says
    #[arg(long, value_name = "FILE")]
    pub calls: Option<PathBuf>,
}

impl GpuArgs {
    /// The first option that was given, for runs that have no GPU.
    pub fn given(&self) -> Option<&'static str> {
        let options = [
            ("--gpu", self.gpu.is_some()),
            ("--paced", self.paced),
            ("--work", self.work.is_some()),
            ("--touch", self.touch),
            ("--repeat", self.repeat.is_some()),
            ("--warmup", self.warmup.is_some()),
            ("--default-pool", self.default_pool),
            ("--calls", self.calls.is_some()),
        ];
        options.into_iter().find_map(|(name, given)| given.then_some(name))
    }

    /// The mode in words.
    pub fn mode(&self) -> String {
        let mut words = vec![if self.paced { "paced as recorded" } else { "as fast as possible" }];
        words.push(match self.work {
            None | Some(Busy::Never) => "no work in flight",
            Some(Busy::For(_)) => "streams busy after each request",
            Some(Busy::AsRecorded) => "streams busy as long as recorded",
        });
        if self.touch {
            words.push("blocks written and checked");
        }
        words.join(", ")
    }
}

fn parse_busy(text: &str) -> Result<Busy, String> {
    if text == "recorded" {
        return Ok(Busy::AsRecorded);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let factor: Nanos = match &text[digits..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        _ => return Err("give a whole number with ns, us or ms, as in 20us, or `recorded`".into()),
    };
    let number: Nanos = text[..digits].parse().map_err(|_| format!("{text:?} has no number"))?;
    match number.checked_mul(factor) {
        Some(ns) if ns <= 1_000_000_000 => Ok(Busy::For(ns)),
        _ => Err(format!("{text} is too long; at most 1000ms")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_a_time_or_as_recorded() {
        assert_eq!(parse_busy("20us"), Ok(Busy::For(20_000)));
        assert_eq!(parse_busy("recorded"), Ok(Busy::AsRecorded));
        for text in ["", "20", "us", "-1us", "1.5us", "2000ms", "99999999999999999999ns"] {
            assert!(parse_busy(text).is_err(), "{text}");
        }
    }
}
