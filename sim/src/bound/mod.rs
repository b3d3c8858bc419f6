//! How little memory a trace could do with, whatever the policy.
//!
//! Computed from lifetimes alone, without a replay: the highest sum of what is live at once, the same after
//! rounding, and a *packing*, a placement of every allocation that somebody who knows the whole trace could choose
//! (dynamic storage allocation). A packing is feasible, so its height is at least the least possible; whether it
//! is the least possible is said by its [`Proof`].

mod bounds;
mod exact;
mod greedy;
mod instance;
mod lifetimes;
mod online;
mod overlap;
mod pack;

pub use bounds::Bounds;
pub use instance::{Instance, Piece};
pub use lifetimes::{Lifetime, Lifetimes};
pub use pack::{Budget, DEFAULT_STEPS, Packing, Proof, misplaced, pack};
