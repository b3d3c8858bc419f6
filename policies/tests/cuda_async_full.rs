//! `cuda-async` where memory or addresses run out, and behind PyTorch's rules of who frees where.

#[path = "cuda_async/mod.rs"]
mod support;

use poolsim_core::units::GIB;
use poolsim_core::{
    AllocError, AllocRequest, BlockId, Bytes, DeviceCaps, DeviceOp, Grant, OomCause, Policy,
    PoolId, ReplayTarget, Slot, StreamId,
};
use poolsim_policies::BuildEnv;
use poolsim_policies::cuda_async::{Attributes, CudaAsync, PAGE};
use poolsim_sim::{DeviceProfile, SimDevice};
use support::{attributes, h200, pool};

/// What the H200 of the probes had free: 139.28 GiB.
const FREE: Bytes = 4456 * PAGE + PAGE / 32 * 31;

struct Machine {
    dev: SimDevice,
    pool: CudaAsync,
}

impl Machine {
    fn new(attributes: Attributes) -> Self {
        Machine { dev: h200(Some(FREE)), pool: pool(attributes) }
    }

    fn malloc(&mut self, size: Bytes, stream: u16) -> Result<Grant, OomCause> {
        let request =
            AllocRequest { size, stream: StreamId(stream), pool: PoolId::DEFAULT, slot: Slot(0) };
        self.pool.malloc(&mut self.dev, request).map_err(|error| match error {
            AllocError::OutOfMemory { cause, .. } => cause,
            other => panic!("{other}"),
        })
    }

    fn reserved(&self) -> Bytes {
        assert_eq!(self.pool.stats().reserved.current, self.dev.used_bytes());
        self.dev.used_bytes() / PAGE
    }

    /// Frees a block on its stream behind work that goes on.
    fn free_in_flight(&mut self, block: BlockId, slot: u32) {
        self.dev.hold(Slot(slot));
        self.pool.free(&mut self.dev, block);
        self.dev.end_hold();
    }

    /// The same for a block that another stream uses.
    fn free_shared(&mut self, block: BlockId, slot: u32) {
        self.pool.record_stream(&mut self.dev, block, StreamId(9));
        self.free_in_flight(block, slot);
    }
}

#[test]
fn a_full_device_leaves_what_was_taken() {
    let mut m = Machine::new(attributes(None));
    let granted = (0..8).filter(|_| m.malloc(4457 * PAGE / 8, 0).is_ok()).count();
    assert_eq!((granted, m.reserved()), (7, 4456));
    assert_eq!(m.dev.ledger().calls[DeviceOp::PoolGrow as usize], 4456);

    let mut m = Machine::new(attributes(None));
    m.malloc(2674 * PAGE, 0).unwrap();
    assert_eq!(m.malloc(2000 * PAGE, 0), Err(OomCause::DeviceFull));
    assert_eq!(m.reserved(), 4456);
    assert_eq!(m.malloc(1782 * PAGE, 0).unwrap().size, 1782 * PAGE);
}

#[test]
fn a_stream_waits_for_another_ones_block_only_if_nothing_else_helps() {
    for internal_dependencies in [false, true] {
        let mut m = Machine::new(Attributes { internal_dependencies, ..attributes(None) });
        let block = m.malloc(2674 * PAGE, 0).unwrap();
        m.free_in_flight(block.block, 1);
        let larger = m.malloc(2676 * PAGE, 1);
        assert_eq!((larger, m.reserved()), (Err(OomCause::DeviceFull), 4456));
        assert_eq!(m.dev.ledger().calls[DeviceOp::Wait as usize], 0);
        match m.malloc(2674 * PAGE, 1) {
            Ok(again) => assert!(internal_dependencies && again.addr == block.addr),
            Err(cause) => assert!(!internal_dependencies && cause == OomCause::DeviceFull),
        }
        assert_eq!(m.dev.ledger().calls[DeviceOp::Wait as usize], internal_dependencies.into());
    }
}

