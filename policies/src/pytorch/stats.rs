//! The allocator's own statistics, as `torch.cuda.memory_stats()` names them.
//!
//! A statistic counts current, peak, allocated (sum of increases) and freed (sum of decreases), for
//! small requests, for large ones and for both. `freed` is not kept: it is what was there at the
//! start plus `allocated` minus `current`.

use poolsim_core::policy::{Gauge, PoolStats};

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    gauge: Gauge,
    allocated: u64,
    start: u64,
}

impl Tally {
    #[inline]
    fn add(&mut self, n: u64) {
        self.gauge.add(n);
        self.allocated += n;
    }

    /// Makes what is there now the start of a history that begins late.
    fn start_here(&mut self) {
        let current = self.gauge.current;
        *self = Tally { gauge: Gauge { current, peak: current }, allocated: 0, start: current };
    }
}

/// A statistic of small (0) and large (1) requests, without its peak over both.
type ByClass = [Tally; 2];

fn current(by_class: &ByClass) -> u64 {
    by_class[0].gauge.current + by_class[1].gauge.current
}

/// A statistic with its peak over both classes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stat {
    by_class: ByClass,
    peak: u64,
}

impl Stat {
    /// Counts an increase in a class (0 small, 1 large).
    #[inline]
    pub fn add(&mut self, class: usize, n: u64) {
        self.by_class[class & 1].add(n);
        self.peak = self.peak.max(current(&self.by_class));
    }

    /// Counts a decrease in a class.
    #[inline]
    pub fn sub(&mut self, class: usize, n: u64) {
        self.by_class[class & 1].gauge.sub(n);
    }

    /// Applies a net change as one increase or one decrease; that keeps `allocated` and `freed` as PyTorch
    /// has them. Free of branches: which of the two it is cannot be predicted.
    #[inline]
    pub fn net(&mut self, class: usize, n: i64) {
        let more = n.max(0) as u64;
        let less = n.min(0).unsigned_abs();
        let tally = &mut self.by_class[class & 1];
        tally.gauge.current = tally.gauge.current + more - less;
        tally.gauge.peak = tally.gauge.peak.max(tally.gauge.current);
        tally.allocated += more;
        self.peak = self.peak.max(current(&self.by_class));
    }

    fn start_here(&mut self) {
        self.by_class.iter_mut().for_each(Tally::start_here);
        self.peak = current(&self.by_class);
    }

    fn list(&self, name: &str, out: &mut Vec<(String, i64)>) {
        list_by_class(name, &self.by_class, self.peak, out);
    }
}

fn list_by_class(name: &str, by_class: &ByClass, peak: u64, out: &mut Vec<(String, i64)>) {
    let [small, large] = by_class;
    let all = Tally {
        gauge: Gauge { current: current(by_class), peak },
        allocated: small.allocated + large.allocated,
        start: small.start + large.start,
    };
    for (part, tally) in [("all", &all), ("large_pool", large), ("small_pool", small)] {
        list_tally(&format!("{name}.{part}"), tally, out);
    }
}

fn list_tally(name: &str, tally: &Tally, out: &mut Vec<(String, i64)>) {
    let freed = tally.start + tally.allocated - tally.gauge.current;
    for (part, value) in [
        ("allocated", tally.allocated),
        ("current", tally.gauge.current),
        ("freed", freed),
        ("peak", tally.gauge.peak),
    ] {
        out.push((format!("{name}.{part}"), value as i64));
    }
}

/// Blocks that are active without being allocated.
#[derive(Clone, Copy, Debug, Default)]
struct Active {
    blocks: Stat,
    bytes: ByClass,
}

/// Everything that `memory_stats()` reports.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// The four sums that every policy has, over both classes; their peaks are PyTorch's, too.
    pub pool: PoolStats,
    allocation: Stat,
    allocated_bytes: ByClass,
    requested_bytes: ByClass,
    /// `active` and `active_bytes` from the first free on that had to wait. Until then they are the same as
    /// `allocation` and `allocated_bytes`, and are not counted twice.
    active: Option<Active>,
    /// Segments from cudaMalloc; mapped pages do not count.
    pub segment: Stat,
    reserved_bytes: ByClass,
    /// Free blocks of split segments, expandable ones excepted.
    pub inactive_split: Stat,
    /// Their bytes.
    pub inactive_split_bytes: Stat,
    oversize_allocations: Tally,
    oversize_segments: Tally,
    device_allocs: u64,
    device_frees: u64,
    /// Waits for all fences.
    pub syncs: u64,
}

impl Stats {
    /// The program got a block.
    #[inline(always)]
    pub fn allocate(&mut self, class: usize, size: u64, requested: u64) {
        let class = class & 1;
        self.allocation.add(class, 1);
        self.allocated_bytes[class].add(size);
        self.requested_bytes[class].add(requested);
        self.pool.allocated.add(size);
        self.pool.active.add(size);
        self.pool.requested.add(requested);
        if let Some(active) = &mut self.active {
            active.blocks.add(class, 1);
            active.bytes[class].add(size);
        }
    }

