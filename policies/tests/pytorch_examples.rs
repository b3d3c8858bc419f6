//! Does `pytorch` do what hand-derived examples and PyTorch's developers say it does? Needs no recording.

mod support;

use poolsim_core::Action::{FreeCompleted, SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap};
use poolsim_core::units::{GIB, KIB, MIB};
use poolsim_core::{AllocError, Policy, ReplayTarget};
use support::Bench;

#[test]
fn large_blocks_split_only_above_one_mib() {
    let mut b = Bench::new("pytorch", None, None);
    let a = b.alloc("a", 3 * MIB);
    assert_eq!(b.device_log(), [(SegmentAlloc, a.addr, 20 * MIB)]);
    assert_eq!(b.native("inactive_split_bytes.all.current"), 17 << 20);
    let s1 = b.alloc("b", 18 * MIB + 512 * KIB);
    assert_eq!(b.device_log(), [(SegmentAlloc, s1.addr, 20 * MIB)]);
    let c = b.alloc("c", 1_258_291);
    assert_eq!(c.addr, s1.addr + 18 * MIB + 512 * KIB, "the smallest block that fits");
    assert_eq!(c.size, 3 * MIB / 2, "the rest of it is no more than 1 MiB and stays with it");
    b.free("a");
    let e = b.alloc("e", 19 * MIB + 512 * KIB);
    assert_eq!((e.addr, e.size), (a.addr, 20 * MIB));
    assert!(b.device_log().is_empty());
    assert_eq!(b.native("allocated_bytes.all.current"), (20 << 20) + (37 << 19) + (3 << 19));
}

#[test]
fn expandable_segments_grow_from_the_free_block_before_the_tail() {
    let mut b = Bench::new("expandable", None, None);
    let v = b.alloc("a", 3 * MIB).addr;
    assert_eq!(b.device_log(), [(SegmentMap, v, 20 * MIB)]);
    assert_eq!(b.alloc("b", 18 * MIB).addr, v + 3 * MIB);
    assert_eq!(b.device_log(), [(SegmentMap, v + 20 * MIB, 20 * MIB)]);
    b.free("a");
    assert_eq!(b.alloc("c", 2 * MIB).addr, v);
    assert!(b.device_log().is_empty());
    b.free_all();
    b.policy.empty_cache(&mut b.dev);
    assert_eq!(b.device_log(), [(SegmentUnmap, v, 40 * MIB)]);
    assert_eq!(b.dev.used_bytes(), 0);
    assert_eq!(b.dev.ranges().count(), 0, "the reservation is given up");
}

#[test]
fn oversize_blocks_serve_only_requests_of_their_own_size() {
    let mut b = Bench::new("max_split_size_mb:100", None, None);
    b.alloc("whole", 150 * MIB);
    b.free("whole");
    b.alloc("small", 90 * MIB);
    assert_eq!(b.reserved_mib(), 240, "90 < 100 <= 150: refused");
    let big = b.alloc("big", 140 * MIB);
    assert_eq!((big.size, b.reserved_mib()), (150 * MIB, 240), "150 < 140 + 20: taken whole");
    b.free("big");
    b.alloc("other", 125 * MIB);
    assert_eq!(b.reserved_mib(), 366, "150 >= 125 + 20: refused, and 125 is rounded to 126");
}

#[test]
fn garbage_is_collected_only_under_a_fraction_and_before_a_new_segment() {
    for (fraction, freed) in [(None, false), (Some(1.0), false), (Some(0.5), true)] {
        let mut b = Bench::new("garbage_collection_threshold:0.8", Some(80 * GIB), fraction);
        for i in 0..33 {
            b.alloc(&format!("x{i}"), GIB);
        }
        b.free("x0");
        b.free("x1");
        b.device_log();
        b.alloc("miss", GIB + 2 * MIB);
        let log = b.device_log();
        assert_eq!(log.iter().any(|e| e.0 == SegmentFree), freed, "{fraction:?}: {log:?}");
        assert_eq!(log.last().map(|e| e.0), Some(SegmentAlloc));
    }
}

#[test]
fn the_limit_counts_a_whole_page_even_where_less_is_missing() {
    let total = 200 * MIB;
    let mut b = Bench::new("expandable", Some(total), Some(0.5));
    b.alloc("a", 85 * MIB);
    b.alloc("b", 15 * MIB);
    let refused = b.try_alloc("c", 3 * MIB, 0, 0).expect_err("100 + 20 MiB are above the limit");
    assert!(matches!(refused, AllocError::OutOfMemory { rounded, .. } if rounded == 3 * MIB));
    assert_eq!(b.native("num_ooms"), 1);
    assert_eq!(b.native("num_alloc_retries"), 1);
}

