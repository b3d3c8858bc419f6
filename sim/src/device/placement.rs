//! Where new ranges go: as a recording says, or as the driver was measured to choose.
//!
//! The driver model is a measurement of one driver (580.159.04 on an H200), not a rule; it decides ties between
//! equal free blocks in what-if runs and proves nothing. Rules: docs/decisions.md, "Where the driver puts memory".

use super::chunk::{Chunk, longest};
use super::slabs::{SLAB, SMALL, Slabs};
use super::space::Gaps;
use poolsim_core::units::MIB;
use poolsim_core::{Backing, Bytes, DevAddr, DriverAnswer, Range, Slot};
use std::collections::BTreeMap;

/// How a [`SimDevice`](super::SimDevice) places new ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// By the model of the driver.
    #[default]
    Driver,
    /// By the model, with something that it does not know for sure assumed otherwise. Runs that end differently
    /// under these and under [`Placement::Driver`] hang on a tie between equal free blocks.
    Variant(Variant),
    /// As a recorded driver answered, call by call. `reserve` and `populate` take one answer each, and fail where
    /// the recorded calls failed; the capacity is not looked at. From the first call that does not fit
    /// its answer on (see [`Divergence`]), the driver model places. A wait for fences takes the `Passed` answers that
    /// come next and lets those slots' fences pass first, in that order.
    Recorded(Vec<DriverAnswer>),
}

/// What a driver may do otherwise than its model says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Nothing exists before the program's first call.
    BareStart,
    /// New stretches of address space are taken at the lower end of the lowest gap, so later ones lie higher.
    Upwards,
}

impl Placement {
    /// Every variant of the driver model.
    pub const VARIANTS: [Placement; 2] =
        [Placement::Variant(Variant::BareStart), Placement::Variant(Variant::Upwards)];
}

/// The first call that the recorded driver's answers do not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Which call, counted from 0 among `reserve` and `populate`.
    pub call: usize,
    /// The event that made it, if the device keeps a log.
    pub event: u64,
    /// What was called for.
    pub asked: String,
    /// What the recording has there; `None` if it has no further answers.
    pub answer: Option<DriverAnswer>,
}

/// Room for `cuMemAddressReserve`: measured start, and an end far above any device's needs.
const RESERVE_START: DevAddr = 0x3_0200_0000;
const RESERVE_END: DevAddr = 0x7000_0000_0000;
/// 64 MiB at 1 TiB are always taken.
const RESERVE_HOLE: DevAddr = 1 << 40;
const RESERVE_HOLE_LEN: Bytes = 64 * MIB;

/// Where the newer of the two chunks lies that exist before a program's first `cudaMalloc`. The base differs from
/// process to process; only the order of addresses below it matters.
const NEWER_CHUNK: DevAddr = 0x7f40_0000_0000;
/// The older one lies this far above it.
const OLDER_ABOVE: Bytes = 96 * MIB;
/// Below the newer chunk this much is taken by host mappings.
const HOST_MAPPINGS: Bytes = 384 * MIB;
/// Chunks are multiples of this and aligned to it; so are reservations.
pub(super) const CHUNK: Bytes = 32 * MIB;

/// Who placed a range, and so where it goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// The recorded driver.
    Recorded,
    /// The model, in the chunk of this number.
    Whole(u64),
    /// The model, in the slab of this number.
    Small(u64),
    /// The model, among the reservations.
    Paged,
}

/// The measured model of the driver's address choice.
#[derive(Clone, Debug)]
pub(super) struct Driver {
    /// Oldest first.
    pub(super) chunks: Vec<Chunk>,
    /// The longest free stretch of each chunk, beside it: the search reads only these.
    pub(super) longest: Vec<Bytes>,
    next: u64,
    pub(super) whole: Gaps,
    paged: Gaps,
    pub(super) slabs: Slabs,
    upwards: bool,
}

impl Driver {
    /// The state in which nearly every recorded process began: two chunks with 24 and 2 MiB left.
    pub(super) fn new() -> Self {
        Driver::started_at(NEWER_CHUNK)
    }

    /// The same, with the newer chunk at `newer`.
    pub(super) fn started_at(newer: DevAddr) -> Self {
        let mut driver = Driver::bare(newer);
        let older = newer + OLDER_ABOVE;
        driver.push_chunk(older, CHUNK, vec![(older + 8 * MIB, 24 * MIB)]);
        driver.push_chunk(newer, CHUNK, vec![(newer + 30 * MIB, 2 * MIB)]);
        driver
    }