#[test]
fn addresses_end_at_twice_the_device() {
    let mut m = Machine::new(attributes(None));
    let first = m.malloc(4 * GIB, 0).unwrap();
    let (mut steps, mut last) = (1, first);
    let cause = loop {
        let before = m.reserved();
        match m.malloc(4 * GIB, 0) {
            Ok(block) => {
                assert_eq!(block.addr - first.addr, steps * 4 * GIB);
                m.pool.free(&mut m.dev, last.block);
                // A small block at the start of the hole: the next large one does not fit there.
                assert_eq!(m.malloc(512, 0).unwrap().addr, last.addr);
                (steps, last) = (steps + 1, block);
            }
            Err(cause) => {
                assert_eq!(m.reserved(), before);
                break cause;
            }
        }
    };
    assert_eq!((steps, cause), (69, OomCause::Limit));
    assert_eq!(m.malloc(300 * GIB, 0), Err(OomCause::TooLarge));
    assert_eq!(m.malloc(u64::MAX, 0), Err(OomCause::TooLarge));
}

#[test]
fn a_device_of_any_size_is_possible() {
    for total in [0, PAGE / 4, u64::MAX] {
        let mut m = Machine::new(attributes(None));
        let caps = DeviceCaps { total, ..DeviceProfile::h200().caps };
        m.pool = CudaAsync::new(attributes(None), &BuildEnv { caps, memory_fraction: None });
        m.malloc(PAGE, 0).unwrap();
        assert_eq!(m.reserved(), 1);
    }
}

#[test]
fn shared_blocks_wait_for_every_stream_and_for_the_free_behind() {
    let mut m = Machine::new(attributes(None));
    let blocks: Vec<Grant> = (0..4).map(|_| m.malloc(PAGE, 0).unwrap()).collect();
    m.free_shared(blocks[0].block, 1);
    m.free_shared(blocks[2].block, 2);
    let (active, allocated) = (m.pool.stats().active.current, m.pool.stats().allocated.current);
    assert_eq!((active, allocated), (4 * PAGE, 2 * PAGE));
    // Neither stream 0, whose blocks they were, nor another one may have them.
    assert_eq!(m.malloc(PAGE, 0).unwrap().addr, blocks[3].addr + PAGE);
    m.dev.complete(Slot(1));
    // The unifying stream waits for the second block's users right behind the first free.
    assert_eq!(m.malloc(PAGE, 0).unwrap().addr, blocks[3].addr + 2 * PAGE);
    assert_eq!(m.pool.stats().active.current, 6 * PAGE);
    m.dev.complete(Slot(2));
    assert_eq!(m.malloc(PAGE, 0).unwrap().addr, blocks[0].addr);
    assert_eq!(m.malloc(PAGE, 1).unwrap().addr, blocks[2].addr);
    assert_eq!(m.pool.stats().active.current, m.pool.stats().allocated.current);
}

#[test]
fn empty_cache_waits_and_gives_all_free_pages_back() {
    let mut m = Machine::new(attributes(None));
    let (a, b) = (m.malloc(3 * PAGE, 0).unwrap(), m.malloc(PAGE, 0).unwrap());
    m.free_shared(a.block, 1);
    assert_eq!(m.pool.trim_to(&mut m.dev, 0), 0, "a trim does not wait");
    assert_eq!(m.pool.empty_cache(&mut m.dev), 3 * PAGE);
    assert_eq!(m.reserved(), 1);
    m.pool.free(&mut m.dev, b.block);
    assert_eq!(m.pool.empty_cache(&mut m.dev), PAGE);
    assert_eq!(m.dev.ledger().calls[DeviceOp::PoolShrink as usize], 4);
    let stats = *m.pool.stats();
    assert_eq!((stats.requested.current, stats.active.current), (0, 0));
}

#[test]
fn a_memory_fraction_limits_what_the_program_holds() {
    let caps = DeviceProfile::h200().caps;
    let env = BuildEnv { memory_fraction: Some(100.0 * PAGE as f64 / caps.total as f64), caps };
    let mut m = Machine::new(attributes(None));
    m.pool = CudaAsync::new(attributes(None), &env);
    let blocks: Vec<Grant> = (0..33).map(|_| m.malloc(3 * PAGE, 0).unwrap()).collect();
    assert_eq!(m.malloc(2 * PAGE, 0), Err(OomCause::Limit));
    // What waits for other streams is not held any more.
    m.free_shared(blocks[0].block, 1);
    m.malloc(2 * PAGE, 0).unwrap();
    assert_eq!(m.reserved(), 101);
}
