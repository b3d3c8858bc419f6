//! Which card a number of bytes fits on.

use poolsim_core::Bytes;
use poolsim_core::units::GIB;

/// Sizes that cards are sold with, in GiB.
const SIZES: [Bytes; 12] = [8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 141, 192];

/// What a process takes beside its allocator: CUDA context and libraries. Torch 2.11 on an H200 said in a recorded
/// out-of-memory message that it used 13.03 GiB, of which 12.41 GiB were the allocator's.
pub const BESIDE: Bytes = (13.03 * GIB as f64) as Bytes - (12.41 * GIB as f64) as Bytes;

/// The smallest size on which an allocator can have so many bytes: cards report up to a tenth less than their name says, where
/// error correction takes its part.
pub fn smallest(bytes: Bytes) -> Option<Bytes> {
    SIZES.into_iter().find(|size| size * GIB / 10 * 9 >= bytes + BESIDE)
}

/// For tables.
pub fn words(bytes: Option<Bytes>) -> String {
    match bytes.map(smallest) {
        None => "-".into(),
        Some(None) => "none".into(),
        Some(Some(size)) => format!("{size} GB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_never_filled_to_its_name() {
        assert_eq!(smallest(0), Some(8));
        assert_eq!(smallest(24 * GIB), Some(32));
        assert_eq!(smallest(20 * GIB), Some(24));
        assert_eq!(smallest(500 * GIB), None);
    }
}
