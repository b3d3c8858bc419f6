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
}

/// One statistic: small, large, and the peak of both together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stat {
    class: [Tally; 2],
    peak: u64,
}

impl Stat {
    /// Counts an increase in a class (0 small, 1 large).
    #[inline]
    pub fn add(&mut self, class: usize, n: u64) {
        self.class[class & 1].add(n);
        self.peak = self.peak.max(self.class[0].gauge.current + self.class[1].gauge.current);
    }

    /// Counts a decrease in a class.
    #[inline]
    pub fn sub(&mut self, class: usize, n: u64) {
        self.class[class & 1].gauge.sub(n);
    }

    /// Applies a net change as one increase or one decrease; that keeps `allocated` and `freed` as PyTorch has them.
    #[inline]
    pub fn net(&mut self, class: usize, n: i64) {
        match n {
            0 => {}
            1.. => self.add(class, n.unsigned_abs()),
            _ => self.sub(class, n.unsigned_abs()),
        }
    }

    /// Sets what was there before the first event of a history that starts late.
    fn start_here(&mut self) {
        for tally in &mut self.class {
            let current = tally.gauge.current;
            *tally =
                Tally { gauge: Gauge { current, peak: current }, allocated: 0, start: current };
        }
        self.peak = self.class[0].gauge.current + self.class[1].gauge.current;
    }

    fn list(&self, name: &str, out: &mut Vec<(String, i64)>) {
        let [small, large] = &self.class;
        let all = Tally {
            gauge: Gauge { current: small.gauge.current + large.gauge.current, peak: self.peak },
            allocated: small.allocated + large.allocated,
            start: small.start + large.start,
        };
        for (part, tally) in [("all", &all), ("large_pool", large), ("small_pool", small)] {
            list_tally(&format!("{name}.{part}"), tally, out);
        }
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

/// Everything that `memory_stats()` reports.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// The four sums that every policy has, over both classes.
    pub pool: PoolStats,
    /// Blocks that the program holds.
    pub allocation: Stat,
    /// Their bytes.
    pub allocated_bytes: Stat,
    /// Bytes asked for.
    pub requested_bytes: Stat,
    /// Blocks held or pending.
    pub active: Stat,
    /// Their bytes.
    pub active_bytes: Stat,
    /// Segments from cudaMalloc; mapped pages do not count.
    pub segment: Stat,
    /// Bytes held from the device.
    pub reserved_bytes: Stat,
    /// Free blocks of split segments, expandable ones excepted.
    pub inactive_split: Stat,
    /// Their bytes.
    pub inactive_split_bytes: Stat,
    oversize_allocations: Tally,
    oversize_segments: Tally,
    /// Successful cudaMalloc calls and maps.
    pub device_allocs: u64,
    /// cudaFree calls and effective unmaps.
    pub device_frees: u64,
    /// Waits for all fences.
    pub syncs: u64,
}

impl Stats {
    /// The program got a block.
    #[inline]
    pub fn allocate(&mut self, class: usize, size: u64, requested: u64) {
        self.allocation.add(class, 1);
        self.allocated_bytes.add(class, size);
        self.active.add(class, 1);
        self.active_bytes.add(class, size);
        self.requested_bytes.add(class, requested);
        self.pool.allocated.add(size);
        self.pool.active.add(size);
        self.pool.requested.add(requested);
    }

    /// The program asked to free a block.
    #[inline]
    pub fn free(&mut self, class: usize, size: u64) {
        self.allocation.sub(class, 1);
        self.allocated_bytes.sub(class, size);
        self.pool.allocated.sub(size);
    }

    /// A freed block may be used again.
    #[inline]
    pub fn complete(&mut self, class: usize, size: u64, requested: u64) {
        self.active.sub(class, 1);
        self.active_bytes.sub(class, size);
        self.requested_bytes.sub(class, requested);
        self.pool.active.sub(size);
        self.pool.requested.sub(requested);
    }

    /// Memory came from the device.
    pub fn reserve(&mut self, class: usize, size: u64) {
        self.reserved_bytes.add(class, size);
        self.pool.reserved.add(size);
        self.device_allocs += 1;
    }

    /// Memory went back to the device.
    pub fn unreserve(&mut self, class: usize, size: u64) {
        self.reserved_bytes.sub(class, size);
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
            &mut self.allocated_bytes,
            &mut self.requested_bytes,
            &mut self.active,
            &mut self.active_bytes,
            &mut self.segment,
            &mut self.reserved_bytes,
            &mut self.inactive_split,
            &mut self.inactive_split_bytes,
        ] {
            stat.start_here();
        }
        for tally in [&mut self.oversize_allocations, &mut self.oversize_segments] {
            let current = tally.gauge.current;
            *tally =
                Tally { gauge: Gauge { current, peak: current }, allocated: 0, start: current };
        }
        self.device_allocs = 0;
        self.device_frees = 0;
    }

    /// All values under PyTorch's names, sorted by name as `memory_stats()` returns them.
    pub fn list(&self, max_split_size: Option<u64>) -> Vec<(String, i64)> {
        let mut out = Vec::with_capacity(122);
        for (name, stat) in [
            ("active", &self.active),
            ("active_bytes", &self.active_bytes),
            ("allocated_bytes", &self.allocated_bytes),
            ("allocation", &self.allocation),
            ("inactive_split", &self.inactive_split),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("segment", &self.segment),
        ] {
            stat.list(name, &mut out);
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
