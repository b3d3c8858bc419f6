//! Does the judge see what is wrong, and only that?

mod common;

use common::{G, Script, Shelf, device};
use poolsim_core::*;
use poolsim_sim::judge::Judge;
use poolsim_sim::{ReplayOptions, SimDevice, replay};

fn judged(script: Script, policy: &mut dyn Policy, judge: &mut Judge) -> Result<(), String> {
    let mut dev: SimDevice = device(8);
    let options = ReplayOptions::default();
    let end = replay(&mut script.source(), policy, &mut dev, judge, &options).unwrap();
    judge.verdict()?;
    judge.after_step(policy, &dev)?;
    judge.drain(policy, &mut dev, &end)
}

fn shelf(careless: bool, shift: Bytes) -> Shelf {
    let mut policy = Shelf::default();
    (policy.careless, policy.shift) = (careless, shift);
    policy
}

type Twist = fn(&mut HeapImage);

fn story() -> Script {
    Script::default()
        .alloc(0, G)
        .alloc(1, 100)
        .push(EventKind::FreeLater, 0, 0)
        .alloc(2, G)
        .free(1)
        .alloc(3, 64 * G)
        .push(EventKind::FreeDone, 0, 0)
        .alloc(4, G)
        .push(EventKind::AllocRefused, 5, G)
        .push(EventKind::EmptyCache, 0, 0)
}

#[test]
fn a_right_policy_passes() {
    for every in [1, 3] {
        judged(story(), &mut Shelf::default(), &mut Judge::every(every)).unwrap();
    }
}

#[test]
fn a_block_that_other_streams_use_must_not_be_handed_out() {
    let careless = || shelf(true, 0);
    let wrong = judged(story(), &mut careless(), &mut Judge::new()).unwrap_err();
    assert!(wrong.starts_with("event 3") && wrong.contains("other streams still use"), "{wrong}");
    judged(story(), &mut careless(), &mut Judge::new().ignoring_streams()).unwrap();
}

#[test]
fn after_a_host_wait_it_may_be() {
    let script = Script::default()
        .alloc(0, G)
        .push(EventKind::FreeLater, 0, 0)
        .push(EventKind::SyncDevice, 0, 0)
        .alloc(1, G)
        .push(EventKind::FreeDone, 0, 0);
    judged(script, &mut Shelf::default(), &mut Judge::new()).unwrap();
}

#[test]
fn grants_must_be_aligned_and_where_the_heap_shows_them() {
    let mut policy = shelf(false, 8);
    let wrong = judged(story(), &mut policy, &mut Judge::new()).unwrap_err();
    assert!(wrong.contains("not aligned"), "{wrong}");
    let mut policy = shelf(false, 512);
    let wrong = judged(story(), &mut policy, &mut Judge::new()).unwrap_err();
    assert!(wrong.contains("is not in the heap"), "{wrong}");
}

/// A policy with one thing wrong about it.
struct Twisted {
    inner: Shelf,
    heap: Twist,
    stats: PoolStats,
    twist: fn(&mut PoolStats),
}

impl Twisted {
    fn heap(heap: Twist) -> Self {
        Twisted { inner: Shelf::default(), heap, stats: PoolStats::default(), twist: |_| {} }
    }

    fn update(&mut self) {
        self.stats = *self.inner.stats();
        (self.twist)(&mut self.stats);
    }
}

impl Policy for Twisted {
    fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
        let grant = self.inner.malloc(dev, req);
        self.update();
        grant
    }
    fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
        self.inner.free(dev, block);
        self.update();
    }
    fn record_stream(&mut self, dev: &mut dyn Device, block: BlockId, stream: StreamId) {
        self.inner.record_stream(dev, block, stream);
    }
    fn empty_cache(&mut self, dev: &mut dyn Device) -> Bytes {
        let given = self.inner.empty_cache(dev);
        self.update();
        given
    }
    fn stats(&self) -> &PoolStats {
        &self.stats
    }
    fn visit(&self, visitor: &mut dyn HeapVisitor) {
        let mut image = HeapImage::default();
        self.inner.visit(&mut image);
        (self.heap)(&mut image);
        for (range, blocks) in &image.ranges {
            visitor.range(range);
            blocks.iter().for_each(|b| visitor.block(b));
        }
    }
}

#[test]
fn heaps_that_do_not_add_up_are_seen() {
    let cases: [(Twist, &str); 5] = [
        (|h| h.ranges[0].1[0].size /= 2, "blocks end at"),
        (|h| h.ranges[0].0.addr += G, "not backed"),
        (|h| h.ranges[0].1[0].state = BlockState::Free, "the policy says"),
        (|h| h.ranges[0].1[0].requested += 1, "the policy says"),
        (|h| h.ranges[0].1[0].slot = Some(Slot(77)), "the heap shows"),
    ];
    for (twist, expected) in cases {
        let wrong = judged(story(), &mut Twisted::heap(twist), &mut Judge::new()).unwrap_err();
        assert!(wrong.starts_with("event 0") && wrong.contains(expected), "{wrong}");
    }
}

#[test]
fn numbers_that_are_not_those_of_the_heap_are_seen() {
    let cases: [fn(&mut PoolStats); 3] =
        [|s| s.reserved.current += G, |s| s.requested.current -= 1, |s| s.active.peak = 0];
    for twist in cases {
        let mut policy = Twisted { twist, ..Twisted::heap(|_| {}) };
        let wrong = judged(story(), &mut policy, &mut Judge::new()).unwrap_err();
        assert!(wrong.contains("the policy says"), "{wrong}");
    }
}

#[test]
fn a_policy_that_keeps_memory_is_seen_at_the_end() {
    struct Hoarder(Shelf);
    impl Policy for Hoarder {
        fn malloc(&mut self, dev: &mut dyn Device, req: AllocRequest) -> Result<Grant, AllocError> {
            self.0.malloc(dev, req)
        }
        fn free(&mut self, dev: &mut dyn Device, block: BlockId) {
            self.0.free(dev, block);
        }
        fn record_stream(&mut self, dev: &mut dyn Device, block: BlockId, stream: StreamId) {
            self.0.record_stream(dev, block, stream);
        }
        fn empty_cache(&mut self, _: &mut dyn Device) -> Bytes {
            0
        }
        fn stats(&self) -> &PoolStats {
            self.0.stats()
        }
        fn visit(&self, visitor: &mut dyn HeapVisitor) {
            self.0.visit(visitor);
        }
    }
    let script = Script::default().alloc(0, G).alloc(1, G).free(0);
    let wrong = judged(script, &mut Hoarder(Shelf::default()), &mut Judge::new()).unwrap_err();
    assert!(wrong.contains(&format!("{} bytes out", 2 * G)), "{wrong}");
}
