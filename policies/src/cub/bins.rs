//! The sizes of CUB's bins.

use poolsim_core::{Bytes, ConfigError};

/// Powers of a growth factor, ascending.
#[derive(Clone, Debug)]
pub(super) struct BinSizes(Vec<Bytes>);

impl BinSizes {
    /// The powers of `growth` with exponents from the first to the second. CUB holds sizes of bins in 32 bits.
    pub(super) fn new(growth: u64, (min, max): (u64, u64)) -> Result<BinSizes, ConfigError> {
        if min > max {
            return Err(ConfigError("`min_bin` is larger than `max_bin`; swap them".into()));
        }
        let power = |exponent: u64| {
            let size = u32::try_from(exponent).ok().and_then(|e| growth.checked_pow(e));
            size.filter(|&size| size <= u64::from(u32::MAX)).ok_or_else(|| {
                ConfigError(format!(
                    "`bin_growth` {growth} to the power of `max_bin` {max} is 4 GiB or more; make one of them smaller"
                ))
            })
        };
        Ok(BinSizes((min..=max).map(power).collect::<Result<_, _>>()?))
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn largest(&self) -> Bytes {
        self.0[self.0.len() - 1]
    }

    /// The size of a bin's blocks.
    pub(super) fn size(&self, bin: usize) -> Bytes {
        self.0[bin]
    }

    /// The smallest bin whose blocks suffice.
    #[inline]
    pub(super) fn bin(&self, size: Bytes) -> Option<usize> {
        let bin = self.0.partition_point(|&block| block < size);
        (bin < self.0.len()).then_some(bin)
    }

    /// The bin whose blocks have this size.
    #[inline]
    pub(super) fn bin_of(&self, size: Bytes) -> Option<usize> {
        self.bin(size).filter(|&bin| self.0[bin] == size)
    }
}
