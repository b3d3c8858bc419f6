//! What memory calls cost on a GPU, by size and state.

mod pages;
mod pools;
mod streams;
mod whole;

use crate::call::{Context, Result};
use crate::kernels::Kernels;
use crate::latency::{Latency, timer_cost};
use crate::pace::driver_pace;
use cudarc::driver::sys::CUstream;
use poolsim_core::{Bytes, Nanos};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that the driver gets to clear a GiB; it takes about 3 ms.
const CLEARING: Duration = Duration::from_millis(12);

const MIB: Bytes = 1 << 20;
const GIB: Bytes = 1 << 30;

/// In which state a call was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Memory is taken piece by piece and held, then given back in the same order: how allocators grow.
    Growing,
    /// What was just given back is taken again.
    Again,
    /// Beside a thousand other allocations or mappings.
    Crowded,
    /// While a kernel runs on another stream.
    Busy,
    /// In a pool with some thousand blocks of mixed sizes, every other one free.
    Fragmented,
}

impl State {
    /// The word for it in profiles.
    pub fn name(self) -> &'static str {
        match self {
            State::Growing => "growing",
            State::Again => "again",
            State::Crowded => "crowded",
            State::Busy => "busy",
            State::Fragmented => "fragmented",
        }
    }
}

/// One call, measured in one state at one size.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The driver's name of the call.
    pub call: &'static str,
    /// The state.
    pub state: State,
    /// Its size.
    pub bytes: Bytes,
    /// Times of the calls.
    pub times: Latency,
}

/// What was measured on a GPU.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The calls.
    pub samples: Vec<Sample>,
    /// Cost of reading the clock, in nanoseconds.
    pub timer_cost_ns: f64,
    /// Median pace of the driver meanwhile, as [`driver_pace`]. Every time is what it would have been at this pace, which
    /// changes by a third from one second to the next.
    pub driver_pace_ns: f64,
}

/// Measures every memory call on a GPU. Holds at most half of the memory that is free, and gives everything back.
///
/// # Errors
/// `Unsupported` without a driver, `Driver` if a call fails.
pub fn calibrate(index: u32) -> Result<Calibration> {
    let context = Context::new(index)?;
    let mut bench = Bench {
        stream: context.stream()?,
        other: context.stream()?,
        kernels: Kernels::load(&context)?,
        room: context.memory()?.0 / 2,
        context,
        times: BTreeMap::new(),
        paces: Vec::new(),
        counts: true,
    };
    let result = bench.look().and_then(|()| bench.all()).and_then(|()| bench.look());
    for stream in [bench.stream, bench.other] {
        let _ = bench.context.synchronize_stream(stream);
        let _ = bench.context.destroy_stream(stream);
    }
    result?;
    Ok(calibration(bench.times, &bench.paces))
}

/// All times as at one pace of the driver: that of the looks before and after each.
fn calibration(times: BTreeMap<Key, Vec<Timing>>, paces: &[f64]) -> Calibration {
    let mut sorted = paces.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    let samples = times.into_iter().map(|((call, state, bytes), timings)| {
        let mut times = Latency::default();
        for t in timings {
            let pace = (paces[t.look] + paces[t.look + 1]) / 2.0;
            times.add((t.time as f64 * median / pace).round() as Nanos);
        }
        Sample { call, state, bytes, times }
    });
    let samples = samples.collect();
    Calibration { samples, timer_cost_ns: timer_cost(), driver_pace_ns: median }
}

type Key = (&'static str, State, Bytes);

/// One call, and which look at the driver's pace came before it.
struct Timing {
    time: Nanos,
    look: usize,
}

/// A GPU under measurement.
struct Bench {
    context: Arc<Context>,
    kernels: Kernels,
    stream: CUstream,
    /// The one that is kept busy.
    other: CUstream,
    /// Bytes that may be held at once.
    room: Bytes,
    times: BTreeMap<Key, Vec<Timing>>,
    /// The driver's pace, looked at between groups of calls.
    paces: Vec<f64>,
    /// Whether calls count: not while the driver sets things up.
    counts: bool,
}

impl Bench {
    fn all(&mut self) -> Result<()> {
        self.whole()?;
        self.pages()?;
        self.pools()?;
        self.streams()
    }

    /// Times one call.
    fn time<T>(
        &mut self,
        call: &'static str,
        state: State,
        bytes: Bytes,
        run: impl FnOnce(&Context) -> Result<T>,
    ) -> Result<T> {
        let start = Instant::now();
        let result = run(&self.context);
        let time = start.elapsed();
        self.add(call, state, bytes, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        result
    }

    fn add(&mut self, call: &'static str, state: State, bytes: Bytes, time: Nanos) {
        if self.counts {
            let timing = Timing { time, look: self.paces.len() - 1 };
            self.times.entry((call, state, bytes)).or_default().push(timing);
        }
    }

    /// How often a call of this size is measured: large ones take long.
    fn samples(&self, bytes: Bytes) -> usize {
        match bytes {
            0..=67_108_864 => 200,
            67_108_865..=1_073_741_824 => 40,
            1_073_741_825..=17_179_869_184 => 12,
            _ => 3,
        }
    }

    /// How many pieces of this size may be held at once.
    fn batch(&self, bytes: Bytes, wanted: usize) -> usize {
        let fit = usize::try_from(self.room / bytes.max(1)).unwrap_or(usize::MAX);
        wanted.min(fit)
    }

    /// Waits until the driver has cleared what was given back: a request for memory that is not clear yet would take
    /// as long as clearing it.
    fn rest(&mut self, given_back: Bytes) -> Result<()> {
        std::thread::sleep(CLEARING * (given_back >> 30) as u32);
        self.look()
    }

    /// Looks at the driver's pace.
    fn look(&mut self) -> Result<()> {
        self.paces.push(driver_pace(&self.context)?);
        Ok(())
    }

    /// Keeps the other stream busy for `time`.
    fn occupy(&self, time: Nanos) -> Result<()> {
        self.kernels.spin(self.other, time)
    }
}
