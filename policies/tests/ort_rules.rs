//! `ort-arena` in small: the facts that ONNX Runtime's own unit tests of its arena state, and which stream may use whose chunks.

mod logs;

use logs::rig::{Rig, h200, roomy};
use logs::{build, request};
use poolsim_core::units::{GIB, KIB, MIB};
use poolsim_core::{AllocError, BlockId, BlockState, Bytes, DevAddr, OomCause, Policy, StreamId};
use poolsim_sim::adapt::Limited;
use proptest::prelude::*;

/// The host waited for a stream, as where ONNX Runtime releases a stream's buffers.
fn waited(rig: &mut Rig, stream: u16) {
    rig.policy.synchronized(&mut rig.dev, Some(StreamId(stream)));
}

fn stats<const N: usize>(rig: &Rig, names: [&str; N]) -> [i64; N] {
    names.map(|name| rig.native(name))
}

/// Allocations, bytes in use, their peak, the largest chunk handed out.
const CHECKED: [&str; 4] = ["NumAllocs", "InUse", "MaxInUse", "MaxAllocSize"];

/// `NoDups`, `AllocatedVsRequested`.
#[test]
fn small_requests_take_multiples_of_256_bytes() {
    let mut rig = roomy("ort-arena,max_mem:1GiB");
    let blocks: Vec<BlockId> = (1..1024).map(|size| rig.alloc(size, 0).1).collect();
    assert_eq!(stats(&rig, CHECKED), [1023, 654_336, 654_336, 1024]);
    blocks.into_iter().for_each(|block| rig.free(block));
    assert_eq!(stats(&rig, CHECKED), [1023, 0, 654_336, 1024]);
}

/// `ExerciseCoalescing`: the same again and again neither fragments nor grows, and all merges in the end.
#[test]
fn a_loop_coalesces() {
    let mut rig = roomy("ort-arena,max_mem:1GiB");
    let (first, block) = rig.alloc(4096, 0);
    rig.free(block);
    assert_eq!(stats(&rig, CHECKED), [1, 0, 4096, 4096]);
    let sizes = [4 * KIB, 8 * MIB, 16 * KIB, 32 * MIB];
    for _ in 0..1024 {
        let blocks = sizes.map(|size| rig.alloc(size, 0).1);
        blocks.into_iter().for_each(|block| rig.free(block));
    }
    let sum = sizes.iter().sum::<Bytes>() as i64;
    assert_eq!(stats(&rig, CHECKED), [4097, 0, sum, 32 * MIB as i64]);
    assert_eq!(rig.alloc(4096, 0).0, first);
}

