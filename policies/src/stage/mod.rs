//! The stages that [`crate::caching::Caching`] is composed of, and the tables that name them.
//!
//! A stage is a row in its file's table: a name, its parameters, and how it is made. Adding one touches
//! that file alone; `compose` then knows it.

pub mod bins;
pub mod classes;
pub mod first_fit;
pub mod growth;
pub mod placement;
pub mod reclaim;
pub mod rounding;
pub mod size_index;

pub use growth::Growth;
pub use placement::Placement;
pub use reclaim::Reclaim;
pub use rounding::Rounding;

use crate::params::{ParamDef, Params};

/// One stage: a row of a stage table.
pub struct StageDef<T: ?Sized + 'static> {
    /// Its name as a value of `round`, `place`, `grow` or `reclaim`.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Its parameters; the keys start with the kind of stage (`grow.factor`).
    pub params: &'static [ParamDef],
    /// Makes it.
    pub build: fn(&Params) -> Box<T>,
}

/// The names of a stage table, for [`crate::params::ParamKind::Choice`].
pub const fn names<T: ?Sized, const N: usize>(table: &[StageDef<T>]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut i = 0;
    while i < N {
        names[i] = table[i].name;
        i += 1;
    }
    names
}

/// How many parameters a stage table declares.
pub const fn param_count<T: ?Sized>(table: &[StageDef<T>]) -> usize {
    let (mut n, mut i) = (0, 0);
    while i < table.len() {
        n += table[i].params.len();
        i += 1;
    }
    n
}

/// Appends the parameters of a stage table to `into`, from index `at`; returns the index behind them.
pub const fn collect_params<T: ?Sized>(
    table: &[StageDef<T>],
    into: &mut [ParamDef],
    mut at: usize,
) -> usize {
    let mut i = 0;
    while i < table.len() {
        let mut j = 0;
        while j < table[i].params.len() {
            into[at] = table[i].params[j];
            at += 1;
            j += 1;
        }
        i += 1;
    }
    at
}

/// The row with this name.
///
/// # Panics
/// If there is none; the parameter's choices come from the same table.
pub(crate) fn find<T: ?Sized>(table: &'static [StageDef<T>], name: &str) -> &'static StageDef<T> {
    table.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("no stage `{name}`"))
}
