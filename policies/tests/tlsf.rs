//! Does `tlsf` choose what another implementation of two-level lists chooses? The crate `offset-allocator` has eight lists an octave
//! and one range; on one segment with `sli:3` both must put every request at the same offset and refuse the same ones.

mod common;

use common::{device, env, registry};
use offset_allocator::{Allocation, Allocator};
use poolsim_core::units::MIB;
use poolsim_core::{AllocError, AllocRequest, BlockId, Bytes, DevAddr, PoolId, Slot, StreamId};
use proptest::prelude::*;

const SEGMENT: Bytes = 64 * MIB;
const UNIT: Bytes = 256;

/// Sizes in units of 256 bytes, mostly small, or the number of a block to free.
fn ops() -> impl Strategy<Value = Vec<Result<u32, usize>>> {
    let size = prop_oneof![1u32..9, 1u32..200, 1u32..40_000];
    prop::collection::vec(
        prop_oneof![3 => size.prop_map(Ok), 2 => any::<usize>().prop_map(Err)],
        1..400,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn one_segment_is_used_as_offset_allocator_uses_it(ops in ops()) {
        let spec = format!("tlsf,sli:3,quantum:{UNIT},segment:{SEGMENT}").parse().expect("a spec");
        let mut policy = registry().build(&spec, &env(SEGMENT)).expect("a policy").policy;
        let mut dev = device(SEGMENT);
        let mut other: Allocator = Allocator::new((SEGMENT / UNIT) as u32);
        let mut held: Vec<(BlockId, Allocation)> = Vec::new();
        let mut base: Option<DevAddr> = None;
        for op in ops {
            let units = match op {
                Ok(units) => units,
                Err(which) => {
                    if !held.is_empty() {
                        let (block, allocation) = held.swap_remove(which % held.len());
                        policy.free(&mut dev, block);
                        other.free(allocation);
                    }
                    continue;
                }
            };
            let size = Bytes::from(units) * UNIT;
            let req = AllocRequest { size, stream: StreamId(0), pool: PoolId::DEFAULT, slot: Slot(0) };
            match (policy.malloc(&mut dev, req), other.allocate(units)) {
                (Ok(grant), Some(allocation)) => {
                    let base = *base.get_or_insert(grant.addr);
                    prop_assert_eq!(grant.addr - base, Bytes::from(allocation.offset) * UNIT);
                    prop_assert_eq!(grant.size, size);
                    held.push((grant.block, allocation));
                }
                (Err(AllocError::OutOfMemory { .. }), None) => {}
                (ours, theirs) => prop_assert!(false, "{ours:?} and {:?}", theirs.map(|a| a.offset)),
            }
        }
    }
}
