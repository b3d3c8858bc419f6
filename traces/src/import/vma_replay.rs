//! Recordings of the Vulkan Memory Allocator, as its VmaReplay plays them.

use super::gather::{At, Gather};
use super::lines::{Lines, illegal, malformed, number, shown};
use super::{Imported, Importer, Input};
use crate::open::OpenOptions;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::event::Knows;
use poolsim_core::{Nanos, Trace, TraceError, TraceHeader};
use std::collections::{BTreeMap, HashSet};
use std::io::BufRead;

/// The row of [`super::IMPORTERS`].
pub static IMPORTER: Importer = Importer {
    name: "vma-replay",
    summary: "Vulkan Memory Allocator recording (CSV), for VmaReplay",
    extensions: &["csv"],
    sniff: |head| head.starts_with(FIRST.as_bytes()),
    read: |input: Input, _: &OpenOptions| read(input.reader).map(Imported::of_trace),
};

/// The first line of a recording.
pub const FIRST: &str = "Vulkan Memory Allocator,Calls recording";

/// `VMA_MEMORY_USAGE_CPU_ONLY` and `…_GPU_TO_CPU`: memory of the host.
const HOST_USAGES: [&str; 2] = ["2", "4"];

/// A call that makes or ends an allocation: its name, columns (from the function's own first on) of size, usage and
/// allocation.
struct Call {
    name: &'static str,
    size: Option<usize>,
    usage: usize,
    allocation: usize,
}

const MAKE: &[Call] = &[
    Call { name: "vmaCreateBuffer", size: Some(1), usage: 5, allocation: 10 },
    // An image's size follows from the driver, which the recording does not ask.
    Call { name: "vmaCreateImage", size: None, usage: 14, allocation: 19 },
    Call { name: "vmaAllocateMemory", size: Some(0), usage: 4, allocation: 9 },
    Call { name: "vmaAllocateMemoryForBuffer", size: Some(0), usage: 6, allocation: 11 },
    Call { name: "vmaAllocateMemoryForImage", size: Some(0), usage: 6, allocation: 11 },
];

const END: &[&str] = &["vmaDestroyBuffer", "vmaDestroyImage", "vmaFreeMemory"];

#[derive(Default)]
struct Reader {
    gather: Gather,
    /// Allocations that are live and left out.
    left_out: HashSet<u64>,
    images: u64,
    host: u64,
    latest: Nanos,
    late: u64,
    header: TraceHeader,
    heaps: BTreeMap<u64, (u64, bool)>,
}

/// Reads a recording in one forward pass.
///
/// # Errors
/// The line and what was wrong with it; a version that is not known.
pub fn read(reader: impl BufRead) -> Result<Trace, TraceError> {
    let mut lines = Lines::new(reader);
    let mut state = Reader::default();
    let mut in_config = false;
    while let Some((n, text)) = lines.next()? {
        match (n, text) {
            (1, _) | (_, "") => {}
            (2, version) if !version.starts_with("1,") => {
                let what = format!("format version {}, and 1.x is what is known", shown(version));
                return Err(malformed(n, what));
            }
            (2, _) => {}
            (_, "Config,Begin") => in_config = true,
            (_, "Config,End") => in_config = false,
            (_, line) if in_config => state.config(line),
            (_, line) => state.call(n, line)?,
        }
    }
    state.header.notes.extend(lines.note());
    state.finish()
}

impl Reader {
    fn config(&mut self, line: &str) {
        let fields: Vec<&str> = line.splitn(5, ',').collect();
        match fields.as_slice() {
            ["PhysicalDevice", "deviceName", name @ ..] => {
                self.header.device_name = Some(name.join(","));
            }
            ["PhysicalDeviceMemory", "Heap", index, "size", size] => {
                let (Some(index), Some(size)) = (number(index), number(size)) else { return };
                self.heaps.entry(index).or_default().0 = size;
            }
            ["PhysicalDeviceMemory", "Heap", index, "flags", flags] => {
                let (Some(index), Some(flags)) = (number(index), number(flags)) else { return };
                self.heaps.entry(index).or_default().1 = flags & 1 == 1;
            }
            _ => {}
        }
    }

