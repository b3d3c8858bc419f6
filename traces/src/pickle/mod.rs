//! Pickles, read as data: one forward pass, nothing executed, memory bounded by what was read.
//!
//! The [`Machine`] runs the opcodes of protocols 0 to 5 that build plain data, and refuses every opcode
//! that names, calls or builds a Python object. What it builds lives in [`Objects`]: containers are shared
//! by small handles, so a million references to one list cost a million handles. A [`Fold`] turns
//! containers of a known shape into rows of its own as soon as they are complete, so that a trace entry
//! costs a row instead of a dict, and a list of frames costs a stack number.
//!
//! [`Objects`] and [`Fold`] know nothing of pickle; the JSON form of a snapshot is read into them too.

mod machine;
mod memo;
mod objects;
mod opcode;
mod rare;
mod source;
mod text;
mod texts;
mod value;

pub use machine::{Loaded, Machine};
pub use objects::Objects;
pub use texts::{TextId, Texts};
pub use value::{Fold, Folded, Items, Value};
