//! Is the page table right, and do ranges go where the driver was measured to put them?

mod common;

use common::{G, device};
use poolsim_core::device::DeviceOp;
use poolsim_core::units::MIB;
use poolsim_core::*;
use poolsim_sim::device::Divergence;
use poolsim_sim::{DeviceProfile, Placement, SimConfig, SimDevice};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn whole(dev: &mut SimDevice, mib: u64) -> Range {
    dev.reserve(mib * MIB, Backing::Whole).unwrap()
}

fn illegal<R: std::fmt::Debug>(result: Result<R, DeviceError>) -> String {
    match result {
        Err(DeviceError::Illegal(what)) => what,
        other => panic!("{other:?} should be illegal"),
    }
}

#[test]
fn granularity_and_handles_are_enforced() {
    let mut dev = device(64);
    illegal(dev.reserve(0, Backing::Whole));
    illegal(dev.reserve(G + 512, Backing::Paged));
    illegal(dev.release(RangeId(0)));
    illegal(dev.destroy(PageId(3)));
    let range = dev.reserve(16 * G, Backing::Paged).unwrap().id;
    illegal(dev.populate(range, 512, G, G));
    illegal(dev.populate(range, 0, 3 * G, 2 * G));
    illegal(dev.populate(range, 15 * G, 2 * G, G));
    illegal(dev.populate(range, u64::MAX - G + 1, G, G));
    let solid = whole(&mut dev, 2).id;
    illegal(dev.populate(solid, 0, G, G));
    dev.populate(range, 0, 4 * G, 2 * G).unwrap();
    illegal(dev.populate(range, 3 * G, G, G));
    assert!(illegal(dev.depopulate(range, G, 2 * G)).contains("cuts a page"));
    illegal(dev.depopulate(range, 2 * G, 4 * G));
    illegal(dev.unmap(range, 0, 2 * G));
    illegal(dev.release(range));
    dev.depopulate(range, 0, 4 * G).unwrap();
    dev.release(range).unwrap();
    illegal(dev.release(range));
}

/// Sizes and places as recorded: six calls of a growing pool, addresses relative to the first.
#[test]
fn small_ranges_share_a_slab() {
    let mut dev = device(1 << 14);
    let first = dev.reserve(6912, Backing::Whole).unwrap();
    assert_eq!(first.addr % (32 * MIB), 30 * MIB);
    let mut at = |size| dev.reserve(size, Backing::Whole).unwrap().addr;
    assert_eq!(at(6912) - first.addr, 0x1c00);
    assert_eq!(at(147_456) - first.addr, 0x3800);
    assert_eq!(at(294_912) - first.addr, 0x27800);
    let large = at(1_179_648);
    assert_eq!(large % (32 * MIB), 8 * MIB);
    assert_eq!(at(2_359_296) - large, 2 * MIB);
    assert_eq!(at(4_584_960) - large, 6 * MIB);
    // Seven ranges take what they asked for, and three of them up to a granule.
    let used = 2 * 6912 + 147_456 + 294_912 + 1_179_648 + 2_359_296 + 4_584_960;
    assert_eq!(dev.used_bytes(), used);
    assert_eq!(dev.free_bytes(), (1 << 14) * G - (2 * 6912 + 147_456 + 294_912) - 12 * MIB);
    let ranges: Vec<Range> = dev.ranges().collect();
    ranges.iter().for_each(|r| dev.release(r.id).unwrap());
    assert_eq!((dev.used_bytes(), dev.free_bytes()), (0, (1 << 14) * G));
    assert_eq!(dev.reserve(2 * MIB, Backing::Whole).unwrap().addr, first.addr);
}

#[test]
fn one_page_can_be_mapped_at_several_places() {
    let mut dev = device(4);
    let (a, b) =
        (dev.reserve(8 * G, Backing::Paged).unwrap(), dev.reserve(8 * G, Backing::Paged).unwrap());
    let page = dev.create(2 * G).unwrap();
    dev.map(a.id, 0, page).unwrap();
    dev.map(b.id, 4 * G, page).unwrap();
    dev.map(a.id, 2 * G, page).unwrap();
    assert_eq!(dev.used_bytes(), 2 * G);
    assert_eq!(dev.backed(a.addr, 4 * G), Some(true));
    assert_eq!(dev.backed(a.addr, 4 * G + 1), Some(false));
    assert_eq!(dev.backed(b.addr + 4 * G, 2 * G), Some(true));
    illegal(dev.destroy(page));
    illegal(dev.unmap(a.id, G, G));
    illegal(dev.depopulate(a.id, 0, 2 * G));
    dev.unmap(a.id, 0, 4 * G).unwrap();
    dev.unmap(b.id, 4 * G, 2 * G).unwrap();
    dev.destroy(page).unwrap();
    assert_eq!(dev.used_bytes(), 0);
    assert_eq!(dev.ledger().calls[DeviceOp::Unmap as usize], 3);
}

