//! A policy in a file: best fit on sizes that are powers of two, in ranges of at least 32 MiB.

use poolsim_policies::caching::Caching;
use poolsim_policies::params::{Effect, ParamDef, ParamDefault, ParamKind};
use poolsim_policies::registry::{OomRule, PolicyDef, no_version, no_warnings};
use poolsim_policies::stage::{Rounding, growth::Chunks, placement::BestFit, reclaim::ReleaseAll};

/// The one rule of its own: the next power of two, and never less than `least`.
struct NextPower(u64);

impl Rounding for NextPower {
    fn round(&self, asked: u64) -> u64 {
        asked.next_power_of_two().max(self.0)
    }
}

/// `powers`.
pub static DEF: PolicyDef = PolicyDef {
    name: "powers",
    aliases: &[],
    presets: &[],
    summary: "Best fit on powers of two",
    rules: "A request is rounded up to a power of two, at least `least`.\n\
            The smallest free block that is large enough serves it; misses take 32 MiB or what is needed.\n\
            If the device is full, all idle ranges are given back.",
    source: "docs/adding-a-policy.md",
    checked_against: "the conformance battery",
    params: &[ParamDef {
        key: "least",
        kind: ParamKind::Bytes { min: 256, multiple_of: 256 },
        default: ParamDefault::Is("512"),
        unit: "bytes",
        doc: "Smallest block.",
        effect: Effect::Simulated,
    }],
    refuses: &[OomRule::CacheReleased, OomRule::NothingFits, OomRule::DeviceLacks],
    version: no_version,
    check: no_warnings,
    build: |p, env| {
        let round = NextPower(p.bytes("least"));
        Ok(Box::new(Caching::new(round, BestFit::default(), Chunks(32 << 20), ReleaseAll, env)))
    },
};
// The file ends here; the rest shows it at work outside this repository.

fn main() {
    let registry = poolsim_policies::Registry::builtin().with(&DEF);
    let spec = "powers,least:1KiB".parse().expect("a spec");
    println!("{}", registry.resolve(&spec).expect("a known policy").spec());
}
