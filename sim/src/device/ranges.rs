//! The ranges that the device handed out.

use super::pages::Mapping;
use super::placement::Placed;
use poolsim_core::{Backing, Bytes, DevAddr, DeviceError, Range, RangeId};
use std::collections::BTreeMap;

/// One range, by its id.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) addr: DevAddr,
    pub(super) size: Bytes,
    pub(super) placed: Placed,
    /// What is mapped; `None` for whole ranges, whose memory came with them.
    pub(super) mapping: Option<Mapping>,
}

/// All ranges, by id and by address. Ids are used again.
#[derive(Clone, Debug, Default)]
pub(super) struct RangeTable {
    entries: Vec<Option<Entry>>,
    unused: Vec<u32>,
    by_addr: BTreeMap<DevAddr, Range>,
}

impl RangeTable {
    pub(super) fn by_addr(&self) -> &BTreeMap<DevAddr, Range> {
        &self.by_addr
    }

    pub(super) fn insert(
        &mut self,
        addr: DevAddr,
        size: Bytes,
        backing: Backing,
        placed: Placed,
    ) -> Range {
        let mapping = (backing == Backing::Paged).then(Mapping::default);
        let entry = Some(Entry { addr, size, placed, mapping });
        let id = match self.unused.pop() {
            Some(i) => {
                self.entries[i as usize] = entry;
                RangeId(i)
            }
            None => {
                self.entries.push(entry);
                RangeId(u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 ranges"))
            }
        };
        let range = Range { id, addr, size };
        self.by_addr.insert(addr, range);
        range
    }

    pub(super) fn get(&mut self, id: RangeId) -> Result<&mut Entry, DeviceError> {
        self.entries
            .get_mut(id.index())
            .and_then(Option::as_mut)
            .ok_or_else(|| DeviceError::Illegal(format!("there is no range {id}")))
    }

    /// Removes a range in which nothing is mapped.
    pub(super) fn remove(&mut self, id: RangeId) -> Result<Entry, DeviceError> {
        if self.get(id)?.mapping.as_ref().is_some_and(|m| !m.is_empty()) {
            return Err(DeviceError::Illegal(format!(
                "range {id} is released with pages mapped in it"
            )));
        }
        let entry = self.entries[id.index()].take().expect("it was just looked up");
        self.unused.push(id.0);
        self.by_addr.remove(&entry.addr);
        Ok(entry)
    }

    /// Whether `[addr, addr + len)` lies in one range and is backed throughout.
    pub(super) fn backed(&self, addr: DevAddr, len: Bytes) -> bool {
        self.by_addr.range(..=addr).next_back().is_some_and(|(&start, range)| {
            let at = addr - start;
            let entry = self.entries[range.id.index()].as_ref().expect("listed ranges exist");
            at.checked_add(len).is_some_and(|end| end <= range.size)
                && entry.mapping.as_ref().is_none_or(|m| m.covers(at, len))
        })
    }
}
