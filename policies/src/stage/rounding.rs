//! How large a block a request gets.

use super::StageDef;
use crate::divisions::{BUCKETS, Divisions};
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind, Params};
use poolsim_core::Bytes;

/// Rounds requests up. Runs first in every malloc.
pub trait Rounding: Send {
    /// The size of the block that serves `asked` bytes; at least `asked`. `asked` is below
    /// [`crate::arena::TOO_LARGE`].
    fn round(&self, asked: Bytes) -> Bytes;
}

impl<T: Rounding + ?Sized> Rounding for Box<T> {
    fn round(&self, asked: Bytes) -> Bytes {
        (**self).round(asked)
    }
}

/// Up to a multiple of a quantum.
#[derive(Clone, Copy, Debug)]
pub struct Quantum(pub Bytes);

impl Rounding for Quantum {
    #[inline]
    fn round(&self, asked: Bytes) -> Bytes {
        asked.next_multiple_of(self.0)
    }
}

/// The quantum of [`PowerOfTwo`]: PyTorch's `kMinBlockSize`.
const POW2_QUANTUM: Bytes = 512;

/// Up to a power of two, or to one of some equal steps between two powers of two.
#[derive(Clone, Debug)]
pub struct PowerOfTwo {
    divisions: [u64; BUCKETS],
}

impl PowerOfTwo {
    /// With these divisions; 0 means that sizes of a bucket are rounded to 512 bytes only.
    pub fn new(divisions: &Divisions) -> Self {
        PowerOfTwo { divisions: divisions.buckets() }
    }
}

impl Rounding for PowerOfTwo {
    #[inline]
    fn round(&self, asked: Bytes) -> Bytes {
        let log = asked.max(1).ilog2();
        let bucket = (log.saturating_sub(20) as usize).min(BUCKETS - 1);
        let divisions = self.divisions[bucket];
        let quantum = match divisions {
            0 => POW2_QUANTUM,
            d => ((1 << log) >> d.ilog2()).max(POW2_QUANTUM),
        };
        asked.next_multiple_of(quantum)
    }
}

/// The rounding stages.
pub const ROUNDINGS: &[StageDef<dyn Rounding>] = &[
    StageDef {
        name: "quantum",
        summary: "up to a multiple of round.quantum",
        params: &[QUANTUM],
        build: |p: &Params| Box::new(Quantum(p.bytes(QUANTUM.key))),
    },
    StageDef {
        name: "pow2",
        summary: "up to a power of two, or a step between two of them; at least a multiple of 512",
        params: &[DIVISIONS],
        build: |p: &Params| Box::new(PowerOfTwo::new(&p.divisions(DIVISIONS.key))),
    },
];

/// `round.quantum`.
pub const QUANTUM: ParamDef = ParamDef {
    key: "round.quantum",
    kind: ParamKind::Bytes { min: 256, multiple_of: 256 },
    default: ParamDefault::Is("512"),
    unit: "bytes",
    doc: "Sizes are multiples of this.",
    effect: Effect::Simulated,
};

/// `round.divisions`.
pub const DIVISIONS: ParamDef = ParamDef {
    key: "round.divisions",
    kind: ParamKind::Divisions,
    default: ParamDefault::Is("1"),
    unit: "",
    doc: "Steps between two powers of two, for all sizes or by size in MiB; 1 gives whole powers of two, 0 in a list \
          leaves those sizes at multiples of 512.",
    effect: Effect::Simulated,
};

#[cfg(test)]
mod tests {
    use super::*;
    use poolsim_core::units::MIB;

    #[test]
    fn steps_divide_the_space_between_powers_of_two() {
        let round = |d, n| PowerOfTwo::new(&Divisions::All(d)).round(n);
        assert_eq!(round(1, 5 * MIB), 8 * MIB);
        assert_eq!(round(4, 5 * MIB), 5 * MIB);
        assert_eq!(round(4, 5 * MIB + 1), 6 * MIB);
        assert_eq!(
            [round(1, 1), round(1, 512), round(1, 513), round(1, 1025)],
            [512, 512, 1024, 2048]
        );
        assert_eq!(round(8, 700), 1024, "steps are at least the quantum");
        let list = Divisions::List { named: vec![(4, 2)], rest: Some(0) };
        let round = |n| PowerOfTwo::new(&list).round(n);
        assert_eq!([round(5 * MIB), round(9 * MIB + 1)], [6 * MIB, 9 * MIB + 512]);
        assert_eq!(round(3 * 512 + 1), 2048, "the first entry holds for smaller sizes too");
    }
}
