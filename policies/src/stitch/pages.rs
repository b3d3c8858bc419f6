//! Physical pages, the addresses at which each was first mapped, and which of them are free.

use crate::arena::LaneId;
use poolsim_core::{
    Action, Backing, Bytes, DevAddr, Device, DeviceError, PageId, RangeId, StreamId,
};
use std::collections::{BTreeMap, BTreeSet};

/// A stretch of addresses.
pub(super) type Stretch = (DevAddr, Bytes);

/// Pages that were created together, and where they are mapped for good.
#[derive(Clone, Debug)]
struct Home {
    id: RangeId,
    lane: LaneId,
    /// By number; `None` once it was given back.
    pages: Vec<Option<PageId>>,
}

/// The free stretches of one lane.
#[derive(Clone, Debug, Default)]
struct FreeList {
    by_addr: BTreeMap<DevAddr, Bytes>,
    by_size: BTreeSet<(Bytes, DevAddr)>,
}

impl FreeList {
    fn add(&mut self, (addr, len): Stretch) {
        self.by_addr.insert(addr, len);
        self.by_size.insert((len, addr));
    }

    fn cut(&mut self, (addr, len): Stretch) {
        self.by_addr.remove(&addr);
        self.by_size.remove(&(len, addr));
    }

    /// The free stretch that covers all of this one.
    fn around(&self, (addr, len): Stretch) -> Option<Stretch> {
        let (&from, &size) = self.by_addr.range(..=addr).next_back()?;
        (from + size >= addr + len).then_some((from, size))
    }
}

/// All pages. Free stretches touch only where their pages were created apart.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    page: Bytes,
    homes: BTreeMap<DevAddr, Home>,
    free: BTreeMap<u32, FreeList>,
    /// Pages that the device did not take back.
    refused: Vec<PageId>,
    backed: Bytes,
}

impl Pages {
    pub(super) fn new(page: Bytes) -> Self {
        Pages {
            page,
            homes: BTreeMap::new(),
            free: BTreeMap::new(),
            refused: Vec::new(),
            backed: 0,
        }
    }

    /// Bytes of all pages.
    pub(super) fn backed(&self) -> Bytes {
        self.backed
    }

    fn home(&self, addr: DevAddr) -> (DevAddr, &Home) {
        let (&base, home) = self.homes.range(..=addr).next_back().expect("a stretch has a home");
        (base, home)
    }

    /// Creates pages and maps them: all or nothing. They are in use, from the address returned on.
    pub(super) fn grow(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        lane: LaneId,
        stream: StreamId,
    ) -> Result<DevAddr, DeviceError> {
        let range = dev.reserve(size, Backing::Paged)?;
        let mut pages = Vec::new();
        let filled = (0..size / self.page).try_for_each(|i| {
            let page = dev.create(self.page)?;
            pages.push(Some(page));
            dev.map(range.id, i * self.page, page).inspect_err(|_| {
                // The last page is created and not mapped.
                let page = pages.pop().flatten().expect("it was pushed just now");
                self.refused.extend(dev.destroy(page).is_err().then_some(page));
            })
        });
        self.backed += pages.len() as Bytes * self.page;
        self.homes.insert(range.addr, Home { id: range.id, lane, pages });
        dev.note(Action::SegmentMap, range.addr, size, stream);
        if let Err(error) = filled {
            self.unback(dev, range.addr, stream);
            return Err(error);
        }
        Ok(range.addr)
    }

    /// Gives back what a home whose creation failed had got.
    fn unback(&mut self, dev: &mut dyn Device, base: DevAddr, stream: StreamId) {
        let made = self.homes[&base].pages.len() as Bytes * self.page;
        if made > 0 {
            let lane = self.homes[&base].lane;
            self.put(lane, (base, made));
            self.give_back(dev, lane, stream, |stretch| {
                stretch.0 >= base && stretch.0 < base + made
            });
        }
        self.release_empty(dev);
    }

    /// A stretch is free.
    pub(super) fn put(&mut self, lane: LaneId, (mut addr, mut len): Stretch) {
        let (base, home) = self.home(addr);
        let end = base + home.pages.len() as Bytes * self.page;
        let list = self.free.entry(lane.0).or_default();
        let before = list.by_addr.range(..addr).next_back().map(|(&a, &l)| (a, l));
        if let Some((a, l)) = before.filter(|&(a, l)| a >= base && a + l == addr) {
            list.cut((a, l));
            (addr, len) = (a, len + l);
        }
        let after = addr + len;
        if let Some(&l) = list.by_addr.get(&after).filter(|_| after < end) {
            list.cut((after, l));
            len += l;
        }
        list.add((addr, len));
    }

