//! The driver call log: what the capture library of a CUDA program writes, call by call.
//!
//! A file is [`Record`]s of 64 bytes, the first of them [`Kind::START`]. The library writes them through shared memory
//! that the file backs, so all that was written is in the file even if the process is killed; the rest of the file is zeros.
//! Each record carries a check sum of its own, so that one that was being written is told from one that is whole.
//!
//! ```text
//! record := check:u32  kind:u8  device:u8  library:u16  at:u64  a:u64  b:u64  c:u64  d:u64  thread:u32  result:u32  e:u64
//! ```
//!
//! Numbers are little-endian. `check` is over the other 60 bytes, and never 0. A text takes as many records as it
//! needs, one behind the other.

/// Bytes of a record.
pub const RECORD_LEN: usize = 64;

/// What a log starts with, behind the record's head: `a` of [`Kind::START`].
pub const MAGIC: u64 = u64::from_le_bytes(*b"PSCALLS\0");

/// The version of this layout: `b` of [`Kind::START`].
pub const VERSION: u64 = 1;

/// A device that is not known.
pub const NO_DEVICE: u8 = u8::MAX;

/// Bytes of text in a record: fields `a` to `d` and `e`.
pub const TEXT_LEN: usize = 40;

/// The kind of a record: a driver call, or something of the log's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub u8);

macro_rules! calls {
    ($($number:literal $name:ident $call:literal $means:literal;)*) => {
        impl Kind {
            $(#[doc = concat!("`", $call, "`: ", $means)] pub const $name: Kind = Kind($number);)*
        }
        /// Every call that is recorded, with its name in the driver's interface.
        pub const CALLS: &[(Kind, &str)] = &[$((Kind::$name, $call)),*];
    };
}

calls! {
    1 ALLOC "cuMemAlloc" "a address, b bytes.";
    2 ALLOC_PITCH "cuMemAllocPitch" "a address, b bytes (pitch times height).";
    3 ALLOC_MANAGED "cuMemAllocManaged" "a address, b bytes, e flags.";
    4 ALLOC_ASYNC "cuMemAllocAsync" "a address, b bytes, c stream.";
    5 ALLOC_FROM_POOL "cuMemAllocFromPoolAsync" "a address, b bytes, c stream, d pool.";
    6 FREE "cuMemFree" "a address.";
    7 FREE_ASYNC "cuMemFreeAsync" "a address, c stream.";
    8 HOST_ALLOC "cuMemHostAlloc" "a address, b bytes, e flags.";
    9 HOST_ALLOC_PLAIN "cuMemAllocHost" "a address, b bytes.";
    10 HOST_REGISTER "cuMemHostRegister" "a address, b bytes, e flags.";
    11 HOST_FREE "cuMemFreeHost" "a address.";
    12 HOST_UNREGISTER "cuMemHostUnregister" "a address.";
    13 POOL_CREATE "cuMemPoolCreate" "d pool, e the kind of its place (1: a device).";
    14 POOL_DESTROY "cuMemPoolDestroy" "d pool.";
    15 POOL_TRIM "cuMemPoolTrimTo" "b bytes to keep, d pool.";
    16 POOL_SET "cuMemPoolSetAttribute" "b value, d pool, e attribute.";
    17 POOL_USE "cuDeviceSetMemPool" "d pool.";
    18 RESERVE "cuMemAddressReserve" "a address, b bytes.";
    19 RESERVE_FREE "cuMemAddressFree" "a address, b bytes.";
    20 CREATE "cuMemCreate" "a handle, b bytes, e the kind of its place (1: a device).";
    21 RELEASE "cuMemRelease" "a handle.";
    22 MAP "cuMemMap" "a address, b bytes, c offset, d handle.";
    23 UNMAP "cuMemUnmap" "a address, b bytes.";
    24 SET_ACCESS "cuMemSetAccess" "a address, b bytes.";
    25 SYNC_STREAM "cuStreamSynchronize" "c stream.";
    26 SYNC_DEVICE "cuCtxSynchronize" "nothing else.";
    27 RETAIN "cuMemRetainAllocationHandle" "a handle, b an address where it is mapped: the handle is held once more.";
}

impl Kind {
    /// The first record: a [`MAGIC`], b [`VERSION`], c process, d parent process, e wall clock in microseconds since
    /// 1970 at time 0.
    pub const START: Kind = Kind(64);
    /// Part of a text; the first one and all others have its number in `library`, their own in `thread`, and how many there are in `result`.
    pub const LIBRARY: Kind = Kind(65);
    /// A fact about the run, `key=value`.
    pub const FACT: Kind = Kind(66);
    /// What the device's management library says: a bytes in use, b bytes in all, c those of this process (0: not known).
    pub const USED: Kind = Kind(67);

    /// The call's name in the driver's interface.
    pub fn name(self) -> Option<&'static str> {
        CALLS.iter().find(|(kind, _)| *kind == self).map(|(_, name)| *name)
    }
}

