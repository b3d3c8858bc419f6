//! What is mapped where: checks before the driver is asked.

use super::{CudaDevice, illegal};
use crate::call::Result;
use poolsim_core::device::show_range;
use poolsim_core::{Backing, Bytes, DevAddr, PageId, Range, RangeId};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct RangeState {
    pub(super) range: Range,
    pub(super) backing: Backing,
    /// Mappings by offset.
    pub(super) mapped: BTreeMap<Bytes, Mapping>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) len: Bytes,
    pub(super) page: Page,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Page {
    /// Made by `populate`: goes with its mapping.
    Own(u64),
    /// Made by `create`.
    Shared(PageId),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Physical {
    pub(super) handle: u64,
    pub(super) size: Bytes,
    pub(super) mappings: u32,
}

impl CudaDevice {
    pub(super) fn range(&mut self, id: RangeId) -> Result<&mut RangeState> {
        self.ranges.get_mut(&id.0).ok_or_else(|| illegal(format!("range {id} is not reserved")))
    }

    /// The address of `[at, at + len)` in a paged range, after checking that it lies on granule borders.
    pub(super) fn place(&mut self, id: RangeId, at: Bytes, len: Bytes) -> Result<DevAddr> {
        let granule = self.caps.granule;
        let state = self.range(id)?;
        let range = state.range;
        let end = at.checked_add(len).filter(|&end| end <= range.size);
        if state.backing != Backing::Paged || end.is_none() || len == 0 {
            let what = show_range(range.addr.saturating_add(at), len);
            return Err(illegal(format!("{what} is no part of a paged range")));
        }
        if !at.is_multiple_of(granule) || !len.is_multiple_of(granule) {
            return Err(illegal(format!("{at}+{len} is not on borders of {granule} bytes")));
        }
        Ok(range.addr + at)
    }

    /// Checks that nothing is mapped in `[at, at + len)`.
    pub(super) fn check_free(&mut self, id: RangeId, at: Bytes, len: Bytes) -> Result<()> {
        let state = self.range(id)?;
        let before = state.mapped.range(..at + len).next_back();
        match before {
            Some((&offset, m)) if offset + m.len > at => {
                Err(illegal(format!("{at}+{len} overlaps a mapping at {offset}")))
            }
            _ => Ok(()),
        }
    }

    /// Takes the mappings of `[at, at + len)` out of the table; they must cover it in whole pages.
    pub(super) fn take_mappings(
        &mut self,
        id: RangeId,
        at: Bytes,
        len: Bytes,
    ) -> Result<Vec<(Bytes, Mapping)>> {
        let state = self.range(id)?;
        let found: Vec<(Bytes, Mapping)> =
            state.mapped.range(at..at + len).map(|(&o, &m)| (o, m)).collect();
        let mut next = at;
        for (offset, m) in &found {
            if *offset != next {
                return Err(illegal(format!("nothing is mapped at {next}")));
            }
            next = offset + m.len;
        }
        if next != at + len {
            return Err(illegal(format!("{at}+{len} does not end with a page")));
        }
        for (offset, _) in &found {
            state.mapped.remove(offset);
        }
        Ok(found)
    }
}