    /// No chunk yet; the first new one goes below where the newer one of a started process would lie.
    fn bare(newer: DevAddr) -> Self {
        let mut paged = Gaps::new(RESERVE_START, RESERVE_END);
        paged.carve(RESERVE_HOLE, RESERVE_HOLE_LEN);
        Driver {
            chunks: Vec::new(),
            longest: Vec::new(),
            next: 0,
            whole: Gaps::new(RESERVE_END, newer - HOST_MAPPINGS),
            paged,
            slabs: Slabs::default(),
            upwards: false,
        }
    }

    /// A driver that places beside ranges which are there already.
    pub(super) fn beside<'a>(taken: impl Iterator<Item = &'a Range>) -> Self {
        let mut driver = Driver::new();
        for range in taken {
            let start = range.addr - range.addr % CHUNK;
            let end = range.addr + range.size;
            let len = end.checked_next_multiple_of(CHUNK).unwrap_or(end) - start;
            driver.whole.carve(start, len);
            driver.paged.carve(start, len);
            // The two first chunks are given up where a recorded range may lie in them.
            let apart = |c: &Chunk| c.base + c.len <= start || start.saturating_add(len) <= c.base;
            for i in (0..driver.chunks.len()).rev().filter(|&i| i < 2) {
                if !apart(&driver.chunks[i]) {
                    driver.chunks.remove(i);
                    driver.longest.remove(i);
                }
            }
        }
        driver
    }

    pub(super) fn push_chunk(
        &mut self,
        base: DevAddr,
        len: Bytes,
        free: Vec<(DevAddr, Bytes)>,
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        self.longest.push(longest(&free));
        self.chunks.push(Chunk { number, base, len, free });
        number
    }

    /// `cudaMalloc`: the newest chunk that has room, its smallest sufficient stretch, at the stretch's start; else
    /// a new chunk at the upper end of the highest gap that is longer than it.
    pub(super) fn take_whole(&mut self, size: Bytes) -> Option<(DevAddr, u64)> {
        let size = size.checked_next_multiple_of(SLAB)?;
        if let Some(i) = self.longest.iter().rposition(|&room| room >= size) {
            let chunk = &mut self.chunks[i];
            let at = chunk.take_best(size);
            self.longest[i] = longest(&chunk.free);
            return Some((at, chunk.number));
        }
        let len = size.checked_next_multiple_of(CHUNK)?;
        let base = match self.upwards {
            true => self.whole.take_lowest(len, CHUNK)?,
            false => self.whole.take_highest_longer(len)?,
        };
        let mut free = Vec::new();
        if len > size {
            free.push((base + size, len - size));
        }
        Some((base, self.push_chunk(base, len, free)))
    }

    /// `cudaFree`: back to the chunk; a chunk without use goes back to the address space.
    pub(super) fn give_whole(&mut self, number: u64, addr: DevAddr, size: Bytes) {
        let size = size.next_multiple_of(SLAB);
        let i = self
            .chunks
            .binary_search_by_key(&number, |c| c.number)
            .expect("a chunk lives as long as a range in it");
        let chunk = &mut self.chunks[i];
        chunk.give(addr, size);
        self.longest[i] = longest(&chunk.free);
        if self.longest[i] == chunk.len {
            self.whole.give_back(chunk.base, chunk.len);
            self.chunks.remove(i);
            self.longest.remove(i);
        }
    }

    /// `cuMemAddressReserve`: the lowest gap from 0x302000000 up that is long enough, 32 MiB aligned.
    pub(super) fn take_paged(&mut self, size: Bytes) -> Option<DevAddr> {
        self.paged.take_lowest(size, CHUNK)
    }

    /// `cuMemAddressFree`.
    pub(super) fn give_paged(&mut self, addr: DevAddr, size: Bytes) {
        self.paged.give_back(addr, size);
    }
}

/// Why a placer gave no range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The recorded call failed.
    Recorded,
    /// The address space is used up.
    NoAddresses,
}

/// Places ranges, by whichever [`Placement`] is in force.
#[derive(Clone, Debug)]
pub(super) struct Placer {
    driver: Driver,
    script: Option<Script>,
    divergence: Option<Divergence>,
}

