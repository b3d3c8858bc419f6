//! The lists of the pool, and the search for a block (rules 3 to 15).

use super::backing::{Backing, PAGE, inside};
use super::blocks::{Blocks, Home, NONE};
use super::stream::Stream;
use crate::stage::size_index::{Nodes, SizeIndex};
use poolsim_core::units::GIB;
use poolsim_core::{BlockId, Bytes, Device, DeviceError, FenceId, StreamId};
use rustc_hash::FxHashMap;

/// The attributes of a pool, as `cudaMemPoolSetAttribute` and `cudaMemPoolProps` have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Synchronisations give back free pages while more than this is reserved; `None` for never.
    pub release_threshold: Option<Bytes>,
    /// The most that the pool may reserve, rounded up to pages; `None` for no limit.
    pub max_size: Option<Bytes>,
    /// Whether a stream that waits for an event may reuse what was freed before it.
    pub follow_event_dependencies: bool,
    /// Whether frees of other streams may be reused once the GPU has passed them.
    pub opportunistic: bool,
    /// Whether, if nothing else helps, a stream may be made to wait for another one's free.
    pub internal_dependencies: bool,
}

/// Why the pool has no block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No stretch of the address range is long enough.
    NoAddresses,
    /// `max_size` is reached.
    Limit,
    /// The device has no page left.
    DeviceFull,
    /// The device failed otherwise.
    Device(DeviceError),
}

/// The longest address range: far above any device, and the tables of its pages still fit into memory.
const MAX_RANGE: Bytes = 64 * 1024 * GIB;

/// One driver pool.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) attributes: Attributes,
    pub(super) blocks: Blocks,
    pub(super) nodes: Nodes,
    /// The common list: blocks without and with unbacked pages.
    whole: SizeIndex,
    holey: SizeIndex,
    seq: u64,
    pub(super) backing: Backing,
    /// In the order of their first use.
    pub(super) streams: Vec<Stream>,
    /// Position in `streams` by name.
    numbers: Vec<u32>,
    /// The stream on which frees of shared blocks are queued; `NONE` before the first.
    pub(super) unifying: u32,
    /// For a stream, the newest stamp of each other stream that it runs behind, by event waits.
    pub(super) behind: FxHashMap<StreamId, Vec<u64>>,
    /// The free that a fence belongs to: stream and stamp.
    pub(super) waiting: FxHashMap<FenceId, (u32, u64)>,
    pub(super) tracking: bool,
    pub(super) passed: Vec<FenceId>,
}

impl Pool {
    /// An empty pool for a device with `total` bytes, of which it can address twice as much.
    pub(super) fn new(attributes: Attributes, total: Bytes) -> Self {
        let pages = (total.saturating_mul(2).min(MAX_RANGE) / PAGE).max(1) as usize;
        let mut pool = Pool {
            attributes,
            blocks: Blocks::whole(pages as Bytes * PAGE, pages),
            nodes: Nodes::default(),
            whole: SizeIndex::default(),
            holey: SizeIndex::default(),
            seq: 0,
            backing: Backing::new(pages),
            streams: Vec::new(),
            numbers: Vec::new(),
            unifying: NONE,
            behind: FxHashMap::default(),
            waiting: FxHashMap::default(),
            tracking: false,
            passed: Vec::new(),
        };
        pool.enter_common(0);
        pool
    }

    /// Bytes held from the device.
    #[inline]
    pub(super) fn reserved(&self) -> Bytes {
        self.backing.count() as Bytes * PAGE
    }

    /// The number of a stream, if it was used.
    #[inline]
    pub(super) fn known(&self, stream: StreamId) -> Option<u32> {
        self.numbers.get(stream.index()).copied().filter(|&n| n != NONE)
    }

    /// The number of a stream, which it gets now if this is its first use.
    #[inline]
    pub(super) fn number(&mut self, stream: StreamId) -> u32 {
        match self.known(stream) {
            Some(number) => number,
            None => self.first_use(stream),
        }
    }

    #[cold]
    fn first_use(&mut self, stream: StreamId) -> u32 {
        if self.numbers.len() <= stream.index() {
            self.numbers.resize(stream.index() + 1, NONE);
        }
        let number = self.add_stream(false);
        self.numbers[stream.index()] = number;
        number
    }

    pub(super) fn add_stream(&mut self, only_frees: bool) -> u32 {
        self.streams.push(Stream::new(only_frees));
        (self.streams.len() - 1) as u32
    }

