//! A set of runs to a folder of tables.

use super::columns::{bytes, numbers, some_numbers, texts};
use super::sums::{SUMS, Sums};
use super::{DataError, FORMAT, Run, RunSet, distributions, lab};
use polars_core::prelude::Column;
use poolsim_core::metric::{METRICS, Metric, Unit};
use poolsim_core::{BlockView, DeviceOp, Keyframe, Levels, Life, Point, RangeView, RunRecord};
use std::path::Path;

/// Every file of a run's folder.
pub(super) const TABLES: &[&str] = &[
    SUMS,
    "annotations.parquet",
    "calls.parquet",
    "causes.parquet",
    "decisions.parquet",
    "frontiers.parquet",
    "heaps.parquet",
    "latencies.parquet",
    "results.parquet",
    "series.parquet",
    "stacks.parquet",
];

/// Points of `series.parquet`'s finer level that make one of the next.
const LEVEL_STEP: usize = 16;

/// Levels of `series.parquet`.
const LEVELS: u64 = 3;

impl RunSet {
    /// Writes every table but `decisions.parquet`. The checksums come last: a folder without them holds no finished runs.
    ///
    /// # Errors
    /// As [`RunSet::check_target`], and what the file system says.
    pub fn write(&self, folder: &Path) -> Result<(), DataError> {
        RunSet::check_target(folder)?;
        std::fs::create_dir_all(folder)
            .map_err(|source| DataError::Io { path: folder.into(), source })?;
        let mut sums = Sums::start(folder)?;
        for (name, columns) in [
            ("series.parquet", self.series()),
            ("calls.parquet", self.calls()),
            ("latencies.parquet", distributions::latencies(&self.runs)),
            ("causes.parquet", lab::causes(&self.runs)),
            ("frontiers.parquet", lab::frontiers(&self.runs)),
            ("heaps.parquet", self.heaps()),
            ("stacks.parquet", self.stacks()),
            ("annotations.parquet", self.annotations()),
            ("results.parquet", self.results()),
        ] {
            sums.write(name, &bytes(&folder.join(name), columns)?)?;
        }
        sums.finish()
    }

    /// `results.parquet` as bytes, for a file at `path`.
    pub(crate) fn results_bytes(&self, path: &Path) -> Result<Vec<u8>, DataError> {
        bytes(path, self.results())
    }

    /// One row per run.
    fn results(&self) -> Vec<Column> {
        let runs = &self.runs;
        let text = |name: &str, get: &dyn Fn(&Run) -> String| {
            let values: Vec<String> = runs.iter().map(get).collect();
            texts(name, values.iter().map(String::as_str))
        };
        let mut columns = vec![
            numbers("run", (0..runs.len() as u64).collect()),
            numbers("format", vec![FORMAT.into(); runs.len()]),
            text("label", &|run| run.label.clone()),
            text("policy", &|run| run.record.provenance.policy.clone()),
            text("verdict", &|run| run.verdict.clone()),
            text("target", &|run| run.record.provenance.target.clone()),
            text("trace", &|run| run.record.provenance.trace.clone()),
            text("trace_digest", &|run| run.record.provenance.trace_digest.clone()),
            text("machine", &|_| self.machine.clone()),
            text("command", &|_| self.command.clone()),
        ];
        columns.extend(metrics(&runs.iter().map(|run| Some(&run.record)).collect::<Vec<_>>()));
        let record =
            |run: &Run| serde_json::to_string(&run.record).expect("a record is plain data");
        columns.push(text("record", &record));
        columns
    }

    fn series(&self) -> Vec<Column> {
        let mut rows: Vec<(u64, u64, Point)> = Vec::new();
        for (number, run) in (0..).zip(&self.runs) {
            let mut points = run.series.clone();
            for level in 0..LEVELS {
                rows.extend(points.iter().map(|point| (number, level, *point)));
                points = coarser(&points, LEVEL_STEP);
            }
        }
        let column = |name: &str, get: &dyn Fn(&Point) -> u64| {
            numbers(name, rows.iter().map(|(_, _, point)| get(point)).collect())
        };
        let mut columns = vec![
            numbers("run", rows.iter().map(|row| row.0).collect()),
            numbers("level", rows.iter().map(|row| row.1).collect()),
            column("first_event", &|p| p.first_event),
            column("last_event", &|p| p.last_event),
            column("first_at_ns", &|p| p.first_at),
            column("last_at_ns", &|p| p.last_at),
        ];
        for (name, get) in QUANTITIES {
            columns.push(column(&format!("{name}_low"), &|p| get(&p.low)));
            columns.push(column(&format!("{name}_high"), &|p| get(&p.high)));
            columns.push(column(&format!("{name}_last"), &|p| get(&p.last)));
        }
        columns
    }

    fn calls(&self) -> Vec<Column> {
        let mut rows = Vec::new();
        for (number, run) in (0..).zip(&self.runs) {
            for point in &run.calls {
                for &op in DeviceOp::ALL.iter().filter(|&&op| point.calls[op as usize] > 0) {
                    rows.push((number, point, op));
                }
            }
        }
        vec![
            numbers("run", rows.iter().map(|(run, _, _)| *run).collect()),
            numbers("last_event", rows.iter().map(|(_, p, _)| p.last_event).collect()),
            numbers("last_at_ns", rows.iter().map(|(_, p, _)| p.last_at).collect()),
            texts("call", rows.iter().map(|(_, _, op)| op.name())),
            numbers("calls", rows.iter().map(|(_, p, op)| p.calls[*op as usize]).collect()),
            numbers("time_ns", rows.iter().map(|(_, p, op)| p.time[*op as usize]).collect()),
        ]
    }

