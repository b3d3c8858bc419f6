//! What would have saved a run, with replays as proof.
//!
//! A recording holds what a program asked for. Whatever could have been otherwise (a setting of the allocator, a moment at
//! which the cache is emptied, one tensor, the order of the work) is a change of the policy or of the trace, and a replay says
//! what would have come of it. Nothing here is a rule of thumb: every statement is the outcome of a replay, or is marked as an
//! estimate.
//!
//! * [`job`]: a trace with the machine that it is to run on.
//! * [`torch`]: which options a version of PyTorch knows, and under which name it reads them.
//! * [`space`], [`search`]: the settings, and which of them are tried.
//! * [`confidence`]: the same on changed recordings; what won by luck loses there.
//! * [`advise()`]: the whole answer.
//! * [`explain`]: why a request was refused, and the smallest change that would have let it pass.
//! * [`budget`], [`growth`]: what a run may come to, and which place of the program holds more than it did.
//! * [`frontier`]: the smallest memory on which a job lives.
//!
//! It sits between `cli` and the crates that it asks questions of, which costs one more level in the star of crates and keeps
//! the questions testable without a command line.
#![forbid(unsafe_code)]

pub mod advise;
pub mod budget;
pub mod confidence;
pub mod explain;
pub mod frontier;
pub mod growth;
pub mod job;
pub mod search;
pub mod space;
pub mod torch;

pub use advise::{Advice, Options, Verdict, advise};
pub use frontier::Prober;
pub use job::{Job, Measured};
pub use space::Setting;
pub use torch::Torch;
