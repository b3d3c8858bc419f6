//! Ranges into which scattered pages are mapped once more, and which are kept for the next time.

use super::pages::{Pages, Stretch};
use crate::arena::LaneId;
use poolsim_core::{Backing, Bytes, DevAddr, Device, DeviceError, RangeId};
use std::collections::{BTreeMap, BTreeSet};

/// Kept ranges of the wanted size that are looked at, the newest first.
const TRIES: usize = 32;

#[derive(Clone, Debug)]
struct Stitch {
    range: RangeId,
    addr: DevAddr,
    size: Bytes,
    lane: LaneId,
    parts: Vec<Stretch>,
    /// When it was last taken or freed; unique.
    used_at: u64,
    in_use: bool,
}

/// The stitched ranges, in use or kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Stitches {
    made: BTreeMap<u32, Stitch>,
    by_size: BTreeMap<(u32, Bytes), Vec<u32>>,
    /// Those that are not in use, the least recently used first.
    kept: BTreeSet<(u64, u32)>,
    next: u32,
    now: u64,
    bytes: Bytes,
}

impl Stitches {
    /// A kept range of exactly this size whose pages are all free.
    pub(super) fn find(&self, pages: &Pages, lane: LaneId, size: Bytes) -> Option<u32> {
        let known = self.by_size.get(&(lane.0, size))?;
        let free = |id: &&u32| {
            let stitch = &self.made[id];
            !stitch.in_use && stitch.parts.iter().all(|&part| pages.is_free(lane, part))
        };
        known.iter().rev().take(TRIES).find(free).copied()
    }

    /// Maps the pages of stretches, one after the other, to a new range: all or nothing.
    pub(super) fn make(
        &mut self,
        dev: &mut dyn Device,
        pages: &Pages,
        lane: LaneId,
        parts: Vec<Stretch>,
    ) -> Result<u32, DeviceError> {
        let size = parts.iter().map(|part| part.1).sum();
        let range = dev.reserve(size, Backing::Paged)?;
        let step =
            size / parts.iter().map(|&part| pages.pages_of(part).count() as Bytes).sum::<Bytes>();
        let mut mapped = 0;
        let result = parts.iter().flat_map(|&part| pages.pages_of(part)).try_for_each(|page| {
            dev.map(range.id, mapped, page)?;
            mapped += step;
            Ok(())
        });
        let id = self.next;
        self.next += 1;
        if let Err(error) = result {
            if mapped == 0 || dev.unmap(range.id, 0, mapped).is_ok() {
                // If even that fails, addresses are lost and no memory.
                let _ = dev.release(range.id);
            }
            return Err(error);
        }
        self.bytes += size;
        let stitch = Stitch {
            range: range.id,
            addr: range.addr,
            size,
            lane,
            parts,
            used_at: 0,
            in_use: false,
        };
        self.made.insert(id, stitch);
        self.by_size.entry((lane.0, size)).or_default().push(id);
        self.kept.insert((0, id));
        Ok(id)
    }

    /// First address and the stretches of which a range is made.
    pub(super) fn look(&self, id: u32) -> (DevAddr, &[Stretch]) {
        let stitch = &self.made[&id];
        (stitch.addr, &stitch.parts)
    }

    /// A range is in use from now on, or no more.
    pub(super) fn set_in_use(&mut self, id: u32, in_use: bool) {
        self.now += 1;
        let stitch = self.made.get_mut(&id).expect("a range that is known");
        self.kept.remove(&(stitch.used_at, id));
        stitch.used_at = self.now;
        stitch.in_use = in_use;
        if !in_use {
            self.kept.insert((self.now, id));
        }
    }

    /// Unmaps kept ranges, the least recently used first, while all ranges together are larger than `most`.
    pub(super) fn trim(&mut self, dev: &mut dyn Device, most: Bytes) {
        while self.bytes > most {
            let Some(&(_, id)) = self.kept.first() else { return };
            if !self.remove(dev, id) {
                return;
            }
        }
    }

    /// Unmaps the kept ranges of a lane; whether all of them went.
    pub(super) fn clear(&mut self, dev: &mut dyn Device, lane: LaneId) -> bool {
        let of_lane: Vec<u32> =
            self.kept.iter().map(|&(_, id)| id).filter(|id| self.made[id].lane == lane).collect();
        of_lane.into_iter().all(|id| self.remove(dev, id))
    }

    fn remove(&mut self, dev: &mut dyn Device, id: u32) -> bool {
        let stitch = &self.made[&id];
        if dev.unmap(stitch.range, 0, stitch.size).is_err() {
            return false;
        }
        // If this fails, addresses are lost and no memory.
        let _ = dev.release(stitch.range);
        self.bytes -= stitch.size;
        self.kept.remove(&(stitch.used_at, id));
        let key = (stitch.lane.0, stitch.size);
        if let Some(known) = self.by_size.get_mut(&key) {
            known.retain(|&other| other != id);
            if known.is_empty() {
                self.by_size.remove(&key);
            }
        }
        self.made.remove(&id);
        true
    }
}