    /// The program freed a block that other streams still use.
    pub fn free_pending(&mut self, class: usize, size: u64) {
        let now = || Active { blocks: self.allocation, bytes: self.allocated_bytes };
        if self.active.is_none() {
            self.active = Some(now());
        }
        self.allocation.sub(class, 1);
        self.allocated_bytes[class & 1].gauge.sub(size);
        self.pool.allocated.sub(size);
    }

    /// A pending free is complete.
    pub fn complete_pending(&mut self, class: usize, size: u64, requested: u64) {
        if let Some(active) = &mut self.active {
            active.blocks.sub(class, 1);
            active.bytes[class & 1].gauge.sub(size);
        }
        self.requested_bytes[class & 1].gauge.sub(requested);
        self.pool.active.sub(size);
        self.pool.requested.sub(requested);
    }

    /// The program freed a block that can be used again at once.
    #[inline(always)]
    pub fn free(&mut self, class: usize, size: u64, requested: u64) {
        let class = class & 1;
        self.allocation.sub(class, 1);
        self.allocated_bytes[class].gauge.sub(size);
        self.requested_bytes[class].gauge.sub(requested);
        self.pool.allocated.sub(size);
        self.pool.active.sub(size);
        self.pool.requested.sub(requested);
        if let Some(active) = &mut self.active {
            active.blocks.sub(class, 1);
            active.bytes[class].gauge.sub(size);
        }
    }

    /// Memory came from the device.
    pub fn reserve(&mut self, class: usize, size: u64) {
        self.reserved_bytes[class & 1].add(size);
        self.pool.reserved.add(size);
        self.device_allocs += 1;
    }

    /// Memory went back to the device.
    pub fn unreserve(&mut self, class: usize, size: u64) {
        self.reserved_bytes[class & 1].gauge.sub(size);
        self.pool.reserved.sub(size);
        self.device_frees += 1;
    }

    /// A block of at least max_split_size was handed out (`true`) or freed.
    pub fn oversize_block(&mut self, more: bool) {
        count(&mut self.oversize_allocations, more);
    }

    /// A segment of at least max_split_size came (`true`) or went.
    pub fn oversize_segment(&mut self, more: bool) {
        count(&mut self.oversize_segments, more);
    }

    /// Makes the present state the start of a history: peaks are what is there, sums are 0.
    pub fn start_here(&mut self) {
        for stat in [
            &mut self.allocation,
            &mut self.segment,
            &mut self.inactive_split,
            &mut self.inactive_split_bytes,
        ] {
            stat.start_here();
        }
        let by_class =
            [&mut self.allocated_bytes, &mut self.requested_bytes, &mut self.reserved_bytes];
        by_class.into_iter().flatten().for_each(Tally::start_here);
        if let Some(active) = &mut self.active {
            active.blocks.start_here();
            active.bytes.iter_mut().for_each(Tally::start_here);
        }
        self.oversize_allocations.start_here();
        self.oversize_segments.start_here();
        self.device_allocs = 0;
        self.device_frees = 0;
    }

    /// All values under PyTorch's names, sorted by name as `memory_stats()` returns them.
    pub fn list(&self, max_split_size: Option<u64>) -> Vec<(String, i64)> {
        let mut out = Vec::with_capacity(122);
        let same = Active { blocks: self.allocation, bytes: self.allocated_bytes };
        let active = self.active.unwrap_or(same);
        for (name, stat) in [
            ("active", &active.blocks),
            ("allocation", &self.allocation),
            ("inactive_split", &self.inactive_split),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("segment", &self.segment),
        ] {
            stat.list(name, &mut out);
        }
        for (name, by_class, gauge) in [
            ("active_bytes", &active.bytes, self.pool.active),
            ("allocated_bytes", &self.allocated_bytes, self.pool.allocated),
            ("requested_bytes", &self.requested_bytes, self.pool.requested),
            ("reserved_bytes", &self.reserved_bytes, self.pool.reserved),
        ] {
            list_by_class(name, by_class, gauge.peak, &mut out);
        }
        list_tally("oversize_allocations", &self.oversize_allocations, &mut out);
        list_tally("oversize_segments", &self.oversize_segments, &mut out);
        for (name, value) in [
            ("max_split_size", max_split_size.map_or(-1, |n| n as i64)),
            ("num_alloc_retries", self.pool.retries as i64),
            ("num_device_alloc", self.device_allocs as i64),
            ("num_device_free", self.device_frees as i64),
            ("num_ooms", self.pool.ooms as i64),
            ("num_sync_all_streams", self.syncs as i64),
        ] {
            out.push((name.into(), value));
        }
        out.sort();
        out
    }
}

fn count(tally: &mut Tally, more: bool) {
    if more {
        tally.add(1);
    } else {
        tally.gauge.sub(1);
    }
}
