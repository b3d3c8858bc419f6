//! The simulated device: addresses, pages, fences and time, with measured costs.

mod chunk;
mod config;
mod pages;
mod placement;
#[cfg(test)]
mod placement_score;
pub mod profile;
mod quotes;
mod ranges;
mod slabs;
mod space;
mod streams;
mod target;

pub use config::SimConfig;
pub use placement::{Divergence, Placement, Variant};
pub use profile::{CallTable, DeviceProfile, ProfileFile, ProfileProvenance};

use pages::{Mapping, PageTable, Run};
use placement::{Placer, Refusal};
use poolsim_core::device::{DeviceOp, show_range};
use poolsim_core::record::Decision;
use poolsim_core::{
    Action, Backing, Bytes, DevAddr, Device, DeviceCaps, DeviceError, FenceId, Ledger, Nanos,
    PageId, Range, RangeId, StreamId, SyncScope,
};
use quotes::Quotes;
use ranges::RangeTable;
use slabs::footprint;
use streams::Fences;

/// A GPU that is not there.
///
/// Time is open: [`Device::now`] is the recorded time of the present event, and what calls cost goes to the
/// ledger only, so that policies with different costs see the same clock.
#[derive(Clone, Debug)]
pub struct SimDevice {
    caps: DeviceCaps,
    profile: DeviceProfile,
    /// `None` where a recording decides which calls fail.
    limit: Option<Bytes>,
    /// What it says to have, taken and free together.
    capacity: Bytes,
    used: Bytes,
    /// Memory that whole ranges take beyond their size, because the driver deals in granules.
    padding: Bytes,
    now: Nanos,
    event: u64,
    placer: Placer,
    ranges: RangeTable,
    pages: PageTable,
    fences: Fences,
    ledger: Ledger,
    quotes: Quotes,
    metered: bool,
    keep_log: bool,
    log: Vec<Decision>,
}

impl SimDevice {
    /// A fresh device.
    ///
    /// # Panics
    /// If the granule or the range alignment of `caps` is not a power of two.
    pub fn new(config: SimConfig) -> Self {
        let SimConfig { caps, profile, capacity, placement, keep_log } = config;
        assert!(caps.granule.is_power_of_two(), "granule {} is no power of two", caps.granule);
        let limit = match placement {
            Placement::Driver | Placement::Variant(_) => Some(capacity.unwrap_or(caps.total)),
            Placement::Recorded(_) => None,
        };
        SimDevice {
            capacity: capacity.unwrap_or(caps.total),
            caps,
            profile,
            limit,
            used: 0,
            padding: 0,
            now: 0,
            event: 0,
            placer: Placer::new(placement),
            ranges: RangeTable::default(),
            pages: PageTable::default(),
            fences: Fences::default(),
            ledger: Ledger::default(),
            quotes: Quotes::default(),
            metered: true,
            keep_log,
            log: Vec::new(),
        }
    }

    /// The first call that the recorded answers did not fit, if any did not.
    pub fn divergence(&self) -> Option<&Divergence> {
        self.placer.divergence()
    }

    /// Takes the log out.
    pub fn take_log(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.log)
    }

    /// The profile that prices the calls.
    pub fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    /// The ranges that are reserved at present, by address.
    pub fn ranges(&self) -> impl Iterator<Item = Range> {
        self.ranges.by_addr().values().copied()
    }

    fn pay(&mut self, op: DeviceOp, calls: u64, each: Bytes) {
        if !self.metered {
            return;
        }
        let time = self.profile.cost(op, each) * calls;
        self.ledger.charge_many(op, calls, each * calls, time);
    }

    /// Charges a call that failed.
    fn pay_failed(&mut self, op: DeviceOp) {
        self.pay(op, 1, 0);
    }

    fn room(&self) -> Bytes {
        self.capacity.saturating_sub(self.used + self.padding)
    }

    /// The mapping of a paged range, after checking that `[at, at + len)` lies in it on granule borders.
    fn mapping(
        &mut self,
        id: RangeId,
        at: Bytes,
        len: Bytes,
    ) -> Result<(&mut Mapping, DevAddr), DeviceError> {
        let granule = self.caps.granule;
        let entry = self.ranges.get(id)?;
        let stretch = show_range(entry.addr.saturating_add(at), len);
        if len == 0 || !at.is_multiple_of(granule) || !len.is_multiple_of(granule) {
            return Err(illegal(format!(
                "{stretch} is empty or off the granule of {granule} bytes"
            )));
        }
        if at.checked_add(len).is_none_or(|end| end > entry.size) {
            let range = show_range(entry.addr, entry.size);
            return Err(illegal(format!("{stretch} leaves range {id} {range}")));
        }
        let addr = entry.addr + at;
        match &mut entry.mapping {
            Some(mapping) => Ok((mapping, addr)),
            None => Err(illegal(format!("range {id} is whole: nothing is mapped in it"))),
        }
    }

    /// The same, for a stretch in which nothing may be mapped yet.
    fn vacant(&mut self, id: RangeId, at: Bytes, len: Bytes) -> Result<(), DeviceError> {
        let (mapping, addr) = self.mapping(id, at, len)?;
        if mapping.touches(at, len) {
            return Err(illegal(format!("{} is partly mapped already", show_range(addr, len))));
        }
        Ok(())
    }

    fn checked_size(&self, size: Bytes) -> Result<(), DeviceError> {
        if size == 0 || !size.is_multiple_of(self.caps.granule) {
            let granule = self.caps.granule;
            return Err(illegal(format!("{size} bytes are no multiple of the granule {granule}")));
        }
        Ok(())
    }
}