    fn call(&mut self, n: u64, line: &str) -> Result<(), TraceError> {
        let mut fields = line.split(',').map(str::trim);
        let mut head = || fields.next().unwrap_or_default();
        let (thread, time, _frame, name) = (head(), head(), head(), head());
        if number(thread).is_none() {
            return Err(malformed(
                n,
                format!("the thread is `{}`, and should be a number", shown(thread)),
            ));
        }
        let at = seconds(time).ok_or_else(|| {
            malformed(n, format!("the time is `{}`, and should be seconds as 0.125", shown(time)))
        })?;
        self.late += u64::from(at < self.latest);
        self.latest = self.latest.max(at);
        let at = self.latest;
        let args: Vec<&str> = fields.collect();
        let arg = |column: usize| args.get(column).copied().unwrap_or_default();
        let pointer = |column: usize| {
            u64::from_str_radix(arg(column), 16).map_err(|_| {
                let what = format!(
                    "column {} of {name} is `{}`, and should be an allocation in hexadecimal",
                    column + 5,
                    shown(arg(column))
                );
                malformed(n, what)
            })
        };
        if let Some(call) = MAKE.iter().find(|call| call.name == name) {
            let allocation = pointer(call.allocation)?;
            let Some(size) = call.size.filter(|_| !HOST_USAGES.contains(&arg(call.usage))) else {
                let count = if call.size.is_none() { &mut self.images } else { &mut self.host };
                *count += 1;
                self.left_out.insert(allocation);
                return Ok(());
            };
            let size = number(arg(size)).ok_or_else(|| {
                malformed(n, format!("the size is `{}`, and should be a number", shown(arg(size))))
            })?;
            let taken = match allocation {
                0 => self.gather.refused(at, size, 0),
                _ => self.gather.alloc(At::Line(n), at, allocation, size, 0),
            };
            taken.map_err(|what| illegal(n, what))
        } else if END.contains(&name) {
            let allocation = pointer(0)?;
            if allocation == 0 || self.left_out.remove(&allocation) {
                return Ok(());
            }
            let known = self.gather.free(At::Line(n), at, allocation, None, None);
            match known.map_err(|what| illegal(n, what))? {
                true => Ok(()),
                false => {
                    Err(illegal(n, format!("{allocation:#x} is freed, but was never allocated")))
                }
            }
        } else {
            Ok(())
        }
    }

    fn finish(self) -> Result<Trace, TraceError> {
        let Reader { gather, images, host, late, mut header, heaps, .. } = self;
        if gather.count() == 0 {
            let what = "is a recording of the Vulkan Memory Allocator in which no buffer or memory of the device is \
                        allocated, so there is nothing to replay";
            return Err(TraceError::new(TraceErrorKind::NoEvents, Place::Whole, what));
        }
        header.source = "vma-replay".into();
        header.knows = Knows {
            streams: false,
            completions: false,
            order: late == 0,
            pools: false,
            ..Knows::default()
        };
        header.device_memory =
            heaps.values().filter(|(_, local)| *local).map(|(size, _)| *size).max();
        for (count, what) in [
            (images, "images are left out: the recording does not say how large they are"),
            (host, "allocations of host memory are left out"),
            (
                late,
                "lines have a time before that of the line above them; the order of the lines was kept",
            ),
        ] {
            if count > 0 {
                header.notes.push(format!("{count} {what}"));
            }
        }
        gather
            .finish(header)
            .map_err(|what| TraceError::new(TraceErrorKind::Illegal, Place::Whole, what))
    }
}

/// Seconds with a fraction, exactly.
fn seconds(text: &str) -> Option<Nanos> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 9 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let nanos = format!("{fraction:0<9}").parse::<u64>().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
}