/// Offsets in units of 32 MiB chunks and MiB within, relative to the newer of the two first chunks.
#[test]
fn the_first_segments_land_in_the_two_chunks_that_are_there() {
    let mut dev = device(1 << 14);
    let small = whole(&mut dev, 2);
    assert_eq!(small.addr % (32 * MIB), 30 * MIB);
    let large = whole(&mut dev, 20);
    assert_eq!(large.addr % (32 * MIB), 8 * MIB);
    assert_eq!(large.addr - 8 * MIB, small.addr - 30 * MIB + 96 * MIB);
    // 4 MiB are left in the older chunk; the next 20 MiB need a new one, below everything.
    let next = whole(&mut dev, 20);
    assert!(next.addr < small.addr && next.addr.is_multiple_of(32 * MIB));
    // Newest chunk with room first: 12 MiB are left in it.
    let behind = whole(&mut dev, 2);
    assert_eq!(behind.addr, next.addr + 20 * MIB);
    let exact = whole(&mut dev, 10);
    assert_eq!(exact.addr, behind.addr + 2 * MIB);
    let older = whole(&mut dev, 4);
    assert_eq!(older.addr, large.addr + 20 * MIB);
    let below = whole(&mut dev, 64);
    assert_eq!(below.addr, next.addr - 64 * MIB);
}

#[test]
fn freed_holes_are_used_best_fit_and_empty_chunks_go_back() {
    let mut dev = device(1 << 14);
    let filler = [whole(&mut dev, 2), whole(&mut dev, 24)];
    let parts: Vec<Range> = (0..6).map(|_| whole(&mut dev, 128)).collect();
    assert!(parts.windows(2).all(|w| w[1].addr == w[0].addr - 128 * MIB));
    // A chunk without use goes back; a gap that only just fits is passed over.
    dev.release(parts[1].id).unwrap();
    let below = whole(&mut dev, 128);
    assert_eq!(below.addr, parts[5].addr - 128 * MIB);
    let inside = whole(&mut dev, 96);
    assert_eq!(inside.addr, parts[1].addr + 32 * MIB, "at the upper end of the gap");
    // Two gaps that touch are one.
    dev.release(inside.id).unwrap();
    dev.release(parts[2].id).unwrap();
    let joined = whole(&mut dev, 192);
    assert_eq!(joined.addr, parts[2].addr + 64 * MIB);
    for range in [filler[0], filler[1], parts[0], parts[3], parts[4], parts[5], below, joined] {
        dev.release(range.id).unwrap();
    }
    assert_eq!(dev.ranges().count(), 0);
    let again = [whole(&mut dev, 2), whole(&mut dev, 24)];
    assert_eq!([again[0].addr, again[1].addr], [filler[0].addr, filler[1].addr]);
}

#[test]
fn a_hole_kept_alive_by_a_neighbour_is_taken_before_new_space() {
    let mut dev = device(1 << 14);
    whole(&mut dev, 2);
    whole(&mut dev, 24);
    let big = whole(&mut dev, 500);
    let tail = whole(&mut dev, 2);
    assert_eq!(tail.addr, big.addr + 500 * MIB);
    dev.release(big.id).unwrap();
    assert_eq!(whole(&mut dev, 400).addr, big.addr);
    // Best fit: 100 MiB are left there and 10 behind the tail.
    assert_eq!(whole(&mut dev, 8).addr, tail.addr + 2 * MIB);
    assert_eq!(whole(&mut dev, 12).addr, big.addr + 400 * MIB);
}

#[test]
fn reservations_fill_from_below_and_step_over_one_tebibyte() {
    let mut dev = device(8);
    let size = 168_873_623_552u64.next_multiple_of(20 * MIB);
    let mut ranges = Vec::new();
    for _ in 0..7 {
        ranges.push(dev.reserve(size, Backing::Paged).unwrap());
    }
    assert_eq!(ranges[0].addr, 0x3_0200_0000);
    let step = size.next_multiple_of(32 * MIB);
    for (i, r) in ranges.iter().enumerate().take(6) {
        assert_eq!(r.addr, 0x3_0200_0000 + i as u64 * step);
    }
    assert_eq!(ranges[6].addr, 0x100_0400_0000);
    dev.release(ranges[2].id).unwrap();
    dev.release(ranges[1].id).unwrap();
    assert_eq!(dev.reserve(size, Backing::Paged).unwrap().addr, ranges[1].addr);
    assert_eq!(dev.used_bytes(), 0);
    assert!(matches!(
        dev.reserve(1 << 50, Backing::Paged),
        Err(DeviceError::OutOfAddresses { .. })
    ));
}

