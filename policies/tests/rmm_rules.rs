//! RMM's rules in small: the facts that its own unit tests state, and what it does between streams.

mod logs;

use logs::device;
use logs::rig::{Rig, h200, roomy};
use poolsim_core::device::DeviceOp;
use poolsim_core::units::{GIB, KIB, MIB};
use poolsim_core::{BlockId, Bytes, Device, OomCause, ReplayTarget};
use poolsim_sim::DeviceProfile;
use poolsim_sim::adapt::Limited;

/// `PoolTest.ForceGrowth`: a limit of 6000 bytes above the pool.
#[test]
fn a_pool_that_may_not_double_halves_its_wish() {
    let limited = || Limited::new(h200(), 6000);
    let mut rig = Rig::new("rmm-pool", limited());
    for (size, held) in [(1000, 1024), (4000, 5120), (500, 5760)] {
        rig.alloc(size, 0);
        assert_eq!(rig.held(), held);
    }
    assert_eq!(rig.refused(2000), OomCause::DeviceFull);

    let mut rig = Rig::new("rmm-pool,maximum_pool_size:8192", limited());
    rig.alloc(1000, 0);
    assert_eq!(rig.held(), 4096);
    assert_eq!(rig.refused(4000), OomCause::DeviceFull);
    rig.alloc(500, 0);
    rig.alloc(2000, 0);
    assert_eq!(rig.held(), 4096);
}

#[test]
fn a_maximum_is_approached_by_halves() {
    let mut rig = roomy("rmm-pool,initial_pool_size:1MiB,maximum_pool_size:9MiB");
    for (size, held) in [(MIB, 1), (MIB, 5), (3 * MIB, 5), (2 * MIB, 7), (2 * MIB, 9)] {
        rig.alloc(size, 0);
        assert_eq!(rig.held(), held * MIB);
    }
    assert_eq!(rig.refused(256), OomCause::Limit);
    // `InitialAndMaxPoolSizeEqual`.
    let mut rig = roomy("rmm-pool,initial_pool_size:1000192,maximum_pool_size:1000192");
    rig.alloc(1000, 0);
    assert_eq!(rig.held(), 1_000_192);
    let small = "rmm-pool,initial_pool_size:2MiB,maximum_pool_size:1MiB".parse().unwrap();
    let caps = DeviceProfile::h200().caps;
    let env = poolsim_policies::BuildEnv { caps, memory_fraction: None };
    assert!(poolsim_policies::Registry::builtin().build(&small, &env).is_err());
}

#[test]
fn ranges_do_not_merge_even_where_they_touch() {
    // The recorded driver put these two side by side.
    let answers = vec![logs::at(0x7f00_0000_0000), logs::at(0x7f00_0020_0000)];
    let mut rig = Rig::new("rmm-pool", device(answers));
    let (first, second) = (rig.alloc(2 * MIB, 0).1, rig.alloc(2 * MIB, 0).1);
    rig.free(first);
    rig.free(second);
    assert_eq!(rig.image().blocks().count(), 2);
    assert_eq!(rig.at(2 * MIB, 0), 0);
}

#[test]
fn streams_take_from_each_other_before_the_pool_grows() {
    let mut rig = roomy("rmm-pool,initial_pool_size:8MiB,default_stream:True");
    let (_, a) = rig.alloc(MIB, 0);
    let (at, b) = rig.alloc(MIB, 1);
    assert_eq!((at as Bytes, rig.calls(DeviceOp::Wait)), (MIB, 1));
    rig.free(b);
    // Stream 1's own list first, though stream 0 has a block that fits as well.
    assert_eq!((rig.at(MIB, 1), rig.calls(DeviceOp::Wait)), (MIB, 1));
    let (at, c) = rig.alloc(4 * MIB, 2);
    assert_eq!((at as Bytes, rig.calls(DeviceOp::Wait)), (2 * MIB, 2));
    rig.free(c);
    rig.free(a);
    // 1 MiB at 0 and 2 MiB at 6 in stream 0's list, 4 MiB at 2 in stream 2's: joined, 6 MiB at 2.
    assert_eq!((rig.at(6 * MIB, 1), rig.held()), (2 * MIB, 8 * MIB));
    assert_eq!(rig.calls(DeviceOp::Alloc), 1);
}

#[test]
fn what_comes_before_the_first_request_is_the_default_streams() {
    let mut rig = roomy("rmm-pool,initial_pool_size:8MiB");
    let (_, a) = rig.alloc(MIB, 0);
    rig.free(a);
    // The freed block is in the stream's own list, apart from its neighbour.
    assert_eq!(rig.at(MIB / 2, 0), 0);
    assert_eq!(rig.at(MIB, 0), MIB);
    let mut rig = roomy("rmm-pool,initial_pool_size:8MiB,default_stream:True");
    let (_, a) = rig.alloc(MIB, 0);
    rig.free(a);
    assert_eq!(rig.at(MIB / 2, 0), 0);
    assert_eq!(rig.at(MIB, 0), MIB / 2);
}