fn illegal(what: String) -> DeviceError {
    DeviceError::Illegal(what)
}

impl Device for SimDevice {
    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn cost(&self, op: DeviceOp, bytes: Bytes) -> Nanos {
        self.profile.cost(op, bytes)
    }

    fn free_bytes(&self) -> Bytes {
        self.room()
    }

    fn reserve(&mut self, size: Bytes, backing: Backing) -> Result<Range, DeviceError> {
        if backing == Backing::Paged && !self.caps.paged {
            return Err(DeviceError::Unsupported("paged ranges".into()));
        }
        let op = match backing {
            Backing::Whole if size == 0 => return Err(illegal("a range of 0 bytes".into())),
            Backing::Whole => DeviceOp::Alloc,
            Backing::Paged => DeviceOp::Reserve,
        };
        if backing == Backing::Paged {
            self.checked_size(size)?;
        }
        let free = self.room();
        if backing == Backing::Whole
            && self.limit.is_some()
            && footprint(size, self.caps.granule) > free
        {
            self.pay_failed(op);
            return Err(DeviceError::OutOfMemory { asked: size, free });
        }
        match self.placer.reserve(size, backing, self.event, self.ranges.by_addr()) {
            Ok((addr, placed)) => {
                self.pay(op, 1, size);
                if backing == Backing::Whole {
                    self.used += size;
                    self.padding += footprint(size, self.caps.granule) - size;
                }
                Ok(self.ranges.insert(addr, size, backing, placed))
            }
            Err(refusal) => {
                self.pay_failed(op);
                Err(match refusal {
                    Refusal::Recorded => DeviceError::OutOfMemory { asked: size, free },
                    Refusal::NoAddresses => DeviceError::OutOfAddresses { asked: size },
                })
            }
        }
    }

    fn release(&mut self, range: RangeId) -> Result<(), DeviceError> {
        let entry = self.ranges.remove(range)?;
        self.placer.release(entry.addr, entry.size, entry.placed);
        if entry.mapping.is_some() {
            self.pay(DeviceOp::Unreserve, 1, entry.size);
        } else {
            self.used -= entry.size;
            self.padding -= footprint(entry.size, self.caps.granule) - entry.size;
            self.pay(DeviceOp::Free, 1, entry.size);
        }
        Ok(())
    }

    fn create(&mut self, size: Bytes) -> Result<PageId, DeviceError> {
        self.checked_size(size)?;
        if !self.caps.paged {
            return Err(DeviceError::Unsupported("pages".into()));
        }
        let free = self.room();
        if self.limit.is_some() && size > free {
            self.pay_failed(DeviceOp::Create);
            return Err(DeviceError::OutOfMemory { asked: size, free });
        }
        self.used += size;
        self.pay(DeviceOp::Create, 1, size);
        Ok(self.pages.insert(size))
    }

    fn destroy(&mut self, page: PageId) -> Result<(), DeviceError> {
        let size = self.pages.remove(page)?;
        self.used -= size;
        self.pay(DeviceOp::Destroy, 1, size);
        Ok(())
    }

    fn map(&mut self, range: RangeId, at: Bytes, page: PageId) -> Result<(), DeviceError> {
        let len = self.pages.size(page)?;
        self.vacant(range, at, len)?;
        let (mapping, _) = self.mapping(range, at, len)?;
        mapping.insert(at, Run { len, unit: len, page: Some(page) });
        self.pages.mapped(page);
        self.pay(DeviceOp::Map, 1, len);
        self.pay(DeviceOp::Access, 1, len);
        Ok(())
    }