    /// The next use of this name is another stream's first.
    pub(super) fn forget_stream(&mut self, stream: StreamId) -> Option<u32> {
        let number = self.known(stream)?;
        self.numbers[stream.index()] = NONE;
        self.behind.remove(&stream);
        Some(number)
    }

    /// Puts a block into the index of the common list, as a new insertion.
    #[inline]
    pub(super) fn enter_common(&mut self, id: u32) {
        self.seq += 1;
        self.blocks.get_mut(id).seq = self.seq;
        self.index_common(id);
    }

    /// Puts a block back into the index of the common list where it was, but for its holes.
    #[inline]
    pub(super) fn index_common(&mut self, id: u32) {
        let b = self.blocks.get(id);
        let index = if b.holes == 0 { &mut self.whole } else { &mut self.holey };
        index.insert(&mut self.nodes, BlockId(id), b.size(), b.seq);
    }

    /// Takes a block out of the index of the common list. Its holes must be those with which it was put in.
    #[inline]
    pub(super) fn unindex_common(&mut self, id: u32) {
        let holes = self.blocks.get(id).holes;
        let index = if holes == 0 { &mut self.whole } else { &mut self.holey };
        index.remove(&mut self.nodes, BlockId(id));
    }

    /// Puts a block, which is in no list, into the common list and merges it with its neighbours there.
    fn put_common(&mut self, id: u32) {
        let neighbours = self.blocks.neighbours_in(Home::Common, id);
        let size = |pool: &Pool, b: u32| pool.blocks.get(b).size();
        // The largest keeps its number, so that few pages change their owner.
        let mut keep = id;
        for n in neighbours.into_iter().filter(|&n| n != NONE) {
            self.unindex_common(n);
            if size(self, n) > size(self, keep) {
                keep = n;
            }
        }
        let mut known = 0..0;
        if keep != id {
            known = inside(self.blocks.get(keep).start, self.blocks.get(keep).end);
            self.blocks.join(keep, id);
        }
        for n in neighbours.into_iter().filter(|&n| n != NONE && n != keep) {
            self.blocks.join(keep, n);
        }
        let b = self.blocks.get_mut(keep);
        b.home = Home::Common;
        let all = inside(b.start, b.end);
        self.backing.loosen(all.start..known.start.min(all.end), keep);
        self.backing.loosen(known.end.max(all.start)..all.end, keep);
        self.enter_common(keep);
    }

    /// Cuts `size` bytes off the low end of a block of the common list that is in no index at present.
    #[inline]
    pub(super) fn cut_common(&mut self, id: u32, size: Bytes) -> u32 {
        let b = *self.blocks.get(id);
        let pages = inside(b.start, b.end);
        if b.size() == size {
            self.backing.tighten(pages);
            self.blocks.get_mut(id).home = Home::Live;
            return id;
        }
        let low = self.blocks.cut_low(id, size);
        let left = inside(b.start + size, b.end);
        self.backing.tighten(pages.start..left.start.min(pages.end));
        self.enter_common(id);
        low
    }

    /// Moves the blocks of a stream's list with stamps up to `limit` to the common list, newest first.
    pub(super) fn flush(&mut self, number: u32, limit: u64) {
        let mut next = self.streams[number as usize].newest();
        while next != NONE {
            let id = next;
            let b = self.blocks.get(id);
            next = b.older;
            if b.stamp <= limit {
                let stream = &mut self.streams[number as usize];
                stream.remove(&mut self.blocks, &mut self.nodes, id);
                self.put_common(id);
            }
        }
    }

    fn flush_finished(&mut self) {
        for number in 0..self.streams.len() as u32 {
            let finished = self.streams[number as usize].finished();
            self.flush(number, finished);
        }
    }

    /// Serves a request of a multiple of 512 bytes. The frees that are finished must be known.
    #[inline]
    pub(super) fn malloc(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        stream: StreamId,
    ) -> Result<u32, Refusal> {
        let own = self.number(stream);
        if let Some(id) = self.streams[own as usize].best_fit(&self.nodes, size) {
            return Ok(self.cut_from(own, id, size));
        }
        if let Some(BlockId(id)) = self.whole.smallest_at_least(&self.nodes, size) {
            self.whole.remove(&mut self.nodes, BlockId(id));
            return Ok(self.cut_common(id, size));
        }
        self.malloc_elsewhere(dev, size, stream, own)
    }

    #[inline]
    pub(super) fn cut_from(&mut self, number: u32, id: u32, size: Bytes) -> u32 {
        self.streams[number as usize].cut(&mut self.blocks, &mut self.nodes, id, size)
    }

