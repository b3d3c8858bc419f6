//! Sizes: rounding, pool class, segment size (PyTorch 2.11, `round_size`, `get_allocation_size`).

use super::config::Config;
use poolsim_core::units::{Bytes, MIB};

/// Smallest block and rounding quantum.
pub const MIN_BLOCK: Bytes = 512;
/// Rounded requests up to this size use the small pool; also the split threshold of the large pool.
pub const SMALL_MAX: Bytes = MIB;
/// Size of a small segment, and page size of small expandable segments.
pub const SMALL_SEGMENT: Bytes = 2 * MIB;
/// Rounded requests below this size get a segment of `large_segment_size`.
pub const MIN_LARGE_ALLOC: Bytes = 10 * MIB;
/// Larger segments are rounded up to this.
pub const ROUND_LARGE: Bytes = 2 * MIB;
/// Requests of this size and more are refused before anything else happens.
pub const MAX_REQUEST: Bytes = 1 << 60;

/// Rounds a request as the allocator does. The result is a multiple of [`MIN_BLOCK`].
#[inline]
pub fn round_size(config: &Config, requested: Bytes) -> Bytes {
    if config.rounds_to_divisions && requested >= MIN_BLOCK {
        let divisions = divisions_for(&config.divisions, requested);
        if divisions > 1 && requested > MIN_BLOCK * divisions {
            return next_division(requested, divisions);
        }
    }
    requested.max(1).next_multiple_of(MIN_BLOCK)
}

/// The divisions of the bucket that a size falls into: below 2 MiB the first, then one an octave,
/// the last from 32 GiB on.
fn divisions_for(divisions: &[u32; 16], size: Bytes) -> u64 {
    let bucket = size.ilog2().saturating_sub(20).min(15);
    u64::from(divisions[bucket as usize])
}

/// The next of `divisions` equal steps between two powers of two.
fn next_division(size: Bytes, divisions: u64) -> Bytes {
    if size.is_power_of_two() {
        return size;
    }
    let floor = 1u64 << size.ilog2();
    let step = floor >> divisions.ilog2();
    if step == 0 { 2 * floor } else { size.next_multiple_of(step) }
}

/// What is asked from the driver for a rounded size.
#[inline]
pub fn segment_size(config: &Config, rounded: Bytes) -> Bytes {
    if config.exact_segments {
        rounded
    } else if rounded <= config.small_max {
        SMALL_SEGMENT
    } else if rounded < MIN_LARGE_ALLOC {
        config.large_segment_size
    } else {
        rounded.next_multiple_of(ROUND_LARGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(n: u32) -> Config {
        Config { divisions: [n; 16], rounds_to_divisions: n > 1, ..Config::default() }
    }

    #[test]
    fn rounds_to_512_and_picks_the_segment() {
        let c = Config::default();
        for (asked, rounded, segment) in [
            (1, 512, 2 * MIB),
            (511, 512, 2 * MIB),
            (512, 512, 2 * MIB),
            (513, 1024, 2 * MIB),
            (1_048_576, 1_048_576, 2 * MIB),
            (1_048_577, 1_049_088, 20 * MIB),
            (10_485_248, 10_485_248, 20 * MIB),
            (10_485_760, 10_485_760, 10 * MIB),
            (10_485_761, 10_486_272, 12 * MIB),
        ] {
            assert_eq!(round_size(&c, asked), rounded, "{asked}");
            assert_eq!(segment_size(&c, rounded), segment, "{asked}");
        }
    }

    #[test]
    fn rounds_to_divisions_of_a_power_of_two() {
        for (n, asked, rounded) in [
            (4, 1200, 1536),
            (4, 2048, 2048),
            (4, 2049, 2560),
            (4, 5000, 5120),
            (4, 3_145_729, 3_670_016),
            (8, 6000, 6144),
            (2, 716_800, 786_432),
            (2, 524_289, 786_432),
        ] {
            assert_eq!(round_size(&divided(n), asked), rounded, "{asked} with {n}");
        }
    }
}
