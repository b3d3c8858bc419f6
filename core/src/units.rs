//! Quantities and handles.
//!
//! Quantities (`Bytes`, `Nanos`, `DevAddr`) are aliases of `u64`: allocators do arithmetic on them in
//! every line, and the names in signatures say the unit. Handles are newtypes, because mixing up two
//! handles is the mistake that compiles.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A number of bytes.
pub type Bytes = u64;
/// Nanoseconds; as a point in time, nanoseconds since the start of the trace.
pub type Nanos = u64;
/// A device virtual address.
pub type DevAddr = u64;

/// 1 KiB in bytes.
pub const KIB: Bytes = 1 << 10;
/// 1 MiB in bytes.
pub const MIB: Bytes = 1 << 20;
/// 1 GiB in bytes.
pub const GIB: Bytes = 1 << 30;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident($repr:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        pub struct $name(pub $repr);

        impl $name {
            /// The handle as an index into a dense table.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

handles! {
    /// A stream, numbered densely per trace. Importers that know the raw handles number streams in
    /// ascending order of the handle, so that order by `StreamId` is order by handle.
    StreamId(u16);
    /// A memory pool of the traced program (a PyTorch MemPool or a CUDA graph's pool); 0 is the default pool.
    PoolId(u16);
    /// The name that a trace gives an allocation. Slots are dense and reused: a slot names one live
    /// allocation at a time, and is free again once its free is complete.
    Slot(u32);
    /// A block, as the policy that granted it numbers them.
    BlockId(u32);
    /// A range of device addresses that a device handed out.
    RangeId(u32);
    /// A piece of physical device memory.
    PageId(u32);
    /// A point in a stream's work.
    FenceId(u32);
}

impl StreamId {
    /// Stands for "some other stream" where a trace knows that a free had to wait but not for which stream.
    pub const FOREIGN: StreamId = StreamId(u16::MAX);
}

impl PoolId {
    /// The default pool.
    pub const DEFAULT: PoolId = PoolId(0);

    /// True for pools other than the default one.
    #[inline]
    pub fn is_private(self) -> bool {
        self.0 != 0
    }
}

/// Shows bytes in the largest binary unit that keeps at least one whole unit: `1.50 GiB`.
pub struct ShowBytes(pub Bytes);

impl fmt::Display for ShowBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        let text = match n {
            0..KIB => format!("{n} B"),
            KIB..MIB => format!("{:.2} KiB", n as f64 / KIB as f64),
            MIB..GIB => format!("{:.2} MiB", n as f64 / MIB as f64),
            _ => format!("{:.2} GiB", n as f64 / GIB as f64),
        };
        f.pad(&text)
    }
}