    /// Rules 14 to 16.
    #[inline(never)]
    fn malloc_elsewhere(
        &mut self,
        dev: &mut dyn Device,
        size: Bytes,
        stream: StreamId,
        own: u32,
    ) -> Result<u32, Refusal> {
        if let Some((other, id)) = self.usable_elsewhere(size, stream, own) {
            return Ok(self.cut_from(other, id, size));
        }
        if self.attributes.opportunistic {
            self.flush_finished();
        }
        let refusal = match self.best_in_common(size) {
            None => Refusal::NoAddresses,
            Some(id) => {
                self.unindex_common(id);
                match self.supply(dev, id, size, stream) {
                    Ok(()) => return Ok(self.cut_common(id, size)),
                    Err(refusal) => {
                        self.index_common(id);
                        refusal
                    }
                }
            }
        };
        let borrows =
            self.attributes.internal_dependencies && !matches!(refusal, Refusal::Device(_));
        match self.unfinished_fit(size, own).filter(|_| borrows) {
            Some((other, id)) if self.wait_behind(dev, stream, other, id) => {
                Ok(self.cut_from(other, id, size))
            }
            _ => Err(refusal),
        }
    }

    /// The smallest block of the common list, holes or not; the oldest insertion among equals.
    fn best_in_common(&self, size: Bytes) -> Option<u32> {
        let fits = [&self.whole, &self.holey].map(|i| i.smallest_at_least(&self.nodes, size));
        let key = |b: &BlockId| (self.blocks.get(b.0).size(), self.blocks.get(b.0).seq);
        fits.into_iter().flatten().min_by_key(key).map(|b| b.0)
    }

    /// Bytes of the largest free block that is backed throughout and that no unfinished work of other streams uses.
    pub(super) fn largest_free(&self) -> Bytes {
        let streams = (0..).zip(&self.streams).filter(|&(number, _)| number != self.unifying);
        let of_streams = streams.filter_map(|(_, stream)| stream.largest(&self.nodes));
        let whole = self.whole.largest(&self.nodes).map(|b| b.0);
        let sizes = of_streams.chain(whole).map(|id| self.blocks.get(id).size());
        sizes.max().unwrap_or(0)
    }

    /// Rule 14: a block of another stream that this one runs behind, or that the GPU has passed.
    fn usable_elsewhere(&self, size: Bytes, stream: StreamId, own: u32) -> Option<(u32, u32)> {
        let others = || (0..self.streams.len() as u32).filter(move |&x| x != own);
        if self.attributes.follow_event_dependencies
            && let Some(behind) = self.behind.get(&stream)
        {
            let limit = |x: u32| behind.get(x as usize).copied().unwrap_or(0);
            if let Some(hit) = others().find_map(|x| self.usable(x, size, limit(x))) {
                return Some(hit);
            }
        }
        if !self.attributes.opportunistic {
            return None;
        }
        others().find_map(|x| self.usable(x, size, self.streams[x as usize].finished()))
    }

    /// The best fit among a stream's blocks, or the oldest that fits, if its stamp is at most `limit`.
    fn usable(&self, number: u32, size: Bytes, limit: u64) -> Option<(u32, u32)> {
        let stream = &self.streams[number as usize];
        let usable = |id: &u32| self.blocks.get(*id).stamp <= limit;
        let best = stream.best_fit(&self.nodes, size)?;
        let found = Some(best)
            .filter(usable)
            .or_else(|| stream.oldest_fit(&self.blocks, size).filter(usable));
        found.map(|id| (number, id))
    }

    /// A block for rule 24. Which one the driver takes if several fit is not known: here the best fit of the first
    /// stream that has one.
    fn unfinished_fit(&self, size: Bytes, own: u32) -> Option<(u32, u32)> {
        let others = (0..self.streams.len() as u32).filter(|&x| x != own);
        others
            .filter_map(|x| Some((x, self.streams[x as usize].best_fit(&self.nodes, size)?)))
            .find(|&(x, id)| self.blocks.get(id).stamp > self.streams[x as usize].finished())
    }

    /// Puts a live block into the list of a stream, merged with its neighbours there.
    #[inline]
    pub(super) fn put_free(&mut self, id: u32, number: u32) {
        let home = Home::Stream(number);
        let stream = &mut self.streams[number as usize];
        for n in self.blocks.neighbours_in(home, id) {
            if n != NONE {
                stream.remove(&mut self.blocks, &mut self.nodes, n);
                self.blocks.join(id, n);
            }
        }
        stream.put(&mut self.blocks, &mut self.nodes, id, home);
    }
}
