//! Recordings as PyTorch memory snapshots.

use super::pickler::{MemoId, Pickler};
use crate::import::torch::Settings;
use poolsim_core::event::Annotation;
use poolsim_core::heap::{BlockState, BlockView, RangeView};
use poolsim_core::recording::{Action, Entry, Recording};
use poolsim_core::stack::{StackId, StackTable};
use poolsim_core::units::{PoolId, StreamId};
use std::io::{self, Write};

/// Writes a recording as `torch.cuda.memory._dump_snapshot` would have: a pickle of protocol 4 that Python
/// loads and PyTorch's `_memory_viz` draws. Names, key order and nesting are those of PyTorch 2.11; entries
/// get a `pool_id`, as in 2.12, where the recording knows it. Times are whole microseconds.
///
/// # Errors
/// Only those of `out`.
pub fn write_torch_snapshot(out: &mut dyn Write, rec: &Recording) -> io::Result<()> {
    let mut writer = SnapshotWriter {
        pickle: Pickler::new(out)?,
        rec,
        frames: vec![None; rec.stacks.frames().len()],
        stacks: vec![None; rec.stacks.stack_count()],
    };
    writer.snapshot()?;
    writer.pickle.finish()
}

struct SnapshotWriter<'a, 'o> {
    pickle: Pickler<'o>,
    rec: &'a Recording,
    frames: Vec<Option<MemoId>>,
    stacks: Vec<Option<MemoId>>,
}

/// What a dict's values are written with.
type Shared<'s> = (&'s StackTable, &'s mut Vec<Option<MemoId>>, &'s mut Vec<Option<MemoId>>);

impl SnapshotWriter<'_, '_> {
    fn snapshot(&mut self) -> io::Result<()> {
        let SnapshotWriter { pickle, rec, frames, stacks } = self;
        let device = rec.header.device;
        pickle.dict(|p| {
            p.text("segments");
            p.list(&rec.heap.ranges, |p, (range, blocks)| {
                segment(p, rec, range, blocks, &mut (&rec.stacks, frames, stacks))
            })?;
            p.text("device_traces");
            p.list(0..=device, |p, index| {
                let own: &[Entry] = if index == device { &rec.entries } else { &[] };
                p.list(own.iter().enumerate(), |p, (n, e)| {
                    entry(p, rec, n, e, &mut (&rec.stacks, frames, stacks))
                })
                .map(drop)
            })?;
            if let Some(conf) = &rec.header.settings {
                p.text("allocator_settings");
                settings(p, rec, conf)?;
            }
            p.text("external_annotations");
            p.list(marks(&rec.annotations), |p, (span, end)| mark(p, rec, span, end))?;
            Ok(())
        })?;
        Ok(())
    }
}

fn segment(
    p: &mut Pickler<'_>,
    rec: &Recording,
    range: &RangeView,
    blocks: &[BlockView],
    shared: &mut Shared<'_>,
) -> io::Result<()> {
    let in_use = |b: &&BlockView| b.state != BlockState::Free;
    let allocated = blocks.iter().filter(|b| b.state == BlockState::Allocated);
    p.dict(|p| {
        for (key, value) in [
            ("device", u64::from(rec.header.device)),
            ("address", range.addr),
            ("total_size", range.size),
            ("allocated_size", allocated.map(|b| b.size).sum()),
            ("active_size", blocks.iter().filter(in_use).map(|b| b.size).sum()),
            ("requested_size", blocks.iter().filter(in_use).map(|b| b.requested).sum()),
        ] {
            p.text(key);
            p.uint(value);
        }
        p.text("stream");
        p.int(stream(rec, range.stream));
        p.text("segment_type");
        p.text(if range.small { "small" } else { "large" });
        p.text("segment_pool_id");
        p.pair(pool(rec, range.pool));
        p.text("is_expandable");
        p.bool(range.expandable);
        p.text("frames");
        stack(p, range.stack, shared)?;
        p.text("blocks");
        p.list(blocks, |p, b| block(p, b, shared))?;
        Ok(())
    })?;
    Ok(())
}

fn block(p: &mut Pickler<'_>, block: &BlockView, shared: &mut Shared<'_>) -> io::Result<()> {
    p.dict(|p| {
        for (key, value) in
            [("address", block.addr), ("size", block.size), ("requested_size", block.requested)]
        {
            p.text(key);
            p.uint(value);
        }
        p.text("state");
        p.text(match block.state {
            BlockState::Allocated => "active_allocated",
            BlockState::Pending => "active_pending_free",
            BlockState::Free => "inactive",
        });
        p.text("frames");
        stack(p, block.stack, shared)
    })?;
    Ok(())
}

fn entry(
    p: &mut Pickler<'_>,
    rec: &Recording,
    n: usize,
    entry: &Entry,
    shared: &mut Shared<'_>,
) -> io::Result<()> {
    p.dict(|p| {
        p.text("action");
        p.text(entry.action.name());
        p.text(if entry.action == Action::Oom { "device_free" } else { "addr" });
        p.uint(entry.addr);
        p.text("size");
        p.uint(entry.size);
        p.text("stream");
        p.int(stream(rec, entry.stream));
        if rec.header.knows.times {
            p.text("time_us");
            p.uint(unix_us(rec, entry.at));
        }
        p.text("compile_context");
        p.text("N/A");
        p.text("user_metadata");
        p.text("");
        if let Some(&id) = rec.entry_pools.get(n) {
            p.text("pool_id");
            p.pair(pool(rec, id));
        }
        // A recorder of stacks writes an empty list where it found none.
        if rec.header.knows.stacks {
            p.text("frames");
            stack(p, entry.stack, shared)?;
        }
        Ok(())
    })?;
    Ok(())
}

