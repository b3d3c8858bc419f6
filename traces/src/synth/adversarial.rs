//! Programs that hurt one family of allocators each.

use super::generator::{Draft, Generator, Knob};
use super::program::Held;
use rand::RngExt;
use rand::seq::SliceRandom;

const MIB: u64 = 1 << 20;

const ROUNDS: Knob =
    Knob { key: "rounds", default: 8, bounds: (1, 1_000_000), doc: "how often it is done" };
const COUNT: Knob =
    Knob { key: "count", default: 64, bounds: (2, 65_536), doc: "blocks of a round" };
const SIZE: Knob =
    Knob { key: "size", default: 4, bounds: (1, 1024), doc: "MiB of the smallest block" };

/// Leaves holes that nothing fits.
pub(super) static COMB: Generator = Generator {
    name: "hurt-comb",
    summary: "fills memory with equal blocks, frees every other one, and asks for blocks a little larger than the holes, up and up",
    hurts: "allocators whose blocks cannot move or be mapped together: best fit, first fit, PyTorch's without expandable segments",
    knobs: &[
        Knob { key: "rounds", default: 6, bounds: (1, 24), doc: "how often sizes grow" },
        COUNT,
        SIZE,
    ],
    make: |draft| {
        let mut size = draft.get("size") * MIB;
        let mut live: Vec<Held> = Vec::new();
        let count = draft.get("count");
        let total = count * size;
        for _ in 0..draft.get("rounds") {
            let room = total.saturating_sub(live.iter().map(Held::size).sum());
            live.extend((0..(room / size)).map(|_| draft.program.alloc(size, 0)));
            draft.program.pass(1_000);
            let (kept, freed) = every_other(live);
            freed.into_iter().for_each(|held| draft.program.free(held));
            live = kept;
            size = size * 3 / 2;
        }
    },
};

fn every_other(all: Vec<Held>) -> (Vec<Held>, Vec<Held>) {
    let (kept, freed): (Vec<_>, Vec<_>) =
        all.into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
    let held = |part: Vec<(usize, Held)>| part.into_iter().map(|(_, held)| held).collect();
    (held(kept), held(freed))
}

/// A byte more than a power of two.
pub(super) static JUST_ABOVE: Generator = Generator {
    name: "hurt-rounding",
    summary: "asks for a little more than powers of two",
    hurts: "allocators that round to powers of two: pow2, buddy, geometric bins",
    knobs: &[ROUNDS, COUNT],
    make: |draft| {
        for _ in 0..draft.get("rounds") {
            if !draft.has_room() {
                break;
            }
            let mut live: Vec<Held> = (0..draft.get("count"))
                .map(|_| {
                    let log = draft.rng.random_range(12..26u32);
                    let more = draft.rng.random_range(1..=512);
                    draft.program.alloc((1 << log) + more, 0)
                })
                .collect();
            draft.program.pass(1_000);
            live.shuffle(&mut draft.rng);
            live.into_iter().for_each(|held| draft.program.free(held));
        }
    },
};

/// Each request is larger than all before.
pub(super) static GROWING: Generator = Generator {
    name: "hurt-growing",
    summary: "a list that grows by copying itself into a larger block, again and again, with small blocks made in between that stay",
    hurts: "allocators that keep ranges as they were taken: best fit and PyTorch's without expandable segments, CUB's bins",
    knobs: &[COUNT, SIZE],
    make: |draft| {
        let step = draft.get("size") * MIB;
        let mut list = draft.program.alloc(step, 0);
        for i in 2..draft.get("count") {
            let grown = draft.program.alloc(i * step, 0);
            draft.program.pass(1_000);
            draft.program.free(std::mem::replace(&mut list, grown));
            // Sits in the block that was just freed.
            draft.program.alloc(MIB + MIB / 2, 0);
        }
        draft.program.free(list);
    },
};

