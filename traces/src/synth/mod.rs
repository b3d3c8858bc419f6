//! Traces that nobody recorded: made by seeded generators, or learned from a recording and changed.

mod adversarial;
mod closeness;
mod cycles;
mod fit;
mod generator;
mod pipeline;
mod program;
mod serving;
mod training;

pub use closeness::{Closeness, KsTest, closeness, ks_test};
pub use cycles::Found;
pub use fit::{Change, Fit, Order};
pub use generator::{GENERATORS, Generator, Knob, find};
pub use program::{Held, Program};
