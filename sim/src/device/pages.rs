//! Physical pages and what is mapped where.

use poolsim_core::{Bytes, DeviceError, PageId};
use std::collections::BTreeMap;

/// Physical memory with a handle: what `create` made.
#[derive(Clone, Debug, Default)]
pub(super) struct PageTable {
    pages: Vec<Option<Page>>,
    unused: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    size: Bytes,
    /// At how many places it is mapped.
    maps: u32,
}

impl PageTable {
    pub(super) fn insert(&mut self, size: Bytes) -> PageId {
        let page = Some(Page { size, maps: 0 });
        match self.unused.pop() {
            Some(i) => {
                self.pages[i as usize] = page;
                PageId(i)
            }
            None => {
                self.pages.push(page);
                PageId(u32::try_from(self.pages.len() - 1).expect("fewer than 2^32 pages"))
            }
        }
    }

    fn get(&mut self, id: PageId) -> Result<&mut Page, DeviceError> {
        self.pages
            .get_mut(id.index())
            .and_then(Option::as_mut)
            .ok_or_else(|| DeviceError::Illegal(format!("there is no page {id}")))
    }

    pub(super) fn size(&mut self, id: PageId) -> Result<Bytes, DeviceError> {
        Ok(self.get(id)?.size)
    }

    pub(super) fn mapped(&mut self, id: PageId) {
        self.get(id).expect("the caller looked the page up").maps += 1;
    }

    pub(super) fn unmapped(&mut self, id: PageId) {
        self.get(id).expect("a mapped page exists").maps -= 1;
    }

    /// Removes a page that is mapped nowhere and returns its size.
    pub(super) fn remove(&mut self, id: PageId) -> Result<Bytes, DeviceError> {
        let page = *self.get(id)?;
        if page.maps != 0 {
            return Err(DeviceError::Illegal(format!(
                "page {id} is destroyed while mapped at {} places",
                page.maps
            )));
        }
        self.pages[id.index()] = None;
        self.unused.push(id.0);
        Ok(page.size)
    }
}

/// A mapped stretch of a paged range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) len: Bytes,
    /// Bytes per page; the length of the run where `page` is a handle.
    pub(super) unit: Bytes,
    /// The handle, or `None` for pages that `populate` made and only `depopulate` takes back.
    pub(super) page: Option<PageId>,
}

/// What is mapped in one paged range, by offset. Neighbouring populated pages of one size are one run, so
/// the cost of a call does not grow with the number of pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Mapping {
    runs: BTreeMap<Bytes, Run>,
}

impl Mapping {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether any byte of `[at, at + len)` is mapped.
    pub(super) fn touches(&self, at: Bytes, len: Bytes) -> bool {
        self.runs.range(..at + len).next_back().is_some_and(|(&s, r)| s + r.len > at)
    }

    /// Whether every byte of `[at, at + len)` is mapped.
    pub(super) fn covers(&self, at: Bytes, len: Bytes) -> bool {
        let end = at + len;
        let mut reached = match self.runs.range(..=at).next_back() {
            Some((&s, r)) => s + r.len,
            None => return len == 0,
        };
        while reached > at && reached < end {
            match self.runs.get(&reached) {
                Some(r) => reached += r.len,
                None => return false,
            }
        }
        reached >= end
    }

    /// Maps a run where nothing is mapped yet.
    pub(super) fn insert(&mut self, at: Bytes, run: Run) {
        debug_assert!(!self.touches(at, run.len));
        let joins = |r: &Run| r.page.is_none() && run.page.is_none() && r.unit == run.unit;
        let (mut start, mut len) = (at, run.len);
        if let Some((&s, r)) = self.runs.range(..at).next_back()
            && s + r.len == at
            && joins(r)
        {
            start = s;
            len += r.len;
        }
        if let Some(r) = self.runs.get(&(at + run.len)).filter(|r| joins(r)) {
            len += r.len;
            self.runs.remove(&(at + run.len));
        }
        self.runs.insert(start, Run { len, ..run });
    }

    /// Unmaps `[at, at + len)` and returns its runs. Changes nothing unless the stretch is fully mapped,
    /// cuts no page, and holds only pages of the wanted kind.
    pub(super) fn remove(
        &mut self,
        at: Bytes,
        len: Bytes,
        populated: bool,
    ) -> Result<Vec<Run>, String> {
        let end = at + len;
        if len == 0 || !self.covers(at, len) {
            return Err("not every byte of it is mapped".into());
        }
        let first = *self.runs.range(..=at).next_back().expect("it is covered").0;
        let hit: Vec<(Bytes, Run)> = self.runs.range(first..end).map(|(&s, &r)| (s, r)).collect();
        for &(s, r) in &hit {
            if r.page.is_none() != populated {
                return Err(format!(
                    "the pages at offset {s:#x} were {}",
                    if populated {
                        "mapped by hand, not populated"
                    } else {
                        "populated, not mapped"
                    }
                ));
            }
            let (from, to) = (at.max(s), end.min(s + r.len));
            if (from - s) % r.unit != 0 || (to - s) % r.unit != 0 {
                return Err(format!("it cuts a page of {:#x} bytes", r.unit));
            }
        }
        let mut taken = Vec::with_capacity(hit.len());
        for (s, r) in hit {
            self.runs.remove(&s);
            let (from, to) = (at.max(s), end.min(s + r.len));
            if s < from {
                self.runs.insert(s, Run { len: from - s, ..r });
            }
            if to < s + r.len {
                self.runs.insert(to, Run { len: s + r.len - to, ..r });
            }
            taken.push(Run { len: to - from, ..r });
        }
        Ok(taken)
    }
}
