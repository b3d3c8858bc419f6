//! Legality of every call, held against a model that shares nothing with the device below.

use poolsim_core::device::show_range;
use poolsim_core::{
    Backing, Bytes, DevAddr, Device, DeviceError, FenceId, PageId, Range, RangeId, ReplayTarget,
    StreamId, SyncScope,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
struct Known {
    addr: DevAddr,
    size: Bytes,
    backing: Backing,
    /// One entry per granule: the page mapped there, or `None` for a populated one.
    granules: BTreeMap<Bytes, Option<PageId>>,
}

/// Panics at the first call that breaks the rules of [`Device`], and at the first answer of `inner` that does. Its
/// page table has an entry per granule, so it is slow and hard to get wrong.
#[derive(Clone, Debug)]
pub struct Checked<D> {
    /// The device below.
    pub inner: D,
    ranges: BTreeMap<RangeId, Known>,
    pages: BTreeMap<PageId, Bytes>,
    fences: BTreeSet<FenceId>,
}

impl<D: Device> Checked<D> {
    /// Checks all calls on a device that handed nothing out yet.
    pub fn new(inner: D) -> Self {
        Checked { inner, ranges: BTreeMap::new(), pages: BTreeMap::new(), fences: BTreeSet::new() }
    }

    /// What was taken and not given back, in words. Empty if nothing was.
    pub fn outstanding(&self) -> Vec<String> {
        let ranges = self
            .ranges
            .iter()
            .map(|(id, k)| format!("range {id} {} ({:?})", show_range(k.addr, k.size), k.backing));
        let pages = self.pages.iter().map(|(id, size)| format!("page {id} of {size} bytes"));
        ranges.chain(pages).collect()
    }

    fn aligned(&self, what: &str, bytes: Bytes) {
        let granule = self.inner.caps().granule;
        assert!(bytes.is_multiple_of(granule), "{what}: {bytes} is off the granule of {granule}");
    }

    /// The granules of a stretch, after checking that it lies in a paged range.
    fn stretch(&mut self, what: &str, range: RangeId, at: Bytes, len: Bytes) -> Vec<Bytes> {
        self.aligned(what, at);
        self.aligned(what, len);
        let granule = self.inner.caps().granule;
        let known = self.known(what, range);
        assert!(known.backing == Backing::Paged, "{what}: range {range} is whole");
        assert!(len > 0 && at + len <= known.size, "{what}: {at} + {len} leaves range {range}");
        (at..at + len).step_by(granule as usize).collect()
    }

    fn known(&mut self, what: &str, range: RangeId) -> &mut Known {
        self.ranges.get_mut(&range).unwrap_or_else(|| panic!("{what}: no range {range}"))
    }

    fn fill(&mut self, what: &str, range: RangeId, granules: &[Bytes], page: Option<PageId>) {
        let known = self.known(what, range);
        for &g in granules {
            let before = known.granules.insert(g, page);
            assert!(before.is_none(), "{what}: {g} of range {range} is mapped already");
        }
    }

    fn vacate(&mut self, what: &str, range: RangeId, granules: &[Bytes], by_hand: bool) {
        let known = self.known(what, range);
        for g in granules {
            match known.granules.remove(g) {
                None => panic!("{what}: {g} of range {range} is not mapped"),
                Some(page) => assert_eq!(page.is_some(), by_hand, "{what}: wrong kind at {g}"),
            }
        }
    }
}

/// Passes a result on unless the device calls the call illegal.
fn legal<R>(what: &str, result: Result<R, DeviceError>) -> Result<R, DeviceError> {
    if let Err(DeviceError::Illegal(why)) = &result {
        panic!("{what}: {why}");
    }
    result
}

impl<D: Device> Device for Checked<D> {
    crate::delegate_device!(inner: caps now cost free_bytes idle set_metered charge note);

    fn reserve(&mut self, size: Bytes, backing: Backing) -> Result<Range, DeviceError> {
        if backing == Backing::Paged {
            self.aligned("reserve", size);
        }
        assert!(size > 0, "reserve: no bytes");
        let range = legal("reserve", self.inner.reserve(size, backing))?;
        assert_eq!(range.size, size, "reserve: another size came back");
        assert!(range.addr.is_multiple_of(512), "reserve: {:#x} is off 512", range.addr);
        if backing == Backing::Paged {
            self.aligned("reserve", range.addr);
        }
        for (id, k) in &self.ranges {
            let apart = k.addr + k.size <= range.addr || range.addr + range.size <= k.addr;
            assert!(apart, "reserve: {range:?} overlaps range {id}");
        }
        let known = Known { addr: range.addr, size, backing, granules: BTreeMap::new() };
        assert!(self.ranges.insert(range.id, known).is_none(), "reserve: {range:?} is in use");
        Ok(range)
    }

    fn release(&mut self, range: RangeId) -> Result<(), DeviceError> {
        let known = self.known("release", range);
        assert!(known.granules.is_empty(), "release: pages are mapped in range {range}");
        legal("release", self.inner.release(range))?;
        self.ranges.remove(&range);
        Ok(())
    }

    fn create(&mut self, size: Bytes) -> Result<PageId, DeviceError> {
        self.aligned("create", size);
        let page = legal("create", self.inner.create(size))?;
        assert!(self.pages.insert(page, size).is_none(), "create: page {page} is in use");
        Ok(page)
    }

    fn destroy(&mut self, page: PageId) -> Result<(), DeviceError> {
        assert!(self.pages.contains_key(&page), "destroy: no page {page}");
        let mapped = self.ranges.values().any(|k| k.granules.values().any(|p| *p == Some(page)));
        assert!(!mapped, "destroy: page {page} is mapped");
        legal("destroy", self.inner.destroy(page))?;
        self.pages.remove(&page);
        Ok(())
    }

    fn map(&mut self, range: RangeId, at: Bytes, page: PageId) -> Result<(), DeviceError> {
        let size = *self.pages.get(&page).unwrap_or_else(|| panic!("map: no page {page}"));
        let granules = self.stretch("map", range, at, size);
        legal("map", self.inner.map(range, at, page))?;
        self.fill("map", range, &granules, Some(page));
        Ok(())
    }

    fn unmap(&mut self, range: RangeId, at: Bytes, len: Bytes) -> Result<(), DeviceError> {
        let granules = self.stretch("unmap", range, at, len);
        legal("unmap", self.inner.unmap(range, at, len))?;
        self.vacate("unmap", range, &granules, true);
        Ok(())
    }

    fn populate(
        &mut self,
        range: RangeId,
        at: Bytes,
        len: Bytes,
        page: Bytes,
    ) -> Result<(), DeviceError> {
        self.aligned("populate", page);
        let granules = self.stretch("populate", range, at, len);
        legal("populate", self.inner.populate(range, at, len, page))?;
        self.fill("populate", range, &granules, None);
        Ok(())
    }

    fn depopulate(&mut self, range: RangeId, at: Bytes, len: Bytes) -> Result<(), DeviceError> {
        let granules = self.stretch("depopulate", range, at, len);
        legal("depopulate", self.inner.depopulate(range, at, len))?;
        self.vacate("depopulate", range, &granules, false);
        Ok(())
    }

    fn record(&mut self, stream: StreamId) -> Result<FenceId, DeviceError> {
        let fence = legal("record", self.inner.record(stream))?;
        assert!(self.fences.insert(fence), "record: fence {fence} is in use");
        Ok(fence)
    }

    fn poll(&mut self, passed: &mut Vec<FenceId>) {
        let known = passed.len();
        self.inner.poll(passed);
        for fence in &passed[known..] {
            assert!(self.fences.remove(fence), "poll: fence {fence} was not recorded");
        }
    }

    fn wait(&mut self, stream: StreamId, fence: FenceId) -> Result<(), DeviceError> {
        assert!(self.fences.contains(&fence), "wait: no fence {fence}");
        legal("wait", self.inner.wait(stream, fence))
    }

    fn synchronize(&mut self, scope: SyncScope) -> Result<(), DeviceError> {
        legal("synchronize", self.inner.synchronize(scope))
    }
}

impl<D: ReplayTarget> ReplayTarget for Checked<D> {
    crate::delegate_target!(inner);
}
