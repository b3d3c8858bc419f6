//! Every placement against a linear scan of the same free blocks under the same rule.

use super::*;
use crate::params::Params;
use crate::stage::classes::class_of;
use poolsim_core::units::MIB;
use poolsim_core::{AllocRequest, DevAddr, PoolId, Slot, StreamId};
use poolsim_sim::{DeviceProfile, SimConfig, SimDevice};
use proptest::prelude::*;
use std::cmp::Reverse;

/// A free block, as the scan sees it: size, address, and when it was put in.
type Seen = (Bytes, DevAddr, u64, BlockId);

/// What a rule chooses among the free blocks of one lane.
fn scan(rule: &str, free: &[Seen], size: Bytes) -> Option<BlockId> {
    let fits = || free.iter().filter(|s| s.0 >= size);
    let chosen = match rule {
        "best" => fits().min_by_key(|s| (s.0, s.1)),
        "first" => fits().min_by_key(|s| s.1),
        "worst" => fits().min_by_key(|s| (Reverse(s.0), s.1)),
        "bins" => {
            let class = |s: Bytes| class_of(s, 3);
            let mut own: Vec<&Seen> = free.iter().filter(|s| class(s.0) == class(size)).collect();
            own.sort_by_key(|s| Reverse(s.2));
            let above = free.iter().filter(|s| class(s.0) > class(size));
            own.into_iter()
                .take(8)
                .find(|s| s.0 >= size)
                .or_else(|| above.min_by_key(|s| (class(s.0), Reverse(s.2))))
        }
        "tlsf" => {
            // Lists by their lower ends, as M. Masmano et al. write them: a power of two, and a 32nd of it.
            let lower_end = |s: Bytes| s & !((1 << s.ilog2()) / 32 - 1);
            let sure = free.iter().filter(|s| lower_end(s.0) >= size);
            sure.min_by_key(|s| (lower_end(s.0), Reverse(s.2)))
        }
        _ => panic!("write the scan for the placement `{rule}`"),
    };
    chosen.map(|s| s.3)
}

/// One placement, and the list that its choices are compared with.
struct Beside {
    rule: &'static str,
    place: Box<dyn Placement>,
    arena: Arena,
    lane: LaneId,
    free: Vec<Seen>,
    held: Vec<BlockId>,
    clock: u64,
}

impl Beside {
    fn insert(&mut self, block: BlockId) {
        self.clock += 1;
        self.place.insert(&self.arena, block);
        self.free.push((self.arena.size(block), self.arena.addr(block), self.clock, block));
    }

    fn remove(&mut self, block: BlockId) {
        self.place.remove(&self.arena, block);
        self.free.retain(|s| s.3 != block);
    }

    fn take(&mut self, size: Bytes) {
        let largest = self.free.iter().map(|s| s.0).max().unwrap_or(0);
        assert_eq!(self.place.largest(&self.arena, self.lane), largest, "`{}`", self.rule);
        let want = scan(self.rule, &self.free, size);
        let got = self.place.take(&self.arena, size, self.lane);
        assert_eq!(got, want, "`{}` for {size} bytes among {:?}", self.rule, self.free);
        let Some(block) = got else { return };
        self.free.retain(|s| s.3 != block);
        let (stream, pool) = (StreamId(0), PoolId::DEFAULT);
        let req = AllocRequest { size, stream, pool, slot: Slot(0) };
        if let Some(rest) = self.arena.occupy(block, size, &req) {
            self.insert(rest);
        }
        self.held.push(block);
    }

    fn give(&mut self, which: usize) {
        if self.held.is_empty() {
            return;
        }
        let block = self.held.swap_remove(which % self.held.len());
        self.arena.vacate(block);
        let (prev, next) = self.arena.free_neighbours(block);
        prev.into_iter().chain(next).for_each(|b| self.remove(b));
        let whole = self.arena.merge(block, prev, next);
        self.insert(whole);
        self.arena.check(true);
    }
}

fn run(stage: &StageDef<dyn Placement>, ops: &[(bool, u64, usize)], ranges: u64) {
    let mut dev = SimDevice::new(SimConfig::new(DeviceProfile::h200()));
    let mut arena = Arena::default();
    let lane = arena.lane_for(StreamId(0), PoolId::DEFAULT);
    let place = (stage.build)(&Params::defaults(stage.params));
    let (free, held) = (Vec::new(), Vec::new());
    let mut beside = Beside { rule: stage.name, place, arena, lane, free, held, clock: 0 };
    for i in 0..ranges {
        let block = beside.arena.reserve(&mut dev, (i + 1) * 2 * MIB, lane).unwrap();
        let block = beside.arena.merge(block, None, None);
        beside.insert(block);
    }
    for &(take, units, which) in ops {
        match take {
            true => beside.take(units * 512),
            false => beside.give(which),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn placements_choose_what_a_linear_scan_chooses(
        ops in prop::collection::vec((prop::bool::weighted(0.6), prop_oneof![1u64..40, 1u64..9000], any::<usize>()), 0..300),
        ranges in 1u64..6,
    ) {
        for stage in PLACEMENTS {
            run(stage, &ops, ranges);
        }
    }

    /// Many blocks of one size: classes turn into trees and back.
    #[test]
    fn crowded_classes_stay_in_order(gives in prop::collection::vec((prop::bool::weighted(0.4), any::<usize>()), 0..400)) {
        let mut ops = vec![(true, 2, 0); 1000];
        ops.extend(gives.into_iter().map(|(take, which)| (take, 2, which)));
        for stage in PLACEMENTS {
            run(stage, &ops, 1);
        }
    }
}
