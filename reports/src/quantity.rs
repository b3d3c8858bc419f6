//! Numbers as people read them.

use poolsim_core::metric::Unit;
use poolsim_core::record::Value;
use poolsim_core::units::ShowBytes;

/// A metric's value in words that fit its unit.
pub fn show(value: Value, unit: Unit) -> String {
    match unit {
        Unit::Bytes => ShowBytes(whole(value)).to_string(),
        Unit::Nanos => show_nanos(whole(value)),
        Unit::Count => show_count(whole(value)),
        Unit::Ratio => format!("{:.1} %", value.as_f64() * 100.0),
    }
}

/// A duration in the largest unit that keeps at least one whole unit: `1.50 ms`.
pub fn show_nanos(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        1_000_000_000..600_000_000_000 => format!("{:.2} s", ns as f64 / 1e9),
        600_000_000_000..36_000_000_000_000 => format!("{:.1} min", ns as f64 / 60e9),
        _ => format!("{:.1} h", ns as f64 / 3600e9),
    }
}

/// A count with its thousands apart: `12,345`.
pub fn show_count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 event`, `2 events`; `1 entry`, `2 entries`.
pub fn show_plural(n: u64, noun: &str) -> String {
    let count = show_count(n);
    match noun.strip_suffix('y') {
        _ if n == 1 => format!("{count} {noun}"),
        Some(stem) => format!("{count} {stem}ies"),
        None => format!("{count} {noun}s"),
    }
}

fn whole(value: Value) -> u64 {
    match value {
        Value::Int(n) => n,
        // Means of bytes: a fraction of a byte means nothing to a reader.
        Value::Real(x) => x.round() as u64,
    }
}

/// Bytes with their sign.
pub fn show_signed(bytes: i64) -> String {
    let sign = if bytes < 0 { '-' } else { '+' };
    format!("{sign}{}", ShowBytes(bytes.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_their_thousands_apart() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (123_456, "123,456"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(show_count(n), text);
        }
    }

    #[test]
    fn units_switch_at_one_whole_unit() {
        assert_eq!(show_nanos(999), "999 ns");
        assert_eq!(show_nanos(1_000), "1.00 us");
        assert_eq!(show_nanos(2_500_000), "2.50 ms");
        assert_eq!(show_nanos(599_000_000_000), "599.00 s");
        assert_eq!(show_nanos(7_200_000_000_000), "120.0 min");
        assert_eq!(show(Value::Real(0.9254), Unit::Ratio), "92.5 %");
        assert_eq!(show(Value::Real(1023.6), Unit::Bytes), "1.00 KiB");
    }
}