    /// Puts a free stretch, or a part of one, to use.
    pub(super) fn take(&mut self, lane: LaneId, stretch: Stretch) {
        let list = self.free.get_mut(&lane.0).expect("a lane with free pages has a list");
        let (from, size) = list.around(stretch).expect("only what is free is taken");
        let (addr, len) = stretch;
        list.cut((from, size));
        if from < addr {
            list.add((from, addr - from));
        }
        if addr + len < from + size {
            list.add((addr + len, from + size - addr - len));
        }
    }

    /// Whether all of a stretch is free.
    pub(super) fn is_free(&self, lane: LaneId, stretch: Stretch) -> bool {
        self.free.get(&lane.0).is_some_and(|list| list.around(stretch).is_some())
    }

    /// The smallest free stretch of at least `size` bytes, at the lowest address.
    pub(super) fn smallest(&self, lane: LaneId, size: Bytes) -> Option<Stretch> {
        let list = self.free.get(&lane.0)?;
        list.by_size.range((size, 0)..).next().map(|&(len, addr)| (addr, len))
    }

    /// Size of the lane's largest free stretch.
    pub(super) fn largest(&self, lane: LaneId) -> Bytes {
        let last = self.free.get(&lane.0).and_then(|list| list.by_size.last());
        last.map_or(0, |&(len, _)| len)
    }

    /// Free stretches of at least `least` bytes that make `size` bytes together, the largest first, of the last only as
    /// much as is needed; all there are if they are less. And how much they make.
    pub(super) fn pieces(&self, lane: LaneId, size: Bytes, least: Bytes) -> (Vec<Stretch>, Bytes) {
        let (mut pieces, mut sum) = (Vec::new(), 0);
        let sizes = self.free.get(&lane.0).into_iter().flat_map(|list| list.by_size.iter().rev());
        for &(len, addr) in sizes.take_while(|s| s.0 >= least) {
            if sum == size {
                break;
            }
            let len = len.min(size - sum);
            pieces.push((addr, len));
            sum += len;
        }
        (pieces, sum)
    }

    /// The pages of a stretch.
    pub(super) fn pages_of(&self, (addr, len): Stretch) -> impl Iterator<Item = PageId> {
        let (base, home) = self.home(addr);
        let number = |at: DevAddr| ((at - base) / self.page) as usize;
        let pages = &home.pages[number(addr)..number(addr + len)];
        pages.iter().map(|page| page.expect("what is free or in use has its pages"))
    }

    /// Lanes that have free pages.
    pub(super) fn lanes(&self) -> Vec<LaneId> {
        self.free.iter().filter(|(_, l)| !l.by_addr.is_empty()).map(|(&n, _)| LaneId(n)).collect()
    }

    /// The free stretches of all lanes, by address within each lane.
    pub(super) fn all_free(&self) -> impl Iterator<Item = (LaneId, Stretch)> {
        self.free.iter().flat_map(|(&lane, list)| {
            list.by_addr.iter().map(move |(&addr, &len)| (LaneId(lane), (addr, len)))
        })
    }

    /// Gives back the pages of a lane's free stretches that `which` names, which must be mapped nowhere else. Returns the
    /// bytes that went.
    pub(super) fn give_back(
        &mut self,
        dev: &mut dyn Device,
        lane: LaneId,
        stream: StreamId,
        which: impl Fn(Stretch) -> bool,
    ) -> Bytes {
        let before = self.backed;
        let list = self.free.get(&lane.0);
        let stretches =
            list.into_iter().flat_map(|list| list.by_addr.iter().map(|(&a, &l)| (a, l)));
        let stretches: Vec<Stretch> = stretches.filter(|&s| which(s)).collect();
        for (addr, len) in stretches {
            let (&base, home) = self.homes.range_mut(..=addr).next_back().expect("a home");
            if dev.unmap(home.id, addr - base, len).is_err() {
                continue;
            }
            dev.note(Action::SegmentUnmap, addr, len, stream);
            let first = ((addr - base) / self.page) as usize;
            let count = (len / self.page) as usize;
            let pages = home.pages[first..first + count].iter_mut().filter_map(Option::take);
            self.refused.extend(pages);
            self.free.get_mut(&lane.0).expect("its list").cut((addr, len));
        }
        self.refused.retain(|&page| {
            let gone = dev.destroy(page).is_ok();
            self.backed -= if gone { self.page } else { 0 };
            !gone
        });
        self.release_empty(dev);
        before - self.backed
    }

    /// Gives back addresses without pages.
    fn release_empty(&mut self, dev: &mut dyn Device) {
        self.homes.retain(|_, home| {
            home.pages.iter().any(Option::is_some) || dev.release(home.id).is_err()
        });
    }
}
