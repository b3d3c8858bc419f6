//! Does `buddy` split and join by the definition? Beside it, a plain list of free blocks that is searched from end to end.

mod common;

use common::{ROOMY, device, env, registry};
use poolsim_core::units::{KIB, MIB};
use poolsim_core::{
    AllocRequest, BlockId, BlockState, Bytes, DevAddr, HeapImage, PoolId, Slot, StreamId,
};
use proptest::prelude::*;

const MIN_BLOCK: Bytes = KIB;
const SEGMENT: Bytes = 4 * MIB;

/// A block of the model: its segment's address, its offset there, its size.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    segment: DevAddr,
    offset: Bytes,
    size: Bytes,
}

/// Free pieces, the one freed last at the end.
#[derive(Default)]
struct Model {
    free: Vec<Piece>,
    held: Bytes,
}

impl Model {
    /// Where a request goes; at `fresh` if a segment has to be taken.
    fn take(&mut self, asked: Bytes, fresh: DevAddr) -> Piece {
        let size = asked.next_power_of_two().max(MIN_BLOCK);
        let smallest = self.free.iter().map(|p| p.size).filter(|&s| s >= size).min();
        let mut piece = match smallest {
            Some(s) => {
                let at = self.free.iter().rposition(|p| p.size == s).expect("it was just seen");
                self.free.remove(at)
            }
            None => {
                let whole = size.max(SEGMENT);
                self.held += whole;
                Piece { segment: fresh, offset: 0, size: whole }
            }
        };
        while piece.size > size {
            piece.size /= 2;
            self.free.push(Piece { offset: piece.offset + piece.size, ..piece });
        }
        piece
    }

    fn give(&mut self, piece: Piece) {
        let buddy = Piece { offset: piece.offset ^ piece.size, ..piece };
        match self.free.iter().position(|&p| p == buddy) {
            Some(at) => {
                self.free.remove(at);
                let offset = piece.offset.min(buddy.offset);
                self.give(Piece { offset, size: 2 * piece.size, ..piece });
            }
            None => self.free.push(piece),
        }
    }

    fn free_blocks(&self) -> Vec<(DevAddr, Bytes)> {
        let mut blocks: Vec<_> = self.free.iter().map(|p| (p.segment + p.offset, p.size)).collect();
        blocks.sort_unstable();
        blocks
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn blocks_are_halved_and_joined_by_the_definition(
        ops in prop::collection::vec(
            prop_oneof![
                3 => prop_oneof![1..6 * KIB, 1..MIB, 1..9 * MIB].prop_map(Ok),
                2 => any::<usize>().prop_map(Err),
            ],
            1..300,
        )
    ) {
        let spec = format!("buddy,min_block:{MIN_BLOCK},segment:{SEGMENT}").parse().expect("a spec");
        let mut policy = registry().build(&spec, &env(ROOMY)).expect("a policy").policy;
        let mut dev = device(ROOMY);
        let mut model = Model::default();
        let mut held: Vec<(BlockId, Piece)> = Vec::new();
        for op in ops {
            match op {
                Ok(size) => {
                    let req = AllocRequest { size, stream: StreamId(0), pool: PoolId::DEFAULT, slot: Slot(0) };
                    let grant = policy.malloc(&mut dev, req).expect("the device is roomy");
                    let piece = model.take(size, grant.addr);
                    prop_assert_eq!((grant.addr, grant.size), (piece.segment + piece.offset, piece.size));
                    held.push((grant.block, piece));
                }
                Err(which) if !held.is_empty() => {
                    let (block, piece) = held.swap_remove(which % held.len());
                    policy.free(&mut dev, block);
                    model.give(piece);
                }
                Err(_) => {}
            }
            let mut image = HeapImage::default();
            policy.visit(&mut image);
            let free = image.blocks().filter(|(_, b)| b.state == BlockState::Free);
            let mut free: Vec<_> = free.map(|(_, b)| (b.addr, b.size)).collect();
            free.sort_unstable();
            prop_assert_eq!(free, model.free_blocks());
            prop_assert_eq!(policy.stats().reserved.current, model.held);
        }
    }
}

#[test]
fn a_parameter_that_is_no_power_of_two_is_refused_with_the_next_ones() {
    let build = |spec: &str| {
        let built = registry().build(&spec.parse().expect("a spec"), &env(ROOMY));
        built.map(|_| ()).map_err(|e| e.to_string())
    };
    let error = build("buddy,segment:6MiB").expect_err("three times two");
    assert!(error.contains("4194304 or 8388608"), "{error}");
    assert!(build("buddy,min_block:768").is_err());
    assert!(build("buddy,min_block:64KiB,segment:8MiB").is_ok());
}
