//! How long calls took on real hardware.

use crate::quantity::{show_count, show_nanos};
use crate::table::{Row, finish, numbers_right, plain_table, words_left};
use poolsim_core::record::{Interval, LatencySummary, Measured};

/// A table of latencies and the intervals of the totals. Empty if no run was measured.
pub fn render(rows: &[Row<'_>]) -> String {
    let measured: Vec<(&str, &Measured)> =
        rows.iter().filter_map(|row| Some((row.label, row.record.measured.as_ref()?))).collect();
    let Some((_, first)) = measured.first() else { return String::new() };
    let mut text = format!(
        "\nLatency of calls, all {} runs together; reading the clock costs {:.1} ns in each\n",
        first.repeats, first.timer_cost_ns
    );
    let mut table = plain_table();
    table.set_header(["policy", "call", "calls", "p50", "p90", "p99", "p99.9", "max", "total"]);
    for (label, m) in &measured {
        for (i, (call, latency)) in ordered(m).enumerate() {
            let label = if i == 0 { *label } else { "" };
            table.add_row(cells(label, call, latency));
        }
    }
    numbers_right(&mut table);
    words_left(&mut table, 1);
    text += &finish(&table);
    text += "\nMean time of one run, with its 95 % confidence interval\n";
    let mut table = plain_table();
    table.set_header(["policy", "allocs and frees", "device calls"]);
    for (label, m) in &measured {
        let cell = |name: &str| m.intervals.get(name).map_or_else(|| "-".into(), show_interval);
        table.add_row([(*label).into(), cell("allocator_time_ns"), cell("device_time_ns")]);
    }
    numbers_right(&mut table);
    text + &finish(&table)
}

/// The allocator's own calls first, then the driver's.
fn ordered(m: &Measured) -> impl Iterator<Item = (&str, &LatencySummary)> {
    let is_own = |call: &str| call == "alloc" || call == "free";
    let own = m.latency.iter().filter(move |(call, _)| is_own(call));
    let driver = m.latency.iter().filter(move |(call, _)| !is_own(call));
    own.chain(driver).map(|(call, latency)| (call.as_str(), latency))
}

fn cells(label: &str, call: &str, l: &LatencySummary) -> Vec<String> {
    let times = [l.p50_ns, l.p90_ns, l.p99_ns, l.p999_ns, l.max_ns, l.total_ns];
    let mut cells = vec![label.to_string(), call.to_string(), show_count(l.calls)];
    cells.extend(times.map(show_nanos));
    cells
}

fn show_interval(i: &Interval) -> String {
    let show = |x: f64| show_nanos(x.max(0.0) as u64);
    format!("{} ({} to {})", show(i.mean), show(i.low), show(i.high))
}