fn scripted(answers: Vec<DriverAnswer>) -> SimDevice {
    let mut config = SimConfig::new(DeviceProfile::h200());
    config.placement = Placement::Recorded(answers);
    SimDevice::new(config)
}

#[test]
fn recorded_answers_decide_places_and_failures() {
    use DriverAnswer::*;
    let mut dev = scripted(vec![
        Range { addr: 0x7f00_0020_0000, size: G },
        OutOfMemory,
        Range { addr: 0x3_0200_0000, size: 0 },
        Populated,
        OutOfMemory,
        Range { addr: 0x7f00_0040_0000, size: 2 * G },
    ]);
    assert_eq!(dev.reserve(G, Backing::Whole).unwrap().addr, 0x7f00_0020_0000);
    let refused = dev.reserve(G, Backing::Whole);
    assert!(matches!(refused, Err(DeviceError::OutOfMemory { .. })));
    let paged = dev.reserve(1 << 40, Backing::Paged).unwrap();
    dev.populate(paged.id, 0, 1 << 39, G).unwrap();
    assert!(matches!(dev.populate(paged.id, 1 << 39, G, G), Err(DeviceError::OutOfMemory { .. })));
    assert_eq!(dev.backed(paged.addr, 1 << 39), Some(true));
    dev.reserve(2 * G, Backing::Whole).unwrap();
    assert_eq!(dev.divergence(), None);
}

#[test]
fn the_first_call_that_fits_no_answer_is_remembered() {
    use DriverAnswer::*;
    let first = Range { addr: 0x7f00_0020_0000, size: G };
    for (answer, call) in [
        (Some(Range { addr: 0x7f00_0040_0000, size: 2 * G }), "another size"),
        (Some(Range { addr: 0x7f00_0020_0000, size: G }), "taken already"),
        (Some(Populated), "another kind"),
        (None, "used up"),
    ] {
        let mut dev = scripted([Some(first), answer].into_iter().flatten().collect());
        let a = dev.reserve(G, Backing::Whole).unwrap();
        let b = dev.reserve(G, Backing::Whole).unwrap();
        let asked = format!("a Whole range of {G} bytes");
        let expected = Divergence { call: 1, event: 0, asked, answer };
        assert_eq!(dev.divergence(), Some(&expected), "{call}");
        assert!(a.addr + a.size <= b.addr || b.addr + b.size <= a.addr);
        dev.release(a.id).unwrap();
        dev.release(b.id).unwrap();
        assert_eq!(dev.used_bytes(), 0);
    }
}

#[test]
fn after_a_divergence_the_model_keeps_clear_of_recorded_ranges() {
    // Recorded ranges right where the model would place its own.
    let mut model = device(1 << 14);
    let taken: Vec<Range> = (0..4).map(|_| whole(&mut model, 20)).collect();
    let answers = taken.iter().map(|r| DriverAnswer::Range { addr: r.addr, size: r.size });
    let mut dev = scripted(answers.collect());
    let mut all: Vec<Range> = (0..40).map(|_| whole(&mut dev, 20)).collect();
    assert!(dev.divergence().is_some());
    all.sort_by_key(|r| r.addr);
    assert!(all.windows(2).all(|w| w[0].addr + w[0].size <= w[1].addr));
}

#[derive(Clone, Debug)]
enum Op {
    Populate(u64, u64, u64),
    Depopulate(u64, u64),
    Map(u64, u64),
    Unmap(u64, u64),
    Create(u64),
    Destroy(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (0..32u64, 1..12u64, 1..4u64).prop_map(|(a, n, p)| Op::Populate(a, n, p)),
        3 => (0..32u64, 1..16u64).prop_map(|(a, n)| Op::Depopulate(a, n)),
        2 => (0..32u64, 0..6u64).prop_map(|(a, p)| Op::Map(a, p)),
        2 => (0..32u64, 1..8u64).prop_map(|(a, n)| Op::Unmap(a, n)),
        1 => (1..4u64).prop_map(Op::Create),
        1 => (0..6u64).prop_map(Op::Destroy),
    ];
    prop::collection::vec(op, 1..80)
}

