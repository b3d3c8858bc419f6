//! A folder of tables to a set of runs.

use super::columns::Table;
use super::sums::Files;
use super::{DataError, FORMAT, Run, RunSet, distributions, lab};
use poolsim_core::event::Annotation;
use poolsim_core::stack::{Frame, StackId};
use poolsim_core::*;
use std::path::Path;

impl RunSet {
    /// Reads the runs of a folder. Tables other than the results may be missing: then that was not kept.
    ///
    /// # Errors
    /// Names the table, the column and what is wrong with it.
    pub fn read(folder: &Path) -> Result<RunSet, DataError> {
        let files = Files::open(folder)?;
        let path = folder.join("results.parquet");
        let results = files.read("results.parquet")?.ok_or_else(|| DataError::Table {
            path: path.clone(),
            what: "it is missing; write the runs again".into(),
        })?;
        let mut set = read_results(&Table::read(&path, results)?, &path)?;
        let optional = |name: &str| -> Result<Option<Table>, DataError> {
            let bytes = files.read(name)?;
            bytes.map(|bytes| Table::read(&folder.join(name), bytes)).transpose()
        };
        if let Some(table) = optional("series.parquet")? {
            read_series(&table, &mut set.runs)?;
        }
        if let Some(table) = optional("calls.parquet")? {
            read_calls(&table, &mut set.runs)?;
        }
        if let Some(table) = optional("latencies.parquet")? {
            distributions::read_latencies(&table, &mut set.runs)?;
        }
        if let Some(table) = optional("causes.parquet")? {
            lab::read_causes(&table, &mut set.runs)?;
        }
        if let Some(table) = optional("frontiers.parquet")? {
            lab::read_frontiers(&table, &mut set.runs)?;
        }
        if let Some(table) = optional("heaps.parquet")? {
            read_heaps(&table, &mut set.runs)?;
        }
        if let Some(table) = optional("stacks.parquet")? {
            read_stacks(&table, &mut set)?;
        }
        if let Some(table) = optional("annotations.parquet")? {
            let (starts, ends) = (table.numbers("start_ns")?, table.some_numbers("end_ns")?);
            let rows = table.texts("name")?.into_iter().zip(starts).zip(ends);
            set.annotations =
                rows.map(|((name, start), end)| Annotation { name, start, end }).collect();
        }
        Ok(set)
    }
}

fn read_results(table: &Table, path: &Path) -> Result<RunSet, DataError> {
    let wrong = |what: String| DataError::Table { path: path.into(), what };
    if let Some(format) = table.numbers("format")?.iter().find(|f| **f != u64::from(FORMAT)) {
        let what = format!(
            "written in format {format}, and this poolsim reads format {FORMAT}; use the poolsim that wrote it"
        );
        return Err(wrong(what));
    }
    let rows = table.texts("record")?.into_iter().zip(table.texts("label")?);
    let mut runs = Vec::new();
    for ((record, label), verdict) in rows.zip(table.texts("verdict")?) {
        let record = serde_json::from_str(&record)
            .map_err(|e| wrong(format!("the record of run {label:?} cannot be read: {e}")))?;
        runs.push(Run { label, verdict, record, ..Run::default() });
    }
    let first = |name: &str| Ok(table.texts(name)?.into_iter().next().unwrap_or_default());
    Ok(RunSet { machine: first("machine")?, command: first("command")?, runs, ..RunSet::default() })
}

fn read_series(table: &Table, runs: &mut [Run]) -> Result<(), DataError> {
    let of = table.runs(runs.len())?;
    let levels = table.numbers("level")?;
    let names = ["first_event", "last_event", "first_at_ns", "last_at_ns"];
    let [first_event, last_event, first_at, last_at] = each(names, |name| table.numbers(name))?;
    let quantities = |suffix: &str| -> Result<Vec<Levels>, DataError> {
        let names = ["requested", "allocated", "active", "reserved"];
        let [requested, allocated, active, reserved] =
            each(names, |name| table.numbers(&format!("{name}_{suffix}")))?;
        Ok((0..table.len())
            .map(|i| Levels {
                requested: requested[i],
                allocated: allocated[i],
                active: active[i],
                reserved: reserved[i],
            })
            .collect())
    };
    let (low, high, last) = (quantities("low")?, quantities("high")?, quantities("last")?);
    for i in (0..table.len()).filter(|&i| levels[i] == 0) {
        runs[of[i]].series.push(Point {
            first_event: first_event[i],
            first_at: first_at[i],
            last_event: last_event[i],
            last_at: last_at[i],
            last: last[i],
            low: low[i],
            high: high[i],
        });
    }
    Ok(())
}

