//! Sizes on the command line.

use poolsim_core::Bytes;

const UNITS: &[(&str, u128)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// Reads `80GiB`, `12.5 GiB`, `40GB` (10^9) or a plain number of bytes, exactly; fractions of a byte
/// are dropped.
pub fn parse_size(text: &str) -> Result<Bytes, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim_start());
    let factor = match unit {
        "" => 1,
        _ => match UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
            Some((_, factor)) => *factor,
            None => return Err(unknown_unit(number, unit)),
        },
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let malformed = || format!("{text:?} is not a size; give a number of bytes or, say, 80GiB");
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || fraction.len() > 18 {
        return Err(malformed());
    }
    // Decimal arithmetic in integers: 0.1GiB must not depend on how floats round.
    let scale = 10u128.pow(fraction.len() as u32);
    let numerator: u128 = format!("{whole}{fraction}").parse().map_err(|_| malformed())?;
    let bytes =
        numerator.checked_mul(factor).ok_or_else(|| format!("{text:?} is more than 2^64 bytes"))?
            / scale;
    Bytes::try_from(bytes).map_err(|_| format!("{text:?} is more than 2^64 bytes"))
}

fn unknown_unit(number: &str, unit: &str) -> String {
    let letter = unit.chars().next().map(|c| c.to_ascii_uppercase());
    match letter {
        Some(c @ ('K' | 'M' | 'G' | 'T')) if unit.len() == 1 => {
            format!("say which {c}: {number}{c}iB (binary) or {number}{c}B (decimal)")
        }
        _ => format!("unknown unit {unit:?}; use B, KiB, MiB, GiB, TiB or KB, MB, GB, TB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        for (text, bytes) in [
            ("0", 0),
            ("1024", 1024),
            ("80GiB", 80 << 30),
            ("12.5 GiB", 13_421_772_800),
            ("40gb", 40_000_000_000),
            ("0.5KiB", 512),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn wrong_sizes_are_refused_with_a_way_on() {
        for text in [
            "",
            "GiB",
            ".",
            "1.2.3GiB",
            "-1",
            "1e9",
            "40 bytes",
            "99999999TiB",
            "1.0000000000000000001B",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(parse_size("40G"), Err("say which G: 40GiB (binary) or 40GB (decimal)".into()));
    }
}
