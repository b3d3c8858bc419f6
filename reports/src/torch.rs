//! A simulated run in the words of `torch.cuda`.

use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: usize = 75;

/// How a row's numbers are scaled.
#[derive(Clone, Copy)]
enum Scale {
    Bytes,
    Count,
}

/// Rows that are given for the whole, the large and the small pool.
const BY_POOL: &[(&str, &str, Scale)] = &[
    ("allocated_bytes", "Allocated memory", Scale::Bytes),
    ("active_bytes", "Active memory", Scale::Bytes),
    ("requested_bytes", "Requested memory", Scale::Bytes),
    ("reserved_bytes", "GPU reserved memory", Scale::Bytes),
    ("inactive_split_bytes", "Non-releasable memory", Scale::Bytes),
    ("allocation", "Allocations", Scale::Count),
    ("active", "Active allocs", Scale::Count),
    ("segment", "GPU reserved segments", Scale::Count),
    ("inactive_split", "Non-releasable allocs", Scale::Count),
];

const WHOLE: &[(&str, &str)] = &[
    ("oversize_allocations", "Oversize allocations"),
    ("oversize_segments", "Oversize GPU segments"),
];

const COLUMNS: [&str; 4] = ["current", "peak", "allocated", "freed"];

/// What `torch.cuda.memory_summary()` prints for these `memory_stats()` values, character for character.
/// Values that are missing count as 0. The numbers of a row are all scaled by the unit that suits the
/// whole, rounded down, as there.
pub fn memory_summary(stats: &[(String, i64)], device: u32) -> String {
    let stats: BTreeMap<&str, i64> = stats.iter().map(|(k, v)| (k.as_str(), *v)).collect();
    let get = |key: &str| stats.get(key).copied().unwrap_or(0);
    let (double, single) = ("=".repeat(WIDTH), "-".repeat(WIDTH));
    let mut lines = vec![
        double.clone(),
        format!(" {:16} PyTorch CUDA memory summary, device ID {device:<17} ", ""),
        single.clone(),
        format!(
            "  {:9} CUDA OOMs: {:<12} | {:6} cudaMalloc retries: {:<8}  ",
            "",
            get("num_ooms"),
            "",
            get("num_alloc_retries")
        ),
        double.clone(),
        "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ".into(),
    ];
    for (key, title, scale) in BY_POOL {
        lines.push(single.clone());
        let whole = COLUMNS.map(|column| get(&format!("{key}.all.{column}")));
        for (pool, title) in [
            ("all", *title),
            ("large_pool", "      from large pool"),
            ("small_pool", "      from small pool"),
        ] {
            let values = COLUMNS.map(|column| get(&format!("{key}.{pool}.{column}")));
            lines.push(row(title, values, whole, *scale));
        }
    }
    for (key, title) in WHOLE {
        lines.push(single.clone());
        let values = COLUMNS.map(|column| get(&format!("{key}.{column}")));
        lines.push(row(title, values, values, Scale::Count));
    }
    lines.push(double);
    lines.iter().fold(String::new(), |text, line| text + "|" + line + "|\n")
}

fn row(title: &str, values: [i64; 4], whole: [i64; 4], scale: Scale) -> String {
    let mut text = format!(" {title:<21}");
    for (value, whole) in values.into_iter().zip(whole) {
        write!(text, " | {}", scaled(value, whole, scale))
            .expect("writing to a String cannot fail");
    }
    text.push(' ');
    text
}

fn scaled(mut value: i64, whole: i64, scale: Scale) -> String {
    let (step, from, units): (i64, f64, &[&str]) = match scale {
        Scale::Bytes => (1024, 768.0 * 1024.0, &["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"]),
        Scale::Count => (1000, 750.0 * 1000.0, &[" ", "K", "M"]),
    };
    let mut rest = whole as f64;
    let mut unit = 0;
    while unit + 1 < units.len() && rest >= from {
        unit += 1;
        value = value.div_euclid(step);
        rest /= step as f64;
    }
    match scale {
        Scale::Bytes => format!("{value:6} {}", units[unit]),
        Scale::Count => format!("{value:7} {} ", units[unit]),
    }
}

/// One `name  value` line per statistic, in the given order.
pub fn stats_lines(stats: &[(String, i64)]) -> String {
    let width = stats.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    stats
        .iter()
        .fold(String::new(), |text, (name, value)| text + &format!("{name:<width$}  {value}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_scale_by_the_whole_and_round_down() {
        // 768 KiB is the border above which torch leaves KiB for MiB.
        assert_eq!(scaled(786_431, 786_431, Scale::Bytes), "786431 B  ");
        assert_eq!(scaled(786_432, 786_432, Scale::Bytes), "   768 KiB");
        assert_eq!(scaled(1 << 20, 1 << 34, Scale::Bytes), "     1 MiB");
        assert_eq!(scaled(25_081, 25_081, Scale::Count), "  25081   ");
        assert_eq!(scaled(749_999, 2_000_000, Scale::Count), "    749 K ");
    }

    #[test]
    fn every_line_has_torchs_width() {
        let stats = vec![("allocated_bytes.all.peak".to_string(), 11_938_978_304)];
        let text = memory_summary(&stats, 0);
        assert!(text.lines().all(|line| line.len() == WIDTH + 2 || line.starts_with("|  ")));
        assert!(text.contains("| Allocated memory      |      0 B   |  11385 MiB |      0 B   |"));
    }
}
