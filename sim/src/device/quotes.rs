//! Prices of recent calls, by operation and size.

use super::DeviceProfile;
use poolsim_core::device::DeviceOp;
use poolsim_core::{Bytes, Nanos};

const SLOTS: usize = 1024;

/// Remembers what calls cost: a job asks for the same sizes over and over, and a curve takes logarithms.
#[derive(Clone, Debug)]
pub(super) struct Quotes(Box<[Quote; SLOTS]>);

#[derive(Clone, Copy, Debug)]
struct Quote {
    /// Size and operation; `u64::MAX` is no call.
    bytes: Bytes,
    op: DeviceOp,
    time: Nanos,
}

impl Default for Quotes {
    fn default() -> Self {
        let none = Quote { bytes: u64::MAX, op: DeviceOp::Alloc, time: 0 };
        Quotes(Box::new([none; SLOTS]))
    }
}

impl Quotes {
    /// What one call costs, as the profile says.
    #[inline]
    pub(super) fn cost(&mut self, profile: &DeviceProfile, op: DeviceOp, bytes: Bytes) -> Nanos {
        let hash = (bytes ^ (op as u64) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let quote = &mut self.0[(hash >> 54) as usize];
        if quote.bytes != bytes || quote.op != op {
            *quote = Quote { bytes, op, time: profile.cost(op, bytes) };
        }
        quote.time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_what_the_profile_says() {
        let profile = DeviceProfile::h200();
        let mut quotes = Quotes::default();
        for round in 0..3u64 {
            for step in 0..3000 {
                let bytes = step * step * 512;
                let op = DeviceOp::ALL[((step + round) % DeviceOp::ALL.len() as u64) as usize];
                assert_eq!(quotes.cost(&profile, op, bytes), profile.cost(op, bytes));
            }
        }
    }
}
