//! JAX's device memory profile: a pprof of what is live at one moment.

use super::pprof::{Profile, Sample};
use super::{Imported, Importer, Input, read_error};
use crate::open::{DeviceSummary, OpenOptions, Source};
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::event::Knows;
use poolsim_core::heap::{BlockState, BlockView, HeapImage, RangeView};
use poolsim_core::stack::{Frame, StackId, StackTable};
use poolsim_core::{PoolId, Recording, StreamId, TraceError, TraceHeader};
use std::collections::BTreeMap;
use std::io::Read;

/// The row of [`super::IMPORTERS`].
pub static IMPORTER: Importer = Importer {
    name: "jax-pprof",
    summary: "JAX device memory profile (pprof), written by jax.profiler.save_device_memory_profile; a state only",
    extensions: &["prof", "pb"],
    sniff,
    read: |input: Input, options| read(input.reader, options),
};

/// Bytes of a profile; the largest seen has some megabytes.
const MAX: u64 = 1 << 30;

/// Buffers that a profile may claim.
const MAX_BUFFERS: u64 = 1 << 22;

/// Where made-up addresses start.
const BASE: u64 = 1 << 32;

/// Starts with two `sample_type`s, each of two numbers of strings.
fn sniff(head: &[u8]) -> bool {
    let value_type = |bytes: &[u8]| match bytes {
        [0x0a, length @ 2..=6, 0x08, rest @ ..] => rest.len() >= usize::from(*length) - 1,
        _ => false,
    };
    value_type(head) && head.get(2 + usize::from(head[1])..).is_some_and(value_type)
}

/// Reads a profile. The result is a state without a history, and addresses are made up.
///
/// # Errors
/// A damaged profile, with the byte offset; a profile of something else.
pub fn read(reader: impl Read, options: &OpenOptions) -> Result<Imported, TraceError> {
    let mut bytes = Vec::new();
    reader.take(MAX).read_to_end(&mut bytes).map_err(|e| read_error(&e, bytes.len() as u64))?;
    if bytes.len() as u64 == MAX {
        let what = format!("the profile is longer than {MAX} bytes, which no memory profile is");
        return Err(TraceError::new(TraceErrorKind::Refused, Place::Whole, what));
    }
    let profile = Profile::parse(&bytes)?;
    let (count, space) = columns(&profile)?;
    let mut devices: BTreeMap<u32, Vec<&Sample>> = BTreeMap::new();
    for sample in &profile.samples {
        let device = device(sample.label("device", &profile).unwrap_or_default());
        devices.entry(device).or_default().push(sample);
    }
    let size =
        |samples: &[&Sample]| samples.iter().map(|s| u128::from(s.value(space))).sum::<u128>();
    let chosen = match options.device {
        Some(device) => device,
        None => devices.iter().rev().max_by_key(|(_, s)| size(s)).map_or(0, |(device, _)| *device),
    };
    let samples = devices.get(&chosen).cloned().unwrap_or_default();
    let recording = state(&profile, &samples, chosen, count, space)?;
    let summaries = devices.keys().map(|&index| DeviceSummary { index, entries: 0, segments: 1 });
    Ok(Imported { devices: summaries.collect(), source: Source::Recording(Box::new(recording)) })
}

/// Which values of a sample are the number of allocations and their bytes.
fn columns(profile: &Profile) -> Result<(usize, usize), TraceError> {
    let kinds: Vec<&str> = profile.sample_types.iter().map(|&kind| profile.text(kind)).collect();
    let column = |name: &str| kinds.iter().position(|kind| *kind == name);
    if let (Some(count), Some(space)) = (column("allocations"), column("space")) {
        return Ok((count, space));
    }
    let kinds: Vec<String> =
        kinds.iter().map(|kind| format!("`{}`", super::lines::shown(kind))).collect();
    let what = format!(
        "is a pprof profile of {}, not of device memory (`allocations`, `space`); write one with \
         jax.profiler.save_device_memory_profile(FILE)",
        kinds.join(", ")
    );
    Err(TraceError::new(TraceErrorKind::NoEvents, Place::Whole, what))
}

/// The number at the end of a device's name (`gpu:1`), 0 without one.
fn device(name: &str) -> u32 {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name[name.len() - digits..].parse().unwrap_or(0)
}

fn state(
    profile: &Profile,
    samples: &[&Sample],
    device: u32,
    count: usize,
    space: usize,
) -> Result<Recording, TraceError> {
    let buffers: u128 = samples.iter().map(|s| u128::from(s.value(count).max(1))).sum();
    let illegal = |what: String| TraceError::new(TraceErrorKind::Illegal, Place::Whole, what);
    if buffers > u128::from(MAX_BUFFERS) {
        return Err(illegal(format!("the profile claims {buffers} buffers; it is damaged")));
    }
    let mut stacks = StackTable::default();
    let mut blocks = Vec::new();
    let mut addr = BASE;
    let mut executables = 0u64;
    for sample in samples {
        let (bytes, n) = (sample.value(space), sample.value(count).max(1));
        if bytes == 0 {
            continue;
        }
        let stack = stack(profile, sample, &mut stacks);
        executables += u64::from(sample.label("kind", profile) == Some("executable"));
        // Equal parts; the last one takes what is over.
        for part in 0..n.min(bytes) {
            let n = n.min(bytes);
            let size = bytes / n + if part == n - 1 { bytes % n } else { 0 };
            let state = BlockState::Allocated;
            blocks.push(BlockView { addr, size, requested: size, state, slot: None, stack });
            addr = addr
                .checked_add(size)
                .ok_or_else(|| illegal("the profile claims more than 2^64 bytes".into()))?;
        }
    }
    let range = RangeView {
        addr: BASE,
        size: addr - BASE,
        stream: StreamId(0),
        pool: PoolId::DEFAULT,
        small: false,
        expandable: false,
        stack: StackId::NONE,
    };
    let mut header = header(device);
    if executables > 0 {
        header.notes.push(format!("{executables} of the sites are code of compiled programs"));
    }
    header.knows.stacks = !stacks.is_empty();
    let ranges = if blocks.is_empty() { Vec::new() } else { vec![(range, blocks)] };
    Ok(Recording { header, heap: HeapImage { ranges }, stacks, ..Recording::default() })
}

fn header(device: u32) -> TraceHeader {
    TraceHeader {
        source: "jax-device-memory".into(),
        device,
        streams: vec![0],
        pools: vec![Default::default()],
        knows: Knows {
            streams: false,
            completions: false,
            order: false,
            identity: false,
            times: false,
            pools: false,
            stacks: true,
            from_start: false,
        },
        notes: vec![
            "the profile is a state: what is live at one moment, by the place that made it, without addresses; those \
             shown are made up, one buffer after the other"
                .into(),
        ],
        ..TraceHeader::default()
    }
}

fn stack(profile: &Profile, sample: &Sample, stacks: &mut StackTable) -> StackId {
    let mut numbers = Vec::new();
    for location in &sample.locations {
        for &(function, line) in profile.lines(*location) {
            let (name, file) = profile.function(function);
            let line = u32::try_from(line).unwrap_or(0);
            numbers.push(stacks.intern_frame(Frame { name: name.into(), file: file.into(), line }));
        }
    }
    stacks.intern_stack(&numbers)
}