#[derive(Clone, Debug)]
struct Script {
    answers: Vec<DriverAnswer>,
    next: usize,
}

impl Placer {
    pub(super) fn new(placement: Placement) -> Self {
        let (driver, script) = match placement {
            Placement::Driver => (Driver::new(), None),
            Placement::Variant(Variant::BareStart) => (Driver::bare(NEWER_CHUNK), None),
            Placement::Variant(Variant::Upwards) => {
                (Driver { upwards: true, ..Driver::new() }, None)
            }
            Placement::Recorded(answers) => (Driver::new(), Some(Script { answers, next: 0 })),
        };
        Placer { driver, script, divergence: None }
    }

    pub(super) fn divergence(&self) -> Option<&Divergence> {
        self.divergence.as_ref()
    }

    /// Places a range. `taken` are the ranges that exist, by address.
    pub(super) fn reserve(
        &mut self,
        size: Bytes,
        backing: Backing,
        event: u64,
        taken: &BTreeMap<DevAddr, Range>,
    ) -> Result<(DevAddr, Placed), Refusal> {
        if let Some(script) = &mut self.script {
            let answer = script.answers.get(script.next).copied();
            script.next += 1;
            match answer {
                Some(DriverAnswer::OutOfMemory) => return Err(Refusal::Recorded),
                Some(DriverAnswer::Range { addr, size: s })
                    if (s == 0 || s == size) && apart(taken, addr, size) =>
                {
                    return Ok((addr, Placed::Recorded));
                }
                _ => self.diverge(
                    format!("a {backing:?} range of {size} bytes"),
                    answer,
                    event,
                    taken,
                ),
            }
        }
        match backing {
            Backing::Whole if size < SMALL => {
                let (addr, slab) = self.driver.take_small(size).ok_or(Refusal::NoAddresses)?;
                Ok((addr, Placed::Small(slab)))
            }
            Backing::Whole => {
                let (addr, chunk) = self.driver.take_whole(size).ok_or(Refusal::NoAddresses)?;
                Ok((addr, Placed::Whole(chunk)))
            }
            Backing::Paged => {
                let addr = self.driver.take_paged(size).ok_or(Refusal::NoAddresses)?;
                Ok((addr, Placed::Paged))
            }
        }
    }

    /// Whether the recorded driver let this `populate` succeed; true if nothing recorded says otherwise.
    pub(super) fn populate(
        &mut self,
        len: Bytes,
        event: u64,
        taken: &BTreeMap<DevAddr, Range>,
    ) -> bool {
        let Some(script) = &mut self.script else { return true };
        let answer = script.answers.get(script.next).copied();
        script.next += 1;
        match answer {
            Some(DriverAnswer::Populated) => true,
            Some(DriverAnswer::OutOfMemory) => false,
            _ => {
                self.diverge(format!("pages for {len} bytes"), answer, event, taken);
                true
            }
        }
    }

    /// The slots whose fences a host wait lets pass before all others, in order.
    pub(super) fn passed_first(&mut self) -> Vec<Slot> {
        let Some(script) = &mut self.script else { return Vec::new() };
        let mut first = Vec::new();
        while let Some(&DriverAnswer::Passed(slot)) = script.answers.get(script.next) {
            script.next += 1;
            first.push(slot);
        }
        first
    }

    pub(super) fn release(&mut self, addr: DevAddr, size: Bytes, placed: Placed) {
        match placed {
            Placed::Recorded => {}
            Placed::Whole(chunk) => self.driver.give_whole(chunk, addr, size),
            Placed::Small(slab) => self.driver.give_small(slab, addr, size),
            Placed::Paged => self.driver.give_paged(addr, size),
        }
    }

    fn diverge(
        &mut self,
        asked: String,
        answer: Option<DriverAnswer>,
        event: u64,
        taken: &BTreeMap<DevAddr, Range>,
    ) {
        let call = self.script.take().map_or(0, |s| s.next - 1);
        self.divergence = Some(Divergence { call, event, asked, answer });
        self.driver = Driver::beside(taken.values());
    }
}

/// Whether a range would lie beside all others and inside the address space.
fn apart(taken: &BTreeMap<DevAddr, Range>, addr: DevAddr, size: Bytes) -> bool {
    let Some(end) = addr.checked_add(size) else { return false };
    taken.range(..end).next_back().is_none_or(|(_, r)| r.addr + r.size <= addr)
}