/// A page table with a word per granule: who is there, and where its page starts.
#[derive(Default)]
struct Naive {
    cells: BTreeMap<u64, (Option<u64>, u64, u64)>,
    pages: BTreeMap<u64, u64>,
    physical: u64,
}

impl Naive {
    /// Whether `[at, at + len)` is whole pages of one kind.
    fn takes_out(&self, at: u64, len: u64, populated: bool) -> bool {
        let mut g = at;
        while g < at + len {
            let Some(&(page, start, unit)) = self.cells.get(&g) else { return false };
            if page.is_none() != populated || start != g || g + unit > at + len {
                return false;
            }
            g += unit;
        }
        true
    }

    fn vacant(&self, at: u64, len: u64) -> bool {
        at + len <= 32 && self.cells.range(at..at + len).next().is_none()
    }

    fn put(&mut self, at: u64, unit: u64, page: Option<u64>) {
        for g in at..at + unit {
            self.cells.insert(g, (page, at, unit));
        }
    }
}

const CAPACITY: u64 = 24;

proptest! {
    /// The interval map against one word per granule.
    #[test]
    fn the_page_table_is_that_of_a_naive_map(ops in ops()) {
        let mut dev = device(CAPACITY);
        let range = dev.reserve(32 * G, Backing::Paged).unwrap();
        let mut naive = Naive::default();
        for op in ops {
            match op {
                Op::Populate(at, n, unit) => {
                    let fits = naive.physical + n * unit <= CAPACITY;
                    let expected = naive.vacant(at, n * unit) && fits;
                    let got = dev.populate(range.id, at * G, n * unit * G, unit * G);
                    prop_assert_eq!(got.is_ok(), expected);
                    if expected {
                        (0..n).for_each(|i| naive.put(at + i * unit, unit, None));
                        naive.physical += n * unit;
                    }
                }
                Op::Depopulate(at, n) => {
                    let expected = at + n <= 32 && naive.takes_out(at, n, true);
                    prop_assert_eq!(dev.depopulate(range.id, at * G, n * G).is_ok(), expected);
                    if expected {
                        (at..at + n).for_each(|g| { naive.cells.remove(&g); });
                        naive.physical -= n;
                    }
                }
                Op::Create(n) => {
                    let got = dev.create(n * G);
                    prop_assert_eq!(got.is_ok(), naive.physical + n <= CAPACITY);
                    if let Ok(page) = got {
                        naive.pages.insert(page.0.into(), n);
                        naive.physical += n;
                    }
                }
                Op::Map(at, page) => {
                    let size = naive.pages.get(&page).copied();
                    let expected = size.is_some_and(|n| naive.vacant(at, n));
                    prop_assert_eq!(dev.map(range.id, at * G, PageId(page as u32)).is_ok(), expected);
                    if expected {
                        naive.put(at, size.unwrap(), Some(page));
                    }
                }
                Op::Unmap(at, n) => {
                    let expected = at + n <= 32 && naive.takes_out(at, n, false);
                    prop_assert_eq!(dev.unmap(range.id, at * G, n * G).is_ok(), expected);
                    if expected {
                        (at..at + n).for_each(|g| { naive.cells.remove(&g); });
                    }
                }
                Op::Destroy(page) => {
                    let mapped = naive.cells.values().any(|c| c.0 == Some(page));
                    let expected = naive.pages.contains_key(&page) && !mapped;
                    prop_assert_eq!(dev.destroy(PageId(page as u32)).is_ok(), expected);
                    if expected {
                        naive.physical -= naive.pages.remove(&page).unwrap();
                    }
                }
            }
            prop_assert_eq!(dev.used_bytes(), naive.physical * G);
            for g in 0..32 {
                let backed = dev.backed(range.addr + g * G, G);
                prop_assert_eq!(backed, Some(naive.cells.contains_key(&g)));
            }
        }
    }

    /// Ranges never overlap, and everything comes back.
    #[test]
    fn ranges_lie_apart(sizes in prop::collection::vec((1..80u64, any::<bool>(), 0..100usize), 1..120)) {
        let mut dev = device(1 << 20);
        let mut live: Vec<Range> = Vec::new();
        for (granules, paged, victim) in sizes {
            let backing = if paged { Backing::Paged } else { Backing::Whole };
            let range = dev.reserve(granules * G, backing).unwrap();
            for r in &live {
                prop_assert!(r.addr + r.size <= range.addr || range.addr + range.size <= r.addr);
            }
            live.push(range);
            if victim < live.len() {
                dev.release(live.swap_remove(victim).id).unwrap();
            }
        }
        for r in live {
            dev.release(r.id).unwrap();
        }
        prop_assert_eq!(dev.used_bytes(), 0);
    }
}