/// `TestCustomMemoryLimit`, `AllocationsAndDeallocations`, `TestBackoffDoesntHang`.
#[test]
fn a_refusal_says_why_and_ends() {
    let mut rig = roomy("ort-arena,max_mem:1MiB");
    let (_, block) = rig.alloc(256, 0);
    assert_eq!(rig.refused(4 * MIB), OomCause::Limit);
    rig.free(block);
    rig.alloc(256, 0);

    let mut policy = build("ort-arena,max_mem:10MiB").policy;
    let mut nothing = Limited::new(h200(), 0);
    let answer = policy.malloc(&mut nothing, request(1024, 0, 0));
    let Err(AllocError::OutOfMemory { cause, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(cause, OomCause::DeviceFull);

    // More than there is, and not stopped by the limit.
    let mut rig = roomy("ort-same-as-requested");
    rig.alloc(256, 0);
    assert_eq!(rig.refused(1000 * GIB), OomCause::DeviceFull);
}

/// What each of 256 requests of 1 MiB took from the device, where it took any.
fn extensions(spec: &str) -> Vec<Bytes> {
    let mut rig = roomy(spec);
    let held: Vec<Bytes> = (0..256)
        .map(|_| {
            rig.alloc(MIB, 0);
            rig.held()
        })
        .collect();
    let first = held[0];
    let later = held.windows(2).map(|w| w[1] - w[0]).filter(|&more| more > 0);
    std::iter::once(first).chain(later).collect()
}

/// `TestExtendStrategy`.
#[test]
fn regions_double_up_to_a_bound() {
    let mib = |sizes: &[Bytes]| sizes.iter().map(|size| size * MIB).collect::<Vec<_>>();
    let doubling = extensions("ort-arena,max_mem:1GiB");
    assert_eq!(doubling, mib(&[1, 2, 4, 8, 16, 32, 64, 128, 256]));
    let bounded = extensions("ort-arena,max_power_of_two_extend_bytes:32MiB");
    assert_eq!(bounded, [mib(&[1, 2, 4, 8, 16]), vec![32 * MIB; 8]].concat());
    assert_eq!(extensions("ort-same-as-requested"), vec![MIB; 256]);
    let mut rig = roomy("ort-arena,max_power_of_two_extend_bytes:32MiB");
    rig.alloc(64 * MIB, 0);
    assert_eq!(rig.held(), 64 * MIB, "a request may be larger than the bound");
}

/// `TestShrink`, and that the first of doubling regions stays.
#[test]
fn shrinking_gives_back_unused_regions() {
    let names = ["NumArenaExtensions", "NumArenaShrinkages", "TotalAllocated"];
    let mut rig = roomy("ort-same-as-requested");
    let small = rig.alloc(1024, 0).1;
    rig.alloc(10 * MIB, 0);
    assert_eq!(stats(&rig, names)[0], 2);
    rig.free(small);
    assert_eq!(rig.empty_cache(), 1024);
    assert_eq!(stats(&rig, names), [1, 1, 10 * MIB as i64]);

    let mut rig = roomy("ort-arena,initial_growth_chunk_size_bytes:4MiB");
    let blocks = [MIB, 2 * MIB, 4 * MIB].map(|size| rig.alloc(size, 0).1);
    rig.free(blocks[0]);
    rig.free(blocks[1]);
    assert_eq!(rig.empty_cache(), 2 * MIB);
    assert_eq!(rig.held(), 5 * MIB, "the first region stays");
    rig.alloc(2 * MIB, 0);
    assert_eq!(rig.held(), 9 * MIB, "a region of the size for regrowth");
}

/// `TwoStreamAllocation`, up to where one stream waits for another, which no trace says.
#[test]
fn streams_leave_each_others_chunks_alone() {
    let mut rig = roomy("ort-arena,max_mem:1GiB");
    let one_a = rig.alloc(4096, 1);
    let two_a = rig.alloc(4096, 2);
    rig.free(one_a.1);
    let two_b = rig.alloc(4096, 2);
    assert_ne!(two_b.0, one_a.0);
    rig.free(two_a.1);
    let one_c = rig.alloc(4096, 1);
    assert_eq!(one_c.0, one_a.0);
    let one_d = rig.alloc(4096, 1);
    assert_ne!(one_d.0, two_a.0);
    rig.free(two_b.1);
    waited(&mut rig, 2);
    assert_eq!(rig.alloc(8192, 1).0, two_a.0, "both chunks of stream 2, merged");
}

/// A chunk of the model.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    region: DevAddr,
    addr: DevAddr,
    size: Bytes,
    owner: Option<u16>,
    free: bool,
}

/// The rules on a plain list, in address order.
struct Model {
    chunks: Vec<Chunk>,
    next: Bytes,
    first: Option<DevAddr>,
}

const INITIAL: Bytes = 256 * KIB;
const REGROWTH: Bytes = 512 * KIB;
const MAX_DEAD: Bytes = 64 * KIB;
const BOUND: Bytes = 2 * MIB;

impl Model {
    fn held(&self) -> Bytes {
        self.chunks.iter().map(|c| c.size).sum()
    }

    fn extend(&mut self, need: Bytes, addr: DevAddr) {
        let fits = self.next >= need;
        while self.next < need {
            self.next *= 2;
        }
        let size = self.next;
        if fits {
            self.next = (2 * size).min(BOUND);
        }
        self.first.get_or_insert(addr);
        self.chunks.push(Chunk { region: addr, addr, size, owner: None, free: true });
        self.chunks.sort_by_key(|c| c.addr);
    }

    fn choice(&self, need: Bytes, stream: u16) -> Option<usize> {
        let usable = |c: &Chunk| c.free && c.size >= need && c.owner.is_none_or(|o| o == stream);
        let fits = (0..self.chunks.len()).filter(|&i| usable(&self.chunks[i]));
        fits.min_by_key(|&i| (self.chunks[i].size, self.chunks[i].addr))
    }

    /// Serves a request; `addr` is where a region would be.
    fn take(&mut self, size: Bytes, stream: u16, addr: DevAddr) -> Chunk {
        let need = size.next_multiple_of(256);
        let at = self.choice(need, stream).unwrap_or_else(|| {
            self.extend(need, addr);
            self.choice(need, stream).expect("the new region")
        });
        let whole = self.chunks[at];
        let size =
            if whole.size >= 2 * need || whole.size - need >= MAX_DEAD { need } else { whole.size };
        self.chunks[at] = Chunk { size, owner: Some(stream), free: false, ..whole };
        if whole.size > size {
            let rest = Chunk { addr: whole.addr + size, size: whole.size - size, ..whole };
            self.chunks.insert(at + 1, rest);
        }
        self.chunks[at]
    }

    fn give(&mut self, addr: DevAddr) {
        self.chunks.iter_mut().filter(|c| c.addr == addr).for_each(|c| c.free = true);
        self.merge();
    }

    fn disown(&mut self, stream: Option<u16>) {
        let of = |c: &&mut Chunk| c.free && stream.is_none_or(|s| c.owner == Some(s));
        self.chunks.iter_mut().filter(of).for_each(|c| c.owner = None);
        self.merge();
    }

    fn merge(&mut self) {
        self.chunks.dedup_by(|b, a| {
            let join = a.free && b.free && (a.region, a.owner) == (b.region, b.owner);
            a.size += if join { b.size } else { 0 };
            join
        });
    }

    fn shrink(&mut self) {
        let used: Vec<DevAddr> = self.chunks.iter().filter(|c| !c.free).map(|c| c.region).collect();
        // If nothing is in use, the session is over.
        let over = used.is_empty();
        let first = self.first.filter(|_| !over);
        self.chunks.retain(|c| used.contains(&c.region) || first == Some(c.region));
        self.next = if over { INITIAL } else { REGROWTH };
        self.first = self.first.filter(|_| !over);
    }

    fn free_chunks(&self) -> Vec<(DevAddr, Bytes)> {
        self.chunks.iter().filter(|c| c.free).map(|c| (c.addr, c.size)).collect()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Alloc(Bytes, u16),
    Free(usize),
    Wait(Option<u16>),
    Shrink,
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![1..3 * KIB, 1..100 * KIB, 1..MIB];
    prop_oneof![
        12 => (size, 0u16..3).prop_map(|(size, stream)| Op::Alloc(size, stream)),
        9 => any::<usize>().prop_map(Op::Free),
        1 => prop::option::of(0u16..3).prop_map(Op::Wait),
        1 => Just(Op::Shrink),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn chunks_of_three_streams_are_where_a_plain_list_has_them(ops in prop::collection::vec(op(), 1..250)) {
        let mut rig = roomy(&format!(
            "ort-arena,initial_chunk_size_bytes:{INITIAL},initial_growth_chunk_size_bytes:{REGROWTH},\
             max_dead_bytes_per_chunk:{MAX_DEAD},max_power_of_two_extend_bytes:{BOUND}"
        ));
        let mut model = Model { chunks: Vec::new(), next: INITIAL, first: None };
        let mut held: Vec<(DevAddr, BlockId)> = Vec::new();
        for op in ops {
            match op {
                Op::Alloc(size, stream) => {
                    let req = request(size, stream, 0);
                    let grant = rig.policy.malloc(&mut rig.dev, req).expect("it fits");
                    let (addr, block) = (grant.addr, grant.block);
                    prop_assert_eq!(model.take(size, stream, addr).addr, addr);
                    held.push((addr, block));
                }
                Op::Free(which) if !held.is_empty() => {
                    let (addr, block) = held.swap_remove(which % held.len());
                    rig.free(block);
                    model.give(addr);
                }
                Op::Free(_) => {}
                Op::Wait(stream) => {
                    rig.policy.synchronized(&mut rig.dev, stream.map(StreamId));
                    model.disown(stream);
                }
                Op::Shrink => {
                    rig.empty_cache();
                    model.shrink();
                }
            }
            let image = rig.image();
            let free = image.blocks().filter(|(_, b)| b.state == BlockState::Free);
            let mut free: Vec<_> = free.map(|(_, b)| (b.addr, b.size)).collect();
            free.sort_unstable();
            prop_assert_eq!(free, model.free_chunks());
            prop_assert_eq!(rig.held(), model.held());
        }
    }
}