/// The same need on one stream after the other.
pub(super) static STREAMS: Generator = Generator {
    name: "hurt-streams",
    summary: "has its peak on one stream after the other, the host waiting in between",
    hurts: "allocators that keep memory apart by stream and give it back only when the device is full",
    knobs: &[ROUNDS, COUNT, SIZE],
    make: |draft| {
        for round in 0..draft.get("rounds") {
            if !draft.has_room() {
                break;
            }
            let stream = (round % 4) as u16;
            let live: Vec<Held> = (0..draft.get("count"))
                .map(|i| draft.program.alloc((1 + i % 3) * draft.get("size") * MIB, stream))
                .collect();
            draft.program.pass(10_000);
            live.into_iter().for_each(|held| draft.program.free(held));
            draft.program.wait_for(stream);
        }
    },
};

/// What was used longest ago comes next.
pub(super) static ROTATION: Generator = Generator {
    name: "hurt-lru",
    summary: "asks for sizes in rotation, one at a time, so that what was used longest ago is always needed next",
    hurts: "least recently used release, on a device or with a limit below the sum of all sizes",
    knobs: &[
        ROUNDS,
        Knob { key: "sizes", default: 8, bounds: (2, 1024), doc: "different sizes" },
        SIZE,
    ],
    make: |draft| {
        let step = draft.get("size") * MIB;
        for _ in 0..draft.get("rounds") {
            // From large to small, so that none fits into what the one before left.
            for i in (0..draft.get("sizes")).rev() {
                if !draft.has_room() {
                    break;
                }
                let held = draft.program.alloc(step * (draft.get("sizes") + i), (i % 4) as u16);
                draft.program.pass(1_000);
                draft.program.free(held);
            }
        }
    },
};

/// Large blocks that are split, and their rests kept busy.
pub(super) static REMAINDERS: Generator = Generator {
    name: "hurt-splitting",
    summary: "large blocks that come and go, while each time a small long-lived block is cut from what they leave",
    hurts: "allocators that split a large cached block for a small request: best fit, PyTorch's without max_split_size_mb",
    knobs: &[ROUNDS, COUNT, SIZE],
    make: |draft| {
        let mut stay: Vec<Held> = Vec::new();
        for _ in 0..draft.get("rounds") {
            for i in 0..draft.get("count") {
                if !draft.has_room() {
                    break;
                }
                let large = draft.program.alloc((8 + i) * draft.get("size") * MIB, 0);
                draft.program.pass(1_000);
                draft.program.free(large);
                stay.push(draft.program.alloc(2 * MIB + draft.rng.random_range(0..MIB), 0));
            }
            let half = stay.len() / 2;
            stay.drain(..half).for_each(|held| draft.program.free(held));
        }
    },
};

/// A loop whose passes differ in order.
pub(super) static DRIFT: Generator = Generator {
    name: "hurt-planning",
    summary: "a loop that repeats for a while and then asks for the same sizes in another order and for other lifetimes, again and again",
    hurts: "allocators that plan from what they saw",
    knobs: &[ROUNDS, COUNT, SIZE],
    make: |draft| {
        let count = draft.get("count") as usize;
        for _ in 0..draft.get("rounds") {
            let shape: Vec<(u64, usize)> = (0..count)
                .map(|i| {
                    let size = draft.rng.random_range(1..=8) * draft.get("size") * MIB;
                    (size, draft.rng.random_range(1..=count - i))
                })
                .collect();
            for _ in 0..3 {
                if !draft.has_room() {
                    break;
                }
                pass(draft, &shape);
            }
        }
    },
};

/// One pass of a loop: sizes, and after how many requests each is freed.
fn pass(draft: &mut Draft, shape: &[(u64, usize)]) {
    let mut live: Vec<(usize, Held)> = Vec::new();
    for (i, &(size, life)) in shape.iter().enumerate() {
        live.push((i + life, draft.program.alloc(size, 0)));
        draft.program.pass(1_000);
        for (_, held) in live.extract_if(.., |block| block.0 <= i + 1) {
            draft.program.free(held);
        }
    }
    live.into_iter().for_each(|(_, held)| draft.program.free(held));
}
