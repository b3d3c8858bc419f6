//! Lots: the pieces of address space that belong to one pool for their whole life.
//!
//! A segment is a lot from its allocation to its release; an expandable reservation from its first map
//! until its last page is unmapped. An address alone does not name a lot, because addresses are used again.

use super::super::size::SMALL_SEGMENT;
use super::rewind::StartRange;
use poolsim_core::units::{Bytes, DevAddr, GIB, PoolId, StreamId};
use std::collections::BTreeMap;

/// "No lot".
pub(super) const NO_LOT: u32 = u32::MAX;
/// Born before the first entry, or not dead at the last.
pub(super) const OUTSIDE: u32 = u32::MAX;

/// A segment or a reservation.
#[derive(Clone, Debug)]
pub(super) struct Lot {
    /// First address (of a reservation: of its lowest page ever mapped).
    pub base: DevAddr,
    /// End of the segment; of a reservation: highest end that was ever mapped.
    pub end: DevAddr,
    pub stream: StreamId,
    /// Serves small requests. Not known at first for reservations that were there at the start.
    pub small: Option<bool>,
    pub expandable: bool,
    /// Entry that made it, or [`OUTSIDE`].
    pub born: u32,
    /// Entry that ended it, or [`OUTSIDE`].
    pub died: u32,
    /// First and last allocation from it, [`OUTSIDE`] if there was none.
    pub first_alloc: u32,
    pub last_alloc: u32,
    /// First release of pages while it lived on.
    pub first_unmap: u32,
    /// Every block in it was alone in it and lay at its start; in a reservation, at the start of a page.
    pub whole: bool,
    /// A request that it served completed pending frees at its start, as none to a private pool does.
    pub completes: bool,
    /// The pool that the final heap, or the recorder, says it belongs to.
    pub known: Option<PoolId>,
    /// Bytes mapped at present, while the entries are read.
    mapped: Bytes,
    /// Highest mapped end at present: where its growable tail starts.
    top: DevAddr,
}

impl Lot {
    /// Whether it was there before the first entry.
    pub fn at_start(&self) -> bool {
        self.born == OUTSIDE
    }
}

/// All lots, and which of them live while the entries are read.
#[derive(Clone, Debug, Default)]
pub(super) struct Lots {
    pub list: Vec<Lot>,
    living: BTreeMap<DevAddr, u32>,
    /// The device's memory. A reservation is an eighth longer, so what is mapped in one is at least an eighth away from
    /// what is mapped in the next.
    device: Bytes,
}

impl Lots {
    /// Lots of the ranges that are there at the start, on a device with so much memory.
    pub fn at_start(ranges: &[StartRange], device: Option<Bytes>) -> Lots {
        let mut lots = Lots { device: device.unwrap_or(64 * GIB), ..Lots::default() };
        for r in ranges {
            if r.expandable
                && let Some(id) = lots.last_reservation_near(r)
            {
                let lot = &mut lots.list[id as usize];
                lot.end = r.addr + r.size;
                lot.top = lot.end;
                lot.mapped += r.size;
                continue;
            }
            lots.add(r.addr, r.size, r.stream, r.expandable, OUTSIDE);
        }
        lots
    }

    fn last_reservation_near(&self, r: &StartRange) -> Option<u32> {
        let (_, &id) = self.living.range(..r.addr).next_back()?;
        let lot = &self.list[id as usize];
        let near = r.addr.saturating_sub(lot.end) < self.device / 8;
        (lot.expandable && lot.stream == r.stream && near).then_some(id)
    }

    fn add(
        &mut self,
        base: DevAddr,
        size: Bytes,
        stream: StreamId,
        expandable: bool,
        born: u32,
    ) -> u32 {
        let id = self.list.len() as u32;
        let end = base.saturating_add(size);
        let small = match (expandable, born) {
            (true, OUTSIDE) => None,
            _ => Some(size == SMALL_SEGMENT),
        };
        self.list.push(Lot {
            base,
            end,
            stream,
            small,
            expandable,
            born,
            died: OUTSIDE,
            first_alloc: OUTSIDE,
            last_alloc: OUTSIDE,
            first_unmap: OUTSIDE,
            whole: true,
            completes: false,
            known: None,
            mapped: size,
            top: end,
        });
        self.living.insert(base, id);
        id
    }

    /// The living lot that holds an address.
    #[inline]
    pub fn at(&self, addr: DevAddr) -> Option<u32> {
        let (_, &id) = self.living.range(..=addr).next_back()?;
        (addr < self.list[id as usize].end).then_some(id)
    }

    /// `segment_alloc`. `None` if something lives there.
    pub fn alloc(
        &mut self,
        addr: DevAddr,
        size: Bytes,
        stream: StreamId,
        entry: u32,
    ) -> Option<u32> {
        let below = self.living.range(..addr.saturating_add(size)).next_back();
        if below.is_some_and(|(_, &id)| self.list[id as usize].end > addr) {
            return None;
        }
        Some(self.add(addr, size, stream, false, entry))
    }

    /// `segment_free`. `None` if no such segment lives.
    pub fn free(&mut self, addr: DevAddr, size: Bytes, entry: u32) -> Option<u32> {
        let id = *self.living.get(&addr)?;
        let lot = &mut self.list[id as usize];
        if lot.expandable || lot.end - lot.base != size {
            return None;
        }
        lot.died = entry;
        self.living.remove(&addr);
        Some(id)
    }

    /// `segment_map`: more of a living reservation, or a new one. Memory is mapped in holes or right at the end of
    /// what is mapped, so a map anywhere else belongs to a new reservation.
    pub fn map(&mut self, addr: DevAddr, size: Bytes, stream: StreamId, entry: u32) -> u32 {
        let end = addr.saturating_add(size);
        if let Some((_, &id)) = self.living.range(..=addr).next_back() {
            let lot = &mut self.list[id as usize];
            if lot.expandable && lot.stream == stream && addr <= lot.top {
                lot.mapped += size;
                lot.top = lot.top.max(end);
                lot.end = lot.end.max(end);
                return id;
            }
        }
        if let Some(id) = self.low_hole(addr, stream) {
            let lot = &mut self.list[id as usize];
            self.living.remove(&lot.base);
            lot.base = addr;
            lot.mapped += size;
            self.living.insert(addr, id);
            return id;
        }
        self.add(addr, size, stream, true, entry)
    }

    /// A reservation from before the start whose first pages were not mapped then: its base is lower than it seemed.
    fn low_hole(&self, addr: DevAddr, stream: StreamId) -> Option<u32> {
        let (_, &id) = self.living.range(addr..).next()?;
        let lot = &self.list[id as usize];
        let near = lot.base - addr < self.device / 2;
        (lot.at_start() && lot.expandable && lot.stream == stream && near).then_some(id)
    }

    /// `segment_unmap`. `None` if no reservation holds the range.
    pub fn unmap(&mut self, addr: DevAddr, size: Bytes, entry: u32) -> Option<u32> {
        let (&base, &id) = self.living.range(..=addr).next_back()?;
        let lot = &mut self.list[id as usize];
        let end = addr.saturating_add(size);
        if !lot.expandable || end > lot.end || size > lot.mapped {
            return None;
        }
        lot.mapped -= size;
        lot.first_unmap = lot.first_unmap.min(entry);
        if end == lot.top {
            lot.top = addr;
        }
        if lot.mapped == 0 {
            lot.died = entry;
            self.living.remove(&base);
        }
        Some(id)
    }
}