    fn unmap(&mut self, range: RangeId, at: Bytes, len: Bytes) -> Result<(), DeviceError> {
        let (mapping, addr) = self.mapping(range, at, len)?;
        let runs = mapping
            .remove(at, len, false)
            .map_err(|e| illegal(format!("unmap of {}: {e}", show_range(addr, len))))?;
        for run in runs {
            self.pages.unmapped(run.page.expect("unmap finds pages with handles only"));
            self.pay(DeviceOp::Unmap, 1, run.len);
        }
        Ok(())
    }

    fn populate(
        &mut self,
        range: RangeId,
        at: Bytes,
        len: Bytes,
        page: Bytes,
    ) -> Result<(), DeviceError> {
        self.checked_size(page)?;
        if !len.is_multiple_of(page) {
            return Err(illegal(format!("{len} bytes are no multiple of the page size {page}")));
        }
        self.vacant(range, at, len)?;
        let (count, free) = (len / page, self.room());
        let fits = if self.limit.is_some() { (free / page).min(count) } else { count };
        if fits < count {
            // The driver finds out at the first page too many, and gives the others back.
            self.pay(DeviceOp::Create, fits, page);
            self.pay_failed(DeviceOp::Create);
            self.pay(DeviceOp::Destroy, fits, page);
            return Err(DeviceError::OutOfMemory { asked: len, free });
        }
        if !self.placer.populate(len, self.event, self.ranges.by_addr()) {
            self.pay_failed(DeviceOp::Create);
            return Err(DeviceError::OutOfMemory { asked: len, free });
        }
        let (mapping, _) = self.mapping(range, at, len)?;
        mapping.insert(at, Run { len, unit: page, page: None });
        self.used += len;
        self.pay(DeviceOp::Create, count, page);
        self.pay(DeviceOp::Map, count, page);
        self.pay(DeviceOp::Access, 1, len);
        Ok(())
    }

    fn depopulate(&mut self, range: RangeId, at: Bytes, len: Bytes) -> Result<(), DeviceError> {
        let (mapping, addr) = self.mapping(range, at, len)?;
        let runs = mapping
            .remove(at, len, true)
            .map_err(|e| illegal(format!("depopulate of {}: {e}", show_range(addr, len))))?;
        for run in runs {
            let count = run.len / run.unit;
            self.used -= run.len;
            self.pay(DeviceOp::Unmap, count, run.unit);
            self.pay(DeviceOp::Destroy, count, run.unit);
        }
        Ok(())
    }

    fn record(&mut self, stream: StreamId) -> Result<FenceId, DeviceError> {
        self.pay(DeviceOp::Record, 1, 0);
        Ok(self.fences.record(stream))
    }

    #[inline]
    fn poll(&mut self, passed: &mut Vec<FenceId>) {
        let reported = self.fences.poll(passed);
        if reported != 0 {
            // Queries of fences that had not passed are not counted: nobody knows how many there were.
            self.pay(DeviceOp::Query, reported, 0);
        }
    }

    fn wait(&mut self, _stream: StreamId, fence: FenceId) -> Result<(), DeviceError> {
        self.fences.check(fence)?;
        self.pay(DeviceOp::Wait, 1, 0);
        Ok(())
    }

    fn synchronize(&mut self, scope: SyncScope) -> Result<(), DeviceError> {
        if scope == SyncScope::Fences {
            for slot in self.placer.passed_first() {
                self.fences.complete(slot);
            }
        }
        self.fences.synchronize(match scope {
            SyncScope::Stream(stream) => Some(stream),
            SyncScope::Device | SyncScope::Fences => None,
        });
        self.pay(DeviceOp::Synchronize, 1, 0);
        Ok(())
    }

    fn idle(&mut self, _stream: StreamId) -> bool {
        !self.fences.holding()
    }

    fn set_metered(&mut self, on: bool) {
        self.metered = on;
    }

    fn charge(&mut self, op: DeviceOp, calls: u64, bytes: Bytes) {
        let each = if calls == 1 { bytes } else { bytes.checked_div(calls).unwrap_or(0) };
        let time = self.quotes.cost(&self.profile, op, each) * calls;
        self.ledger.charge_many(op, calls, bytes, time);
    }

    fn note(&mut self, action: Action, addr: DevAddr, size: Bytes, stream: StreamId) {
        if self.keep_log {
            self.log.push(Decision { event: self.event, action, addr, size, stream });
        }
    }
}