fn stack(p: &mut Pickler<'_>, id: StackId, shared: &mut Shared<'_>) -> io::Result<()> {
    let (table, frames, stacks) = shared;
    let numbers = table.frame_numbers(id);
    let known = stacks.get(id.0 as usize).copied().flatten();
    if let Some(memo) = known.filter(|_| !numbers.is_empty()) {
        p.get(memo);
        return Ok(());
    }
    let memo = p.list(numbers, |p, &number| {
        if let Some(memo) = frames[number as usize] {
            p.get(memo);
            return Ok(());
        }
        let frame = &table.frames()[number as usize];
        let memo = p.dict(|p| {
            p.text("name");
            p.text(&frame.name);
            p.text("filename");
            p.text(&frame.file);
            p.text("line");
            p.uint(u64::from(frame.line));
            Ok(())
        })?;
        frames[number as usize] = Some(memo);
        Ok(())
    })?;
    if let Some(slot) = stacks.get_mut(id.0 as usize) {
        *slot = Some(memo);
    }
    Ok(())
}

fn settings(p: &mut Pickler<'_>, rec: &Recording, conf: &str) -> io::Result<()> {
    let settings = Settings::of_conf(conf);
    let extra = |key: &str| rec.header.attributes.get(&format!("{}{key}", Settings::ATTRIBUTE));
    let known = [
        "release_lock_on_cudamalloc",
        "pinned_use_cuda_host_register",
        "graph_capture_record_stream_reuse",
    ];
    p.dict(|p| {
        p.text("PYTORCH_CUDA_ALLOC_CONF");
        p.text(conf);
        p.text("max_split_size");
        p.int(settings.max_split_size.unwrap_or(-1));
        p.text("garbage_collection_threshold");
        p.float(settings.gc_threshold.unwrap_or(0.0));
        p.text("expandable_segments");
        p.bool(settings.expandable.unwrap_or(false));
        p.text("pinned_num_register_threads");
        p.int(extra("pinned_num_register_threads").and_then(|t| t.parse().ok()).unwrap_or(1));
        for key in known {
            p.text(key);
            p.bool(extra(key).is_some());
        }
        for (name, text) in &rec.header.attributes {
            let Some(key) = name.strip_prefix(Settings::ATTRIBUTE) else { continue };
            if known.contains(&key) || key == "pinned_num_register_threads" {
                continue;
            }
            p.text(key);
            scalar(p, text);
        }
        p.text("roundup_power2_divisions");
        p.dict(|p| {
            for (n, divisions) in settings.roundup.unwrap_or_default().into_iter().enumerate() {
                p.text(&(1u64 << n).to_string());
                p.uint(divisions);
            }
            Ok(())
        })?;
        Ok(())
    })?;
    Ok(())
}

/// A setting that was read as text, as the kind of value that it was.
fn scalar(p: &mut Pickler<'_>, text: &str) {
    match (text, text.parse::<i64>(), text.parse::<f64>()) {
        ("true", ..) => p.bool(true),
        (_, Ok(n), _) => p.int(n),
        (_, _, Ok(f)) => p.float(f),
        _ => p.text(text),
    }
}

/// Starts and ends of spans in the order in which they happened: at one time ends come first, inner before
/// outer, but never before their own start.
fn marks(spans: &[Annotation]) -> Vec<(&Annotation, bool)> {
    let mut marks: Vec<_> = Vec::with_capacity(2 * spans.len());
    for (n, span) in spans.iter().enumerate() {
        marks.push(((span.start, 1, n, 0), (span, false)));
        match span.end {
            Some(end) if end > span.start => {
                marks.push(((end, 0, usize::MAX - n, 0), (span, true)));
            }
            Some(end) => marks.push(((end, 1, n, 1), (span, true))),
            None => {}
        }
    }
    marks.sort_by_key(|(key, _)| *key);
    marks.into_iter().map(|(_, mark)| mark).collect()
}

fn mark(p: &mut Pickler<'_>, rec: &Recording, span: &Annotation, end: bool) -> io::Result<()> {
    p.dict(|p| {
        p.text("stage");
        p.text(if end { "END" } else { "START" });
        p.text("name");
        p.text(&span.name);
        p.text("device");
        p.uint(u64::from(rec.header.device));
        p.text("time_us");
        let at = if end { span.end.unwrap_or(span.start) } else { span.start };
        p.uint(unix_us(rec, at));
        Ok(())
    })?;
    Ok(())
}

fn unix_us(rec: &Recording, at: u64) -> u64 {
    rec.header.start_unix_us.unwrap_or(0).saturating_add(at / 1000)
}

/// The raw handle of a stream, signed as PyTorch writes it.
fn stream(rec: &Recording, id: StreamId) -> i64 {
    rec.header.streams.get(id.index()).copied().unwrap_or(u64::from(id.0)) as i64
}

fn pool(rec: &Recording, id: PoolId) -> (u64, u64) {
    let unnamed = if id == PoolId::DEFAULT { (0, 0) } else { (0, u64::from(id.0)) };
    rec.header.pools.get(id.index()).map_or(unnamed, |p| p.id)
}
