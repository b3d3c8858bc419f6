//! Arguments of the commands about policies, GPUs and the shell: those that take no trace.

use clap::Args;
use std::path::PathBuf;

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