fn read_calls(table: &Table, runs: &mut [Run]) -> Result<(), DataError> {
    let of = table.runs(runs.len())?;
    let ops =
        table.map("call", |text| DeviceOp::ALL.iter().copied().find(|op| op.name() == text))?;
    let names = ["last_event", "last_at_ns", "calls", "time_ns"];
    let [last_event, last_at, calls, time] = each(names, |name| table.numbers(name))?;
    for i in 0..table.len() {
        let points = &mut runs[of[i]].calls;
        if points.last().is_none_or(|point| point.last_event != last_event[i]) {
            points.push(CallsPoint {
                last_event: last_event[i],
                last_at: last_at[i],
                ..CallsPoint::default()
            });
        }
        let point = points.last_mut().expect("it was just made sure of");
        (point.calls[ops[i] as usize], point.time[ops[i] as usize]) = (calls[i], time[i]);
    }
    Ok(())
}

fn read_heaps(table: &Table, runs: &mut [Run]) -> Result<(), DataError> {
    let of = table.runs(runs.len())?;
    let moments = table.map("moment", |text| {
        [Moment::Regular, Moment::Peak, Moment::Refused].into_iter().find(|m| m.name() == text)
    })?;
    let states = table.map("state", |text| {
        let all = [BlockState::Allocated, BlockState::Pending, BlockState::Free];
        all.into_iter().find(|state| super::write::state_name(*state) == text)
    })?;
    let names = ["keyframe", "event", "at_ns", "range_address", "range_size", "stream", "pool"];
    let [number, event, at, range_address, range_size, stream, pool] =
        each(names, |name| table.numbers(name))?;
    let names = ["small", "expandable", "address", "size", "requested", "stack"];
    let [small, expandable, address, size, requested, stack] =
        each(names, |name| table.numbers(name))?;
    let names = ["slot", "born_event", "born_at_ns", "died_event", "died_at_ns"];
    let [slot, born_event, born_at, died_event, died_at] =
        each(names, |name| table.some_numbers(name))?;
    let mut previous = None;
    for i in 0..table.len() {
        let frames = &mut runs[of[i]].keyframes;
        if previous != Some((of[i], number[i])) {
            previous = Some((of[i], number[i]));
            frames.push(Keyframe {
                event: event[i],
                at: at[i],
                moment: moments[i],
                heap: HeapImage::default(),
                lives: Vec::new(),
            });
        }
        let frame = frames.last_mut().expect("it was just made sure of");
        let range = RangeView {
            addr: range_address[i],
            size: range_size[i],
            stream: StreamId(stream[i] as u16),
            pool: PoolId(pool[i] as u16),
            small: small[i] != 0,
            expandable: expandable[i] != 0,
            stack: StackId::NONE,
        };
        if frame.heap.ranges.last().is_none_or(|(last, _)| last.addr != range.addr) {
            frame.heap.range(&range);
        }
        frame.heap.block(&BlockView {
            addr: address[i],
            size: size[i],
            requested: requested[i],
            state: states[i],
            slot: slot[i].map(|slot| Slot(slot as u32)),
            stack: StackId(stack[i] as u32),
        });
        frame.lives.push(Life {
            born: born_event[i].zip(born_at[i]),
            died: died_event[i].zip(died_at[i]),
        });
    }
    Ok(())
}

fn read_stacks(table: &Table, set: &mut RunSet) -> Result<(), DataError> {
    let (stacks, lines) = (table.numbers("stack")?, table.numbers("line")?);
    let names = table.texts("name")?.into_iter().zip(table.texts("file")?);
    for ((stack, line), (name, file)) in stacks.into_iter().zip(lines).zip(names) {
        let frames = set.stacks.entry(StackId(stack as u32)).or_default();
        frames.push(Frame { name, file, line: line as u32 });
    }
    Ok(())
}

/// `read` of every name.
fn each<T, const N: usize>(
    names: [&str; N],
    read: impl Fn(&str) -> Result<Vec<T>, DataError>,
) -> Result<[Vec<T>; N], DataError> {
    let mut columns = Vec::with_capacity(N);
    for name in names {
        columns.push(read(name)?);
    }
    Ok(columns.try_into().unwrap_or_else(|_| unreachable!("one column was read for each name")))
}