    fn heaps(&self) -> Vec<Column> {
        let mut rows: Vec<HeapRow<'_>> = Vec::new();
        for (run, of) in (0..).zip(&self.runs) {
            for (number, frame) in (0..).zip(&of.keyframes) {
                let mut lives = frame.lives.iter();
                for (range, blocks) in &frame.heap.ranges {
                    for block in blocks {
                        let life = lives.next().copied().unwrap_or_default();
                        rows.push(HeapRow { run, number, frame, range, block, life });
                    }
                }
            }
        }
        let column = |name: &str, get: &dyn Fn(&HeapRow<'_>) -> u64| {
            numbers(name, rows.iter().map(get).collect())
        };
        let some = |name: &str, get: &dyn Fn(&HeapRow<'_>) -> Option<u64>| {
            some_numbers(name, rows.iter().map(get).collect())
        };
        vec![
            column("run", &|r| r.run),
            column("keyframe", &|r| r.number),
            column("event", &|r| r.frame.event),
            column("at_ns", &|r| r.frame.at),
            texts("moment", rows.iter().map(|r| r.frame.moment.name())),
            column("range_address", &|r| r.range.addr),
            column("range_size", &|r| r.range.size),
            column("stream", &|r| r.range.stream.0.into()),
            column("pool", &|r| r.range.pool.0.into()),
            column("small", &|r| r.range.small.into()),
            column("expandable", &|r| r.range.expandable.into()),
            column("address", &|r| r.block.addr),
            column("size", &|r| r.block.size),
            column("requested", &|r| r.block.requested),
            texts("state", rows.iter().map(|r| state_name(r.block.state))),
            some("slot", &|r| r.block.slot.map(|slot| slot.0.into())),
            column("stack", &|r| r.block.stack.0.into()),
            some("born_event", &|r| r.life.born.map(|(event, _)| event)),
            some("born_at_ns", &|r| r.life.born.map(|(_, at)| at)),
            some("died_event", &|r| r.life.died.map(|(event, _)| event)),
            some("died_at_ns", &|r| r.life.died.map(|(_, at)| at)),
        ]
    }

    fn stacks(&self) -> Vec<Column> {
        let rows: Vec<_> = self
            .stacks
            .iter()
            .flat_map(|(id, frames)| (0..).zip(frames).map(move |(depth, f)| (id.0, depth, f)))
            .collect();
        vec![
            numbers("stack", rows.iter().map(|(id, _, _)| u64::from(*id)).collect()),
            numbers("depth", rows.iter().map(|(_, depth, _)| *depth).collect()),
            texts("name", rows.iter().map(|(_, _, frame)| frame.name.as_str())),
            texts("file", rows.iter().map(|(_, _, frame)| frame.file.as_str())),
            numbers("line", rows.iter().map(|(_, _, frame)| frame.line.into()).collect()),
        ]
    }

    fn annotations(&self) -> Vec<Column> {
        let rows = &self.annotations;
        vec![
            texts("name", rows.iter().map(|a| a.name.as_str())),
            numbers("start_ns", rows.iter().map(|a| a.start).collect()),
            some_numbers("end_ns", rows.iter().map(|a| a.end).collect()),
        ]
    }
}

/// A row of `heaps.parquet`.
struct HeapRow<'a> {
    run: u64,
    number: u64,
    frame: &'a Keyframe,
    range: &'a RangeView,
    block: &'a BlockView,
    life: Life,
}

/// A column for each metric.
pub(super) fn metrics(records: &[Option<&RunRecord>]) -> Vec<Column> {
    let column = |metric: &Metric| {
        let values = records.iter().map(|record| record.and_then(|r| r.metric(metric.name)));
        match metric.unit {
            Unit::Ratio => Column::new(
                metric.name.into(),
                values.map(|v| v.map(|v| v.as_f64())).collect::<Vec<_>>(),
            ),
            // Means are fractions; a fraction of a byte or a nanosecond says nothing.
            _ => some_numbers(
                metric.name,
                values.map(|v| v.map(|v| v.as_f64().round() as u64)).collect(),
            ),
        }
    };
    METRICS.iter().map(column).collect()
}

/// The names of a block's states.
pub(super) fn state_name(state: poolsim_core::BlockState) -> &'static str {
    use poolsim_core::BlockState;
    match state {
        BlockState::Allocated => "allocated",
        BlockState::Pending => "pending",
        BlockState::Free => "free",
    }
}

/// A quantity's name and how to read it.
type Quantity = (&'static str, fn(&Levels) -> u64);

/// The four quantities.
pub(crate) const QUANTITIES: [Quantity; 4] = [
    ("requested", |levels| levels.requested),
    ("allocated", |levels| levels.allocated),
    ("active", |levels| levels.active),
    ("reserved", |levels| levels.reserved),
];

/// Every `step` points as one, with their extremes.
pub(crate) fn coarser(points: &[Point], step: usize) -> Vec<Point> {
    let joined = |chunk: &[Point]| chunk[1..].iter().fold(chunk[0], |sum, next| sum.join(next));
    points.chunks(step).map(joined).collect()
}