/// What PyTorch's developers say of small cases: "When does fragmentation occur in the CUDA caching allocator?" (2026).
#[test]
fn growing_sizes_fragment_and_shrinking_ones_do_not() {
    let mut b = Bench::new("pytorch", None, None);
    b.alloc_all(8, 16 * MIB);
    assert_eq!(b.reserved_mib(), 128);
    b.free_all();
    b.alloc_all(4, 32 * MIB);
    assert_eq!(b.reserved_mib(), 256);
    let mut b = Bench::new("pytorch", None, None);
    b.alloc_all(4, 32 * MIB);
    b.free_all();
    b.alloc_all(8, 16 * MIB);
    assert_eq!(b.reserved_mib(), 128);
}

#[test]
fn expandable_segments_map_page_by_page_and_reuse_what_is_adjacent() {
    let mut b = Bench::new("expandable", None, None);
    for (i, mapped) in [20, 40, 60, 80, 80, 100, 120, 140].into_iter().enumerate() {
        b.alloc(&i.to_string(), 16 * MIB);
        assert_eq!(b.reserved_mib(), mapped);
    }
    b.free_all();
    b.alloc_all(4, 32 * MIB);
    assert_eq!(b.reserved_mib(), 140);
    let mut b = Bench::new("expandable", None, None);
    b.alloc_all(4, 16 * MIB);
    b.free("0");
    b.free("2");
    let before = b.reserved_mib();
    b.alloc("wide", 32 * MIB);
    assert!(b.reserved_mib() > before, "two holes of 16 MiB do not hold 32 MiB");
    let after = b.reserved_mib();
    b.free_all();
    b.alloc("again", 32 * MIB);
    assert_eq!(b.reserved_mib(), after);
}

#[test]
fn small_and_large_requests_never_share() {
    let mut b = Bench::new("expandable", None, None);
    b.alloc("large", 2 * MIB);
    b.free("large");
    b.alloc("small", 512 * KIB);
    assert_eq!(b.reserved_mib(), 22);
    let mut b = Bench::new("expandable", None, None);
    b.alloc("large", 2 * MIB);
    b.free("large");
    b.alloc("same", 2 * MIB);
    assert_eq!(b.reserved_mib(), 20);
}

#[test]
fn a_low_max_split_size_keeps_a_large_segment_whole() {
    for (spec, reserved) in [("pytorch", 530), ("max_split_size_mb:20", 800)] {
        let mut b = Bench::new(spec, None, None);
        b.alloc("weights", 530 * MIB);
        b.free("weights");
        b.alloc("half", 270 * MIB);
        assert_eq!(b.reserved_mib(), reserved, "{spec}");
    }
}

#[test]
fn a_shared_block_waits_for_its_streams_and_merges_with_nobody_until_then() {
    let mut b = Bench::new("pytorch", None, None);
    let a = b.alloc("a", 4 * MIB);
    b.alloc("rest", 16 * MIB);
    b.use_on("a", 1);
    let slot = b.free_held("a");
    b.device_log();
    assert_eq!(b.policy.stats().allocated.current, 16 * MIB);
    assert_eq!(b.policy.stats().active.current, 20 * MIB);
    let other = b.alloc("b", 4 * MIB);
    assert_ne!(other.addr, a.addr, "its fence has not passed");
    b.dev.complete(slot);
    b.device_log();
    assert_eq!(b.alloc("c", 4 * MIB).addr, a.addr);
    assert_eq!(b.device_log(), [(FreeCompleted, a.addr, 4 * MIB)]);
    b.use_on("c", 0);
    b.free("c");
    assert_eq!(b.policy.stats().active.current, b.policy.stats().allocated.current);
}

#[test]
fn a_use_on_the_own_stream_needs_no_wait() {
    let mut b = Bench::new("pytorch", None, None);
    let a = b.alloc("a", 4 * MIB);
    b.use_on("a", 0);
    b.free_held("a");
    assert_eq!(b.alloc("b", 4 * MIB).addr, a.addr);
}

#[test]
fn a_full_device_is_an_answer_and_everything_comes_back() {
    for spec in ["pytorch", "expandable", "max_split_size_mb:20", "roundup_power2_divisions:4"] {
        let mut b = Bench::new(spec, Some(256 * MIB), None);
        let mut n = 0;
        while b.try_alloc(&n.to_string(), 7 * MIB + 13, 0, 0).is_ok() {
            n += 1;
        }
        assert!((24..40).contains(&n), "{spec}: {n} blocks of 7 MiB in 256 MiB");
        b.free_all();
        b.policy.empty_cache(&mut b.dev);
        assert_eq!((b.dev.used_bytes(), b.reserved_mib()), (0, 0), "{spec}");
        b.alloc("whole", 200 * MIB);
    }
}