#[test]
fn bins_are_queues_and_keep_their_blocks() {
    let mut rig =
        roomy("rmm-binning,min_size_exponent:12,max_size_exponent:13,default_stream:True");
    let blocks: Vec<BlockId> = (0..128)
        .map(|i| {
            let (at, block) = rig.alloc(3000, 0);
            assert_eq!(at as Bytes, i * 4 * KIB);
            block
        })
        .collect();
    assert_eq!(rig.held(), 128 * 12 * KIB);
    rig.free(blocks[7]);
    rig.free(blocks[3]);
    assert_eq!([rig.at(1, 0), rig.at(4096, 0)], [7 * 4 * KIB, 3 * 4 * KIB]);
    // The next 128 come from the pool, which doubles.
    rig.alloc(1, 0);
    assert_eq!(rig.held(), 2 * 128 * 12 * KIB);
    assert_eq!(rig.native("upstream_bytes") as Bytes, (2 * 4 + 8) * 128 * KIB);
}

#[test]
fn nothing_goes_back_while_the_program_holds_a_block() {
    for spec in ["rmm-pool", "rmm-binning", "rmm-arena,arena_size:1GiB"] {
        let mut rig = roomy(spec);
        let (_, a) = rig.alloc(100 * MIB, 0);
        let (_, b) = rig.alloc(MIB, 0);
        rig.free(a);
        assert_eq!(rig.empty_cache(), 0, "{spec}");
        rig.free(b);
        let held = rig.held();
        assert_eq!(rig.empty_cache(), held, "{spec}");
        assert_eq!((rig.held(), rig.dev.used_bytes()), (0, 0), "{spec}");
        rig.alloc(MIB, 0);
    }
}

/// `ArenaTest`: an arena of four superblocks.
#[test]
fn an_arena_hands_out_superblocks() {
    let arena = || roomy("rmm-arena,arena_size:4MiB");
    // `ArenaAllocate`, `ArenaDeallocate`.
    let mut rig = arena();
    let (_, a) = rig.alloc(MIB, 0);
    assert_eq!(rig.at(256, 0), MIB);
    rig.free(a);
    assert_eq!(rig.at(MIB, 0), 0);
    // `ArenaDeallocateMergePrevious`, `…MergeNext`.
    for order in [[0, 1], [1, 0]] {
        let mut rig = arena();
        let blocks = [rig.alloc(256, 0).1, rig.alloc(256, 0).1, rig.alloc(256, 0).1];
        order.iter().for_each(|&i| rig.free(blocks[i]));
        assert_eq!(rig.at(512, 0), 0);
    }
    // `ArenaDefragment`: superblocks of a stream go back only when nothing else serves.
    let mut rig = arena();
    let blocks: Vec<BlockId> = (0..4).map(|_| rig.alloc(MIB, 0).1).collect();
    blocks.into_iter().for_each(|block| rig.free(block));
    assert_eq!(rig.calls(DeviceOp::Synchronize), 0);
    assert_eq!((rig.at(4 * MIB, 0), rig.calls(DeviceOp::Synchronize)), (0, 1));
    assert_eq!(rig.refused(256), OomCause::Limit);
    // `GlobalArenaDeallocateAlignUp`: superblocks that became empty merge.
    let mut rig = arena();
    let (a, b) = (rig.alloc(MIB + 256, 0).1, rig.alloc(MIB + 512, 0).1);
    rig.free(a);
    rig.free(b);
    assert_eq!(rig.at(4 * MIB, 0), 0);
}

/// `ArenaTest.PerThreadToStreamDealloc`, with streams: a superblock changes hands while a block of it is in use.
#[test]
fn a_block_is_freed_into_a_superblock_that_another_stream_took() {
    let mut rig = roomy("rmm-arena,arena_size:2MiB");
    let (_, a) = rig.alloc(256, 1);
    let (_, b) = rig.alloc(32 * KIB, 2);
    rig.free(b);
    assert_eq!(rig.at(MIB, 0), MIB);
    assert_eq!(rig.at(32 * KIB, 0), 256);
    let waits = rig.calls(DeviceOp::Synchronize);
    rig.free(a);
    assert_eq!(rig.calls(DeviceOp::Synchronize), waits + 1);
    assert_eq!(rig.at(256, 0), 0);
}

#[test]
fn an_arena_takes_half_of_what_is_free() {
    let mut rig = roomy("rmm-arena");
    let free = rig.dev.free_bytes();
    rig.alloc(1, 0);
    assert_eq!(rig.held(), free / 2 / 256 * 256);
    assert_eq!(rig.refused(80 * GIB), OomCause::Limit);
}
