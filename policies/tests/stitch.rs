//! Does `stitch` never map one page under two blocks in use, and does stitching save memory?

mod common;

use common::{ROOMY, device, env, registry, traces};
use poolsim_core::units::MIB;
use poolsim_core::{
    Backing, Bytes, DevAddr, Device, DeviceError, DeviceOp, HeapImage, PageId, Range, RangeId,
    ReplayTarget, Trace, TraceReader,
};
use poolsim_sim::engine::Heap;
use poolsim_sim::judge::Judge;
use poolsim_sim::{Observer, ReplayOptions, RunEnd, Step, replay};
use poolsim_traces::synth::find;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Which page lies at which address.
#[derive(Default)]
struct Table {
    ranges: BTreeMap<RangeId, DevAddr>,
    pages: BTreeMap<DevAddr, PageId>,
}

/// Keeps a page table of its own; every page is 2 MiB.
struct Mapped<D> {
    inner: D,
    table: Rc<RefCell<Table>>,
}

impl<D: Device> Device for Mapped<D> {
    poolsim_sim::delegate_device!(inner: caps now cost free_bytes create destroy populate depopulate record poll wait
        synchronize idle set_metered charge note);

    fn reserve(&mut self, size: Bytes, backing: Backing) -> Result<Range, DeviceError> {
        let range = self.inner.reserve(size, backing)?;
        self.table.borrow_mut().ranges.insert(range.id, range.addr);
        Ok(range)
    }

    fn release(&mut self, range: RangeId) -> Result<(), DeviceError> {
        self.inner.release(range)?;
        self.table.borrow_mut().ranges.remove(&range);
        Ok(())
    }

    fn map(&mut self, range: RangeId, at: Bytes, page: PageId) -> Result<(), DeviceError> {
        self.inner.map(range, at, page)?;
        let mut table = self.table.borrow_mut();
        let addr = table.ranges[&range] + at;
        assert!(table.pages.insert(addr, page).is_none(), "{addr:#x} is mapped twice");
        Ok(())
    }

    fn unmap(&mut self, range: RangeId, at: Bytes, len: Bytes) -> Result<(), DeviceError> {
        self.inner.unmap(range, at, len)?;
        let mut table = self.table.borrow_mut();
        let from = table.ranges[&range] + at;
        for addr in (from..from + len).step_by(2 * MIB as usize) {
            assert!(table.pages.remove(&addr).is_some(), "{addr:#x} was not mapped");
        }
        Ok(())
    }
}

impl<D: ReplayTarget> ReplayTarget for Mapped<D> {
    poolsim_sim::delegate_target!(inner);
}

/// No page under two blocks that are in use, pending or free: each byte of memory is one block's.
struct Apart {
    table: Rc<RefCell<Table>>,
}

impl Observer for Apart {
    fn wants_heap(&self, _: &Step<'_>) -> bool {
        true
    }

    fn on_heap(&mut self, step: &Step<'_>, heap: &dyn Heap, _: &dyn ReplayTarget) {
        let mut image = HeapImage::default();
        heap.visit(&mut image);
        let table = self.table.borrow();
        let mut seen = BTreeSet::new();
        for (_, block) in image.blocks().filter(|(range, _)| range.expandable) {
            let mut pages = Vec::new();
            for addr in (block.addr..block.addr + block.size).step_by(2 * MIB as usize) {
                let page = table.pages.get(&addr);
                pages.push(*page.unwrap_or_else(|| panic!("{block:?} has no page at {addr:#x}")));
            }
            for page in pages {
                assert!(
                    seen.insert(page),
                    "event {}: {page} under {block:?} and another",
                    step.index
                );
            }
        }
    }
}

fn run(trace: &Arc<Trace>, spec: &str, total: Bytes) -> (RunEnd, u64) {
    let spec = spec.parse().expect("a spec");
    let mut policy = registry().build(&spec, &env(total)).expect("a policy").policy;
    let table = Rc::new(RefCell::new(Table::default()));
    let mut target = Mapped { inner: device(total), table: Rc::clone(&table) };
    let (mut judge, mut apart) = (Judge::every(7), Apart { table: Rc::clone(&table) });
    let mut source = TraceReader::new(Arc::clone(trace));
    let options = ReplayOptions::default();
    let end =
        replay(&mut source, &mut policy, &mut target, &mut (&mut judge, &mut apart), &options);
    let end = end.unwrap_or_else(|e| panic!("{spec}: {e}"));
    judge.verdict().unwrap_or_else(|what| panic!("{spec}: {what}"));
    let maps = target.ledger().calls[DeviceOp::Map as usize];
    judge.drain(&mut policy, &mut target, &end).unwrap_or_else(|what| panic!("{spec}: {what}"));
    assert!(table.borrow().pages.is_empty(), "{spec}: pages stay mapped");
    (end, maps)
}

const SPECS: [&str; 5] = [
    "stitch,least:2MiB",
    "stitch,least:2MiB,when:full",
    "stitch,least:2MiB,keep:64MiB",
    "stitch,least:16MiB",
    "stitch",
];

#[test]
fn no_page_serves_two_blocks() {
    let mut all =
        vec![traces::steps(1, 12), traces::random(3, 900, true), traces::random(9, 900, false)];
    for program in ["hurt-comb", "pipeline"] {
        let settings = if program == "pipeline" { vec![("steps".into(), 2)] } else { Vec::new() };
        all.push(find(program).expect("a program").generate(&settings, 2).expect("made"));
    }
    for trace in all {
        let trace = Arc::new(trace);
        let peak = traces::peak_live(&trace);
        for spec in SPECS {
            for total in [ROOMY, peak * 5 / 4, peak * 3 / 5] {
                run(&trace, spec, total);
            }
        }
    }
}

/// Holes that nothing fits: with stitching they serve, and no more is reserved than the rounding asks for.
#[test]
fn stitched_holes_serve_what_does_not_fit_into_any() {
    let trace = Arc::new(find("hurt-comb").expect("a program").generate(&[], 1).expect("made"));
    let stats = |spec| run(&trace, spec, ROOMY).0.stats;
    let (stitched, plain) = (stats("stitch,least:2MiB"), stats("stitch,least:1024GiB"));
    assert_eq!(stitched.reserved.peak, stitched.active.peak);
    assert!(plain.reserved.peak > 2 * plain.active.peak, "{plain:?} without stitching");
    // Where memory is enough, waiting with it costs memory and saves calls.
    let ((lazy, lazy_maps), (_, maps)) = (
        run(&trace, "stitch,least:2MiB,when:full", ROOMY),
        run(&trace, "stitch,least:2MiB", ROOMY),
    );
    assert!(
        lazy.stats.reserved.peak > stitched.reserved.peak && lazy_maps < maps,
        "{lazy_maps} of {maps}"
    );
}

/// A loop that needs the same stitched sizes again finds them mapped.
#[test]
fn stitched_ranges_are_kept() {
    let trace = Arc::new(find("hurt-planning").expect("a program").generate(&[], 1).expect("made"));
    let maps = |spec| run(&trace, spec, ROOMY).1;
    let (kept, dropped) = (maps("stitch,least:2MiB"), maps("stitch,least:2MiB,keep:2MiB"));
    assert!(kept < dropped, "{kept} maps with kept ranges, {dropped} without");
}
