//! Does `cub` do what CUB's own test of its caching allocator states, number for number?

mod logs;

use logs::request;
use logs::rig::{Rig, roomy};
use poolsim_core::device::DeviceOp;
use poolsim_core::units::MIB;
use poolsim_core::{BlockId, Bytes, Policy, ReplayTarget, Slot};

/// The default cap: three blocks of 2 MiB, less one byte.
const MAX_CACHED: Bytes = 6_291_455;
const MIN_BIN: Bytes = 512;

/// Cached blocks, cached bytes, live blocks.
type Counts = (i64, i64, usize);

/// A free behind work that goes on until it is completed.
fn free_behind(rig: &mut Rig, work: u32, block: BlockId) {
    rig.dev.hold(Slot(work));
    rig.free(block);
    rig.dev.end_hold();
}

fn counts(rig: &Rig) -> Counts {
    let held = rig.calls(DeviceOp::Alloc) - rig.calls(DeviceOp::Free);
    let cached = rig.native("cached_blocks");
    (cached, rig.native("cached_bytes.free"), held as usize - cached as usize)
}

/// `Test0`: a block freed behind work on a stream serves that stream at once, and others when the work is done.
#[test]
fn blocks_change_streams_once_their_work_is_done() {
    let mut rig = roomy("cub");
    let a = rig.block(999, 0);
    free_behind(&mut rig, 1, a);
    let b = rig.block(999, 0);
    assert_eq!(counts(&rig), (0, 0, 1), "the same stream takes it again");
    free_behind(&mut rig, 2, b);
    let other = rig.block(999, 1);
    assert_eq!(counts(&rig), (1, 4096, 1), "another stream does not");
    free_behind(&mut rig, 3, other);
    (1..=3).for_each(|work| rig.dev.complete(Slot(work)));
    for stream in [0, 1, 0] {
        let both = [rig.block(999, stream), rig.block(999, stream)];
        assert_eq!(counts(&rig), (0, 0, 2), "both blocks serve stream {stream}");
        both.into_iter().for_each(|block| rig.free(block));
    }
    assert_eq!(rig.empty_cache(), 2 * 4096);
}

/// `Test1` to `Test8`.
#[test]
fn bins_and_the_cap_are_as_stated() {
    let mut rig = roomy("cub");
    let (small, page) = (rig.block(5, 0), rig.block(4096, 0));
    assert_eq!(counts(&rig), (0, 0, 2));
    rig.free(small);
    assert_eq!(counts(&rig), (1, MIN_BIN as i64, 1));
    rig.free(page);
    assert_eq!(counts(&rig), (2, (MIN_BIN + 4096) as i64, 0));
    let reused = rig.block(768, 0);
    assert_eq!(counts(&rig), (1, MIN_BIN as i64, 1), "the block of 4096 bytes serves 768");
    let whole = rig.block(MAX_CACHED, 0);
    rig.free(whole);
    assert_eq!(counts(&rig), (1, MIN_BIN as i64, 1), "what is above the largest bin is not kept");
    assert_eq!(rig.empty_cache(), MIN_BIN);
    assert_eq!(counts(&rig), (0, 0, 1));
    let above = rig.block(MAX_CACHED + 1, 0);
    rig.free(above);
    rig.free(reused);
    assert_eq!(counts(&rig), (1, 4096, 0));
}

/// The cap counts every kept block: of three of the largest, two stay.
#[test]
fn a_block_that_would_exceed_the_cap_goes_back() {
    let mut rig = roomy("cub");
    let blocks = [2 * MIB, MIB, 257 << 10].map(|size| rig.block(size, 0));
    assert_eq!(rig.held(), 6 * MIB, "each takes a block of 2 MiB");
    blocks.into_iter().for_each(|block| rig.free(block));
    assert_eq!(counts(&rig), (2, 4 * MIB as i64, 0));
    assert_eq!(rig.held(), 4 * MIB);
}

/// `NearestPowerOf`, with other factors: each size goes to the first power that holds it.
#[test]
fn sizes_are_powers_of_the_growth_factor() {
    let mut rig = roomy("cub,bin_growth:3,min_bin:2,max_bin:12");
    let blocks = [(1, 9), (9, 9), (10, 27), (531_441, 531_441), (531_442, 531_442)];
    for (asked, got) in blocks {
        let grant = rig.policy.malloc(&mut rig.dev, request(asked, 0, 0)).expect("it fits");
        assert_eq!(grant.size, got, "for {asked} bytes");
    }
}