/// A record. What `a` to `e` mean is said at each [`Kind`]; fields that a kind does not use are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Record {
    pub kind: Kind,
    /// The device's index in the process, or [`NO_DEVICE`].
    pub device: u8,
    /// The library that called: a number of a [`Kind::LIBRARY`] before; 0 is not known.
    pub library: u16,
    /// Nanoseconds since the log's time 0. Of calls that free, when they began; of others, when they ended: so the
    /// order of times is the order in which addresses are used again.
    pub at: u64,
    pub a: u64,
    pub b: u64,
    pub c: u64,
    pub d: u64,
    /// The thread's number in the system.
    pub thread: u32,
    /// What the driver answered, 0 if it did as asked.
    pub result: u32,
    pub e: u64,
}

impl Record {
    /// A record of this kind with nothing in it.
    pub const fn new(kind: Kind) -> Record {
        Record {
            kind,
            device: NO_DEVICE,
            library: 0,
            at: 0,
            a: 0,
            b: 0,
            c: 0,
            d: 0,
            thread: 0,
            result: 0,
            e: 0,
        }
    }

    /// The record as it stands in the file: the words of its 64 bytes.
    pub fn words(&self) -> [u64; 8] {
        let head = u64::from(self.kind.0) << 32
            | u64::from(self.device) << 40
            | u64::from(self.library) << 48;
        let tail = u64::from(self.thread) | u64::from(self.result) << 32;
        let mut words = [head, self.at, self.a, self.b, self.c, self.d, tail, self.e];
        words[0] |= u64::from(check(&words));
        words
    }

    /// The record that these words are, if they are one.
    pub fn of_words(words: [u64; 8]) -> Option<Record> {
        let [head, at, a, b, c, d, tail, e] = words;
        let mut unchecked = words;
        unchecked[0] &= !u64::from(u32::MAX);
        (head as u32 == check(&unchecked)).then_some(Record {
            kind: Kind((head >> 32) as u8),
            device: (head >> 40) as u8,
            library: (head >> 48) as u16,
            at,
            a,
            b,
            c,
            d,
            thread: tail as u32,
            result: (tail >> 32) as u32,
            e,
        })
    }

    /// The records that hold a text: a library's name with its number, or a fact.
    pub fn text(kind: Kind, number: u16, text: &str) -> impl Iterator<Item = Record> {
        let bytes = text.as_bytes();
        let parts = bytes.len().div_ceil(TEXT_LEN).max(1);
        (0..parts).map(move |part| {
            let mut packed = [0; TEXT_LEN];
            let from = &bytes[part * TEXT_LEN..bytes.len().min((part + 1) * TEXT_LEN)];
            packed[..from.len()].copy_from_slice(from);
            let word = |n: usize| u64::from_le_bytes(packed[n * 8..][..8].try_into().expect("8"));
            Record {
                library: number,
                a: word(0),
                b: word(1),
                c: word(2),
                d: word(3),
                e: word(4),
                thread: part as u32,
                result: parts as u32,
                ..Record::new(kind)
            }
        })
    }

    /// The bytes of this part of a text.
    pub fn text_part(&self) -> [u8; TEXT_LEN] {
        let mut packed = [0; TEXT_LEN];
        for (n, word) in [self.a, self.b, self.c, self.d, self.e].into_iter().enumerate() {
            packed[n * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        packed
    }
}

/// Over all words but the low half of the first; never 0, which is what the unwritten rest of a file reads as.
fn check(words: &[u64; 8]) -> u32 {
    let mixed = words.iter().fold(0x9e37_79b9_7f4a_7c15_u64, |sum, word| {
        (sum.rotate_left(23) ^ word).wrapping_mul(0x2545_f491_4f6c_dd1d)
    });
    (mixed >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_and_a_changed_one_does_not() {
        let record =
            Record { at: 7, a: 1 << 47, b: 512, e: 3, library: 9, ..Record::new(Kind::ALLOC) };
        let words = record.words();
        assert_eq!(Record::of_words(words), Some(record));
        for bit in 0..512 {
            let mut changed = words;
            changed[bit / 64] ^= 1 << (bit % 64);
            assert_eq!(Record::of_words(changed), None, "bit {bit}");
        }
        assert_eq!(Record::of_words([0; 8]), None);
    }
}
