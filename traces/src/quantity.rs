//! Sizes and times as people write them: `2MiB`, `1.5 ms`.

use poolsim_core::{Bytes, Nanos};

const BYTES: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

const NANOS: &[(&str, u64)] =
    &[("", 1), ("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Bytes from `512`, `2MiB`, `1.5 GiB`, `80GB`: `KiB` and kin are powers of 1024, `kB` and kin of 1000,
/// in any case. Fractions of a byte are rounded to the nearest one.
///
/// # Errors
/// Says what is wrong and what is allowed.
pub fn parse_bytes(text: &str) -> Result<Bytes, String> {
    parse(text, BYTES)
        .map_err(|why| format!("`{}` is not a size: {why}; write 512, 2MiB or 1.5GiB", clip(text)))
}

/// Nanoseconds from `1500`, `1.5us`, `20 ms`, `3s`.
///
/// # Errors
/// Says what is wrong and what is allowed.
pub fn parse_nanos(text: &str) -> Result<Nanos, String> {
    parse(text, NANOS)
        .map_err(|why| format!("`{}` is not a time: {why}; write 1500, 1.5us or 20ms", clip(text)))
}

fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

fn parse(text: &str, units: &[(&str, u64)]) -> Result<u64, &'static str> {
    let text = text.trim();
    let digits =
        text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.' || *b == b'_').count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_lowercase();
    let &(_, factor) =
        units.iter().find(|(name, _)| *name == unit).ok_or("its unit is not known")?;
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err("it has no number");
    }
    let whole: u64 = match whole {
        "" => 0,
        whole => whole.parse().map_err(|_| TOO_LARGE)?,
    };
    // Twelve digits after the point are below half a byte of a TiB.
    let fraction = &fraction[..fraction.len().min(12)];
    let scale = 10u128.pow(fraction.len() as u32);
    let part: u128 =
        if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| TOO_LARGE)? };
    let rounded = (part * u128::from(factor) + scale / 2) / scale;
    let total = u128::from(whole) * u128::from(factor) + rounded;
    u64::try_from(total).map_err(|_| TOO_LARGE)
}

const TOO_LARGE: &str = "it is above 2^64 - 1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512 B", 512),
            ("2MiB", 2 << 20),
            ("2 mib", 2 << 20),
            ("1.5GiB", 3 << 29),
            (".5KiB", 512),
            ("80GB", 80_000_000_000),
            ("1_000kB", 1_000_000),
            ("0.3 KiB", 307),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_says_why() {
        for text in [
            "",
            "MiB",
            "-1",
            "1.2.3",
            "2 apples",
            "1e9",
            "16777216TiB",
            "18446744073709551616",
            ".",
        ] {
            let error = parse_bytes(text).unwrap_err();
            assert!(error.contains("write 512, 2MiB or 1.5GiB"), "{error}");
        }
    }

    #[test]
    fn times_as_people_write_them() {
        assert_eq!(parse_nanos("1.5us"), Ok(1500));
        assert_eq!(parse_nanos("3 µs"), Ok(3000));
        assert_eq!(parse_nanos("2s"), Ok(2_000_000_000));
        assert!(parse_nanos("2 MiB").is_err());
    }
}
